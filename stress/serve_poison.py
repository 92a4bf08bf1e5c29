"""One request in a hundred is poison: it is refused or ends by itself, and changes no other answer.

    python stress/serve_poison.py [--requests 5000] [--seed 0]

The answers of all good requests are first had alone, one after the other; then again among the others.
"""

import argparse
import asyncio
import json
import random
from collections import Counter
from typing import Any

from serve_process import WORDS, Bars, Connection, completion, once, request, server, settled

CLIENTS = 16
GOOD = 60  # different ones
SHARE = 0.01
PASSING = ("id", "created", "prompt_tokens_details")


def good(number: int) -> tuple[str, Any]:
    words = " ".join(WORDS[(number + k) % len(WORDS)] for k in range(5))
    return [
        ("/v1/completions", completion(number, 12)),
        ("/v1/completions", completion(number, 12, temperature=1.1, seed=number, logprobs=2)),
        ("/v1/embeddings", {"model": "sentences", "input": words}),
        ("/translate", {"q": f"I see {number} dogs.", "source": "en", "target": "de"}),
    ][number % 4]


POISON: list[tuple[str, Any]] = [
    ("/v1/completions", b'{"model": "tiny", "prompt": "\\ud800"}'),
    ("/v1/completions", b"\xff\xfe\x00"),
    ("/v1/completions", b"[" * 200_000),
    ("/v1/completions", b'{"model": "tiny", "prompt": "a", "temperature": NaN}'),
    ("/v1/completions", b'{"model": "tiny", "prompt": "a", "temperature": 1e999}'),
    ("/v1/completions", completion(1, 10**9)),
    ("/v1/completions", completion(1, 5, n=10**6)),
    ("/v1/completions", completion(1, 5, stop=["x"] * 1_000)),
    ("/v1/completions", completion(1, 5, logit_bias={"999999999": 100})),
    ("/v1/completions", {"model": "tiny", "prompt": [-1, 2**40], "max_tokens": 3}),
    ("/v1/completions", {"model": "tiny", "prompt": "the " * 100_000}),
    ("/v1/completions", {"model": "tiny", "prompt": ""}),
    ("/v1/completions", {"model": "../../etc/passwd", "prompt": "a"}),
    ("/v1/completions", {"model": "tiny", "prompt": {"a": 1}}),
    ("/v1/embeddings", {"model": "sentences", "input": [[1, 2, 3]]}),
    ("/v1/embeddings", {"model": "sentences", "input": ["good", ""]}),
    ("/v1/embeddings", {"model": "sentences", "input": "word " * 50_000}),
    ("/embed", {"inputs": ["a", None]}),
    ("/translate", {"q": "\x00\x01\x7f", "source": "en", "target": "de"}),
    ("/translate", {"q": "word " * 20_000, "source": "en", "target": "xx"}),
]


def still(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: still(value) for name, value in content.items() if name not in PASSING}
    return [still(each) for each in content] if isinstance(content, list) else content


async def leaves(port: int, chance: random.Random) -> None:
    """A client that goes in the middle is poison too."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request("POST", "/v1/completions", completion(chance.randrange(1_000), 500)))
    await writer.drain()
    await asyncio.sleep(chance.random() * 0.05)
    writer.transport.abort()


async def main(count: int, seed: int) -> None:
    bars = Bars()
    with server("en-de", "sentences", flags=("--no-access-log",)) as up:
        alone = []
        for number in range(GOOD):
            path, body = good(number)
            answer = await once(up.port, "POST", path, body)
            assert answer.status == 200, answer
            alone.append(json.dumps(still(answer.json)))
        seen: Counter[str] = Counter()
        left = iter(range(count))

        async def client(name: int) -> None:
            made, chance = Connection(up.port), random.Random(f"{seed} {name}")
            for _ in left:
                if chance.random() < SHARE:
                    seen["poisoned"] += 1
                    if chance.random() < 0.2:
                        await leaves(up.port, chance)
                        continue
                    path, body = chance.choice(POISON)
                    status = (await once(up.port, "POST", path, body)).status
                    seen[f"poison answered {status}"] += 1
                    seen["poison answered with 5xx"] += status >= 500
                else:
                    number = chance.randrange(GOOD)
                    answer = await made.ask("POST", *good(number))
                    same = answer.status == 200 and json.dumps(still(answer.json)) == alone[number]
                    seen["as alone" if same else "changed"] += 1
            await made.close()

        await asyncio.gather(*(client(n) for n in range(CLIENTS)))
        for path, body in POISON:  # each at least once
            status = (await once(up.port, "POST", path, body)).status
            seen["poison answered with 5xx"] += status >= 500
            if status >= 500:
                print(path, str(body)[:100], status)
        await settled(up.port)
        for name, number in sorted(seen.items()):
            if number and name not in ("changed", "poison answered with 5xx"):
                bars.told(name, f"{number:,}")
        bars.most("good answers that are not as alone", seen["changed"], 0)
        bars.most("poison answered with 5xx", seen["poison answered with 5xx"], 0)
        bars.most("exit code", abs(up.end()), 0)
    bars.end()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--requests", type=int, default=5_000)
    words.add_argument("--seed", type=int, default=0)
    given = words.parse_args()
    asyncio.run(main(given.requests, given.seed))
