"""Completions over HTTP, against other servers on the same weights: tokens a second, and when the first token comes.

    python stress/serve_throughput.py --folder FOLDER [--gguf FILE --llama COMMAND] [--transformers COMMAND]

    --llama         llama.cpp's `llama-server`, or the Python of an environment that has xllamacpp, which has it inside
    --transformers  the program `transformers` of an environment that has transformers[serving]

Each client streams one completion after another: real text, never the same twice, the likeliest tokens, so many of them
or up to an end; tokens are counted as each server counts them. A server runs alone. Rounds are taken in turns, and the
best of each counts. llama.cpp has as many slots as there are clients and both cores; of transformers, one at a time and
continuous batching are tried, and the better one counts. `engine` is our engine without HTTP on the same prompts.
"""

import argparse
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from serve_process import Bars, Connection, once, percentile

from clearformer.bench.inputs import sentences
from clearformer.generate.options import GenerationOptions, merge

PATIENCE = 400.0  # seconds for a server to start, and for one answer
CORES = str(len(os.sched_getaffinity(0)))
SLOT = 512  # tokens of a text, the prompt included
WRITTEN = re.compile(rb'"completion_tokens": ?([0-9]+)')
EACH = {1: 24, 8: 12, 32: 6}  # requests of a client
OURS, LLAMA, THEIRS, ENGINE = "clearformer", "llama.cpp", "transformers", "engine"
XLLAMA = """
import sys, time, xllamacpp as x
model, slots, cores, slot, port = sys.argv[1], *map(int, sys.argv[2:])
p = x.CommonParams()
p.model.path, p.n_parallel, p.n_ctx, p.port, p.cont_batching = model, slots, slots * slot, port, True
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = cores
p.kv_unified, p.n_gpu_layers, p.warmup = False, 0, True
server = x.Server(p)
time.sleep(1e9)
"""


class Load(NamedTuple):
    tokens_a_second: float
    first: list[float]  # seconds to the first token of every request


def prompts_for(count: int, turn: int) -> list[str]:
    """Some 64 tokens each, never the same twice, so that no prefix cache helps."""
    texts = sentences()
    return [
        f"{turn}.{n} " + " ".join(texts[(turn * 61 + n * 7 + k) % len(texts)] for k in range(5)) for n in range(count)
    ]


async def load(port: int, prompts: list[str], clients: int, tokens: int, model: str) -> Load:
    left, first, written = iter(prompts), [], [0]

    async def client() -> None:
        made = Connection(port)
        for prompt in left:
            body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0.0, "stream": True}
            body |= {"stream_options": {"include_usage": True}}
            try:
                answer = await asyncio.wait_for(made.ask("POST", "/v1/completions", body), PATIENCE)
            except ConnectionError:  # closed since the last answer: as all clients do, another connection is made
                made = Connection(port)
                answer = await asyncio.wait_for(made.ask("POST", "/v1/completions", body), PATIENCE)
            if answer.status != 200:
                raise RuntimeError(f"{answer.status}: {answer.body[:500]!r}")
            first.append(answer.first)
            found = WRITTEN.findall(answer.body)
            written[0] += int(found[-1]) if found else tokens
        await made.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return Load(written[0] / (time.perf_counter() - began), first)


@contextmanager
def started(command: list[str], port: int, path: str = "/health") -> Iterator[int]:
    """A server, from when it answers."""
    environment = os.environ | {"OMP_NUM_THREADS": CORES, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                if asyncio.run(asyncio.wait_for(once(port, "GET", path), 5)).status == 200:
                    break
            except (OSError, TimeoutError):
                pass
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{' '.join(command)[:200]} did not start")
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def ours(given: argparse.Namespace, port: int, switch: float | None = None) -> list[str]:
    words = ["serve", "--model", f"model={given.folder}", "--port", str(port), "--no-access-log"]
    words += ["--precision", given.precision]
    if switch is None:
        return [sys.executable, "-m", "clearformer", *words]
    start = f"import clearformer.serve.run as r; r.SWITCH = {switch}; from clearformer.cli import main; main()"
    return [sys.executable, "-c", start, *words]


def llama(given: argparse.Namespace, port: int, clients: int) -> list[str]:
    slots, slot = str(clients), str(SLOT)
    if "python" in Path(given.llama).name:
        return [given.llama, "-c", XLLAMA, str(given.gguf), slots, CORES, slot, str(port)]
    return [given.llama, "-m", str(given.gguf), "--port", str(port), "-np", slots, "-c", str(clients * SLOT),
            "-t", CORES, "-tb", CORES, "-cb", "--no-ui"]  # fmt: skip


def transformers(given: argparse.Namespace, port: int, batching: bool) -> list[str]:
    more = ["--continuous-batching", "--attn-implementation", "sdpa"] if batching else []
    return [given.transformers, "serve", str(given.folder), "--port", str(port), "--device", "cpu", *more]


def engine(completer: Any, prompts: list[str], clients: int, tokens: int) -> float:
    """Tokens a second of our engine alone, with so many texts under way."""
    left, over, lock = iter(prompts), threading.Semaphore(0), threading.Lock()
    written = [0]
    options = merge(completer.own, GenerationOptions(max_new_tokens=tokens, temperature=0.0))

    def begin() -> None:
        with lock:
            prompt = next(left, None)
        if prompt is None:
            over.release()
            return
        asked = completer.request(completer.prompt_ids(prompt, 1), options)
        completer.engine.submit(asked, done)

    def done(handle: Any) -> None:
        written[0] += len(handle.result()[0].tokens)
        threading.Thread(target=begin).start()  # the engine's own thread has others to serve

    began = time.perf_counter()
    for _ in range(clients):
        begin()
    for _ in range(clients):
        over.acquire()
    return written[0] / (time.perf_counter() - began)


def measured(port: int, clients: int, turn: int, tokens: int, model: str, count: int | None = None) -> Load:
    prompts = prompts_for(count or clients * EACH.get(clients, 3), turn)
    return asyncio.run(load(port, prompts, clients, tokens, model))


def record(given: argparse.Namespace) -> dict[str, dict[int, Load]]:
    """The best round of each."""
    found: dict[str, dict[int, Load]] = {}

    def keep(name: str, clients: int, made: Load) -> None:
        best = found.setdefault(name, {}).get(clients)
        found[name][clients] = made if best is None or made.tokens_a_second > best.tokens_a_second else best
        first = [1000 * percentile(made.first, share) for share in (0.5, 0.99)]
        print(f"{name:14}{clients:>4} clients {made.tokens_a_second:>8.0f} tokens/s"
              f"   first token {first[0]:.0f} ms, p99 {first[1]:.0f} ms", flush=True)  # fmt: skip

    for turn in range(given.rounds):
        with started(ours(given, port := free_port()), port):
            measured(port, 1, 900 + turn, 8, "model", 2)  # warm
            for clients in given.clients:
                keep(OURS, clients, measured(port, clients, 10 * turn + clients, given.tokens, "model"))
        if given.llama:
            for clients in given.clients:
                with started(llama(given, port := free_port(), clients), port):
                    measured(port, 1, 900 + turn, 8, "model", 2)
                    keep(LLAMA, clients, measured(port, clients, 10 * turn + clients, given.tokens, "model"))
        if given.engine:
            _engine(given, turn, lambda clients, speed: keep(ENGINE, clients, Load(speed, [])))
    for batching in (False, True) if given.transformers else ():  # several times slower: one round, fewer requests
        name = str(given.folder)
        try:
            with started(transformers(given, port := free_port(), batching), port):
                measured(port, 1, 900, 8, name, 1)
                for clients in given.clients:
                    made = measured(port, clients, 100 + clients, given.tokens, name, max(2, clients))
                    keep(THEIRS, clients, made)
        except (OSError, RuntimeError, TimeoutError) as error:
            print(f"{THEIRS}{' with continuous batching' if batching else ''}: {error!r}", flush=True)
    if given.switch:
        with started(ours(given, port := free_port(), given.switch), port):
            measured(port, 1, 900, 8, "model", 2)
            for clients in given.clients:
                keep(f"switch {given.switch}", clients, measured(port, clients, clients, given.tokens, "model"))
    return found


def _engine(given: argparse.Namespace, turn: int, keep: Callable[[int, float], None]) -> None:
    """In a process of its own, which ends before the next contender begins."""
    command = [sys.executable, __file__, "--alone", str(turn), "--folder", str(given.folder), "--tokens",
               str(given.tokens), "--precision", given.precision, "--clients", *map(str, given.clients)]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    for clients, speed in json.loads(done.stdout.splitlines()[-1]):
        keep(clients, speed)


def alone(given: argparse.Namespace) -> None:
    import clearformer as cf

    completer: Any = cf.load(given.folder, precision=given.precision)
    engine(completer, prompts_for(2, 900 + given.alone), 1, 8)
    made = []
    for clients in given.clients:
        prompts = prompts_for(clients * EACH.get(clients, 3), 10 * given.alone + clients)
        made.append((clients, engine(completer, prompts, clients, given.tokens)))
    print(json.dumps(made))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--folder", type=Path, required=True)
    asked.add_argument("--gguf", type=Path)
    asked.add_argument("--llama")
    asked.add_argument("--transformers")
    asked.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    asked.add_argument("--tokens", type=int, default=64)
    asked.add_argument("--rounds", type=int, default=2)
    asked.add_argument("--precision", default="int8")
    asked.add_argument("--no-engine", dest="engine", action="store_false")
    asked.add_argument("--switch", type=float, help="also with another switch interval of Python's threads")
    asked.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.alone is not None:
        alone(given)
        return
    found, bars = record(given), Bars()
    for clients in given.clients:
        for name, loads in found.items():
            if (made := loads.get(clients)) is None:
                continue
            said = f"{made.tokens_a_second:.0f} tokens/s"
            if made.first:
                said += " · first {:.0f} ms, p99 {:.0f} ms".format(
                    *(1000 * percentile(made.first, share) for share in (0.5, 0.99))
                )
            bars.told(f"{clients} clients: {name}", said)
        one = found[OURS][clients]
        if LLAMA in found:
            other = found[LLAMA][clients]
            bars.least(
                f"{clients} clients: tokens/s, times llama.cpp's", one.tokens_a_second / other.tokens_a_second, 1.2
            )
            first = [percentile(each.first, 0.5) for each in (one, other)]
            bars.most(f"{clients} clients: first token, of llama.cpp's", first[0] / first[1], 1.0)
        if clients in found.get(THEIRS, {}):
            other = found[THEIRS][clients]
            bars.told(f"{clients} clients: tokens/s, times transformers'",
                      f"{one.tokens_a_second / other.tokens_a_second:.1f}")  # fmt: skip
        if ENGINE in found:
            share = one.tokens_a_second / found[ENGINE][clients].tokens_a_second
            bars.least(f"{clients} clients: of the engine's own tokens/s", share, 0.95)
    bars.end()


if __name__ == "__main__":
    main()
