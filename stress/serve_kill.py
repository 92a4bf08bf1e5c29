"""Kill the server with SIGKILL while it serves, and start it again: its next answer is right, no file is half-written.

python stress/serve_kill.py [--kills 10] [--seed 0]
"""

import argparse
import asyncio
import random
import signal
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from serve_process import Bars, Connection, Server, completion, once, tiny

CLIENTS = 8


def state(folder: Path) -> dict[str, str]:
    """Every file of a folder, by its content."""
    files = (each for each in sorted(folder.rglob("*")) if each.is_file())
    return {str(each.relative_to(folder)): sha256(each.read_bytes()).hexdigest() for each in files}


async def load(port: int) -> None:
    """Keep it busy until it is gone."""

    async def client(number: int) -> None:
        made = Connection(port)
        with suppress(OSError):
            while True:
                await made.ask("POST", "/v1/completions", completion(number, 50, stream=number % 2 == 0))
        await made.close()

    await asyncio.gather(*(client(n) for n in range(CLIENTS)))


async def main(kills: int, seed: int) -> None:
    bars, chance = Bars(), random.Random(seed)
    wrong = changed = 0
    with tempfile.TemporaryDirectory() as home:
        folder = tiny(Path(home) / "tiny")
        before = state(Path(home))
        reference = None
        for _ in range(kills + 1):
            up = Server([f"tiny={folder}"], "--no-access-log")
            answer = await once(up.port, "POST", "/v1/completions", completion(3, 24))
            found = answer.json["choices"]
            reference = reference or found
            wrong += answer.status != 200 or found != reference
            busy = asyncio.create_task(load(up.port))
            await asyncio.sleep(chance.random() * 0.8)
            up.end(signal.SIGKILL)
            await busy
            changed += state(Path(home)) != before
    bars.told("kills", kills + 1)
    bars.most("first answers that are wrong", wrong, 0)
    bars.most("times that a file was changed or left", changed, 0)
    bars.end()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--kills", type=int, default=10)
    words.add_argument("--seed", type=int, default=0)
    given = words.parse_args()
    asyncio.run(main(given.kills, given.seed))
