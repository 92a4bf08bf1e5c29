"""Many mixed requests: memory does not grow with their number.

    python stress/serve_soak.py [--requests 100000] [--plant]

Texts, streams, vectors, translations, tokens, mistakes and looks at the metrics, by some clients at a time. A tenth of
them warms the server up; what the others add to its memory is the growth. With --plant the server keeps a little of
each request (serve_leak.py), and the same measure must find it.
"""

import argparse
import asyncio
import os
import random
from collections import Counter
from typing import Any

from serve_process import WORDS, Bars, Connection, completion, once, server, settled

CLIENTS = 8
MOST = 5.0  # megabytes of growth
LEAK = 20  # megabytes that a planted leak comes to
PROMPTS = 300  # different ones: what was read is kept in the prefix cache, which is therefore filled first


def a_request(chance: random.Random) -> tuple[str, str, Any, int]:
    """A method, a path, a body, and the status that is right."""
    number, words = chance.randrange(PROMPTS), " ".join(chance.choices(WORDS, k=chance.randint(1, 12)))
    kind = chance.random()
    if kind < 0.3:
        return "POST", "/v1/completions", completion(number, chance.randint(1, 8)), 200
    if kind < 0.45:
        return "POST", "/v1/completions", completion(number, chance.randint(1, 8), stream=True), 200
    if kind < 0.55:
        return "POST", "/v1/completions", completion(number, 4, temperature=1.0, seed=number, n=2), 200
    if kind < 0.7:
        return "POST", "/v1/embeddings", {"model": "sentences", "input": [words, "one more"]}, 200
    if kind < 0.78:
        return "POST", "/translate", {"q": "Good morning.", "source": "en", "target": "de"}, 200
    if kind < 0.86:
        return "POST", "/tokenize", {"model": "tiny", "text": words}, 200
    if kind < 0.92:
        return "POST", "/v1/completions", b'{"model": "tiny", "prompt": ', 400
    if kind < 0.95:
        return "POST", "/v1/completions", {"model": f"none-{chance.random()}", "prompt": "x"}, 404
    if kind < 0.97:
        return "GET", f"/nowhere/{chance.random()}", None, 404
    return "GET", chance.choice(["/metrics", "/health", "/v1/models"]), None, 200


async def ask(port: int, count: int, seed: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    left = iter(range(count))

    async def client(number: int) -> None:
        made, chance = Connection(port), random.Random(1_000 * seed + number)
        for _ in left:
            method, path, body, wanted = a_request(chance)
            answer = await made.ask(method, path, body)
            seen["right" if answer.status == wanted else f"{path} {answer.status}, not {wanted}"] += 1
        await made.close()

    await asyncio.gather(*(client(n) for n in range(CLIENTS)))
    await settled(port)
    return seen


async def main(count: int, plant: bool) -> None:
    bars = Bars()
    if plant:
        os.environ["LEAK_BYTES"] = str(LEAK * 2**20 // count)
    with server("en-de", "sentences", flags=("--no-access-log",), plant="serve_leak" if plant else None) as up:
        for number in range(PROMPTS):  # the longest that is asked for: all that the prefix cache will ever hold
            await once(up.port, "POST", "/v1/completions", completion(number, 8))
        await ask(up.port, max(500, count // 10), 0)
        before = up.memory
        seen: Counter[str] = Counter()
        parts = 10
        for part in range(parts):
            seen += await ask(up.port, count // parts, part + 1)
            print(
                f"{(part + 1) * (count // parts):>9,} requests  {up.memory:8.1f} MB  {up.memory - before:+.1f}",
                flush=True,
            )
        growth = up.memory - before
        bars.told("requests", f"{seen.total():,}")
        for name, number in seen.items():
            if name != "right":
                bars.told(f"  {name}", f"{number:,}")
        bars.most("wrong statuses", seen.total() - seen["right"], 0)
        if plant:
            bars.least("growth of memory, with a leak planted", growth, MOST, " MB")
        else:
            bars.most("growth of memory", growth, MOST, " MB")
        bars.most("exit code", abs(up.end()), 0)
    bars.end()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--requests", type=int, default=100_000)
    words.add_argument("--plant", action="store_true")
    given = words.parse_args()
    asyncio.run(main(given.requests, given.plant))
