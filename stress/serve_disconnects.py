"""Clients that go away in the middle: nothing is computed on for them, and nothing of them is left.

    python stress/serve_disconnects.py [--count 1000] [--seed 0]

Half of them have their answer streamed. They go at any moment: with half a body sent, while they wait, while they read;
some close, some reset. After every round the server must be idle at once, by its own metrics and by the processor time
that it uses; at the end memory, files and threads must be what they were, and an answer the one from the beginning.
"""

import argparse
import asyncio
import random
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

from serve_process import Bars, Server, completion, once, percentile, request, server, settled

AT_A_TIME = 25
TOKENS = 2_000  # that each would take seconds for
STEP = 0.05  # seconds that a step may take on a busy machine, of which two are allowed
LOOK = 0.5  # seconds in which an idle server is watched


def threads(up: Server) -> int:
    return len(list(Path(f"/proc/{up.process.pid}/task").iterdir()))


async def go_away(port: int, number: int, chance: random.Random) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = request("POST", "/v1/completions", completion(number, TOKENS, stream=number % 2 == 0))
    if chance.random() < 0.1:
        sent = sent[: chance.randrange(1, len(sent))]
    writer.write(sent)
    await writer.drain()
    if chance.random() < 0.7:
        await asyncio.sleep(chance.random() * 0.3)
    if number % 2 == 0 and chance.random() < 0.5 and len(sent) > 300:
        with suppress(TimeoutError):
            await asyncio.wait_for(reader.read(100), 1.0)
    if chance.random() < 0.5:
        made = writer.get_extra_info("socket")
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()


async def main(count: int, seed: int) -> None:
    bars, chance = Bars(), random.Random(seed)
    with server(flags=("--no-access-log", "--body-seconds", "2")) as up:
        reference = (await once(up.port, "POST", "/v1/completions", completion(1))).json["choices"]
        idle: list[float] = []
        used: list[float] = []
        before = (0.0, 0, 0)
        for first in range(0, count, AT_A_TIME):
            await asyncio.gather(*(go_away(up.port, n, chance) for n in range(first, first + AT_A_TIME)))
            begun = time.perf_counter()
            await settled(up.port)
            idle.append(time.perf_counter() - begun)
            if first // AT_A_TIME % 4 == 3:
                at = up.seconds
                await asyncio.sleep(LOOK)
                used.append((up.seconds - at) / LOOK)
            if first // AT_A_TIME == min(3, count // AT_A_TIME - 1):  # by then all threads are there
                before = (up.memory, up.files, threads(up))
        await asyncio.sleep(3.0)  # bodies that were never sent have their deadline
        again = (await once(up.port, "POST", "/v1/completions", completion(1))).json["choices"]
        bars.told("disconnects", f"{count:,}")
        bars.most("idle after the last has gone, p99", 1000 * percentile(idle, 0.99), 1000 * 2 * STEP + 50, " ms")
        bars.most("of a core, while idle", max(used, default=0.0), 0.2)
        bars.most("memory that came on top", up.memory - before[0], 5, " MB")
        bars.most("files that are left", up.files - before[1], 1)
        bars.most("threads that are left", threads(up) - before[2], 2)
        bars.most("answers that have changed", int(again != reference), 0)
        bars.most("exit code", abs(up.end()), 0)
    bars.end()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--count", type=int, default=1_000)
    words.add_argument("--seed", type=int, default=0)
    given = words.parse_args()
    asyncio.run(main(given.count, given.seed))
