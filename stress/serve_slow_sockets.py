"""Slow sockets: silent ones, headers and bodies that drip or stall. Each is closed in time, and others do not notice.

python stress/serve_slow_sockets.py [--sockets 500] [--seconds 12]
"""

import argparse
import asyncio
import time

from serve_process import Bars, Connection, completion, percentile, server

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
KINDS = {  # what is sent at once, and what drips after it
    "silent": (b"", b""),
    "headers that stall": (HEAD, b""),
    "headers that drip": (HEAD + b"x-slow: ", b"x"),
    "bodies that stall": (HEAD + b"content-length: 1000\r\n\r\n{", b""),
    "bodies that drip": (HEAD + b"content-length: 100000\r\n\r\n{", b" "),
    "chunks that drip": (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}
EVERY = 0.5  # seconds between two drips
LONGEST = 20.0  # seconds after which a socket is given up


async def slow(port: int, kind: str, taken: dict[str, list[float]]) -> None:
    first, drip = KINDS[kind]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    begun = time.perf_counter()
    writer.write(first)
    while time.perf_counter() - begun < LONGEST:
        try:
            if not await asyncio.wait_for(reader.read(1_000), EVERY):
                break
        except TimeoutError:
            writer.write(drip)
        except ConnectionError:
            break
    taken[kind].append(time.perf_counter() - begun)
    writer.close()


async def normal(port: int, seconds: float, clients: int = 4) -> list[float]:
    """Times of ordinary requests, asked one after the other by some clients."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        made = Connection(port)
        while time.perf_counter() < end:
            answer = await made.ask("POST", "/v1/completions", completion(number * 10_000 + len(times)))
            assert answer.status == 200, answer
            times.append(answer.seconds)
            await asyncio.sleep(0.01)
        await made.close()

    await asyncio.gather(*(client(n) for n in range(clients)))
    return times


async def main(sockets: int, seconds: float) -> None:
    bars = Bars()
    with server(flags=("--no-access-log",)) as up:
        await normal(up.port, 2.0)
        quiet = await normal(up.port, seconds)
        taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
        kinds = list(KINDS)
        tasks = [asyncio.create_task(slow(up.port, kinds[n % len(kinds)], taken)) for n in range(sockets)]
        await asyncio.sleep(0.5)  # all of them are there
        beside = await normal(up.port, seconds)
        await asyncio.gather(*tasks)
        bars.told("slow sockets", f"{sockets:,}")
        for kind, times in taken.items():
            bars.most(f"  {kind}, closed after", max(times), 10, " s")
        bars.told(
            "requests, p50 and p99 without them",
            f"{1000 * percentile(quiet, 0.5):.1f} {1000 * percentile(quiet, 0.99):.1f} ms",
        )
        bars.told(
            "requests, p50 and p99 beside them",
            f"{1000 * percentile(beside, 0.5):.1f} {1000 * percentile(beside, 0.99):.1f} ms",
        )
        bars.most("p99 beside them, times that without", percentile(beside, 0.99) / percentile(quiet, 0.99), 2)
        bars.most("exit code", abs(up.end()), 0)
    bars.end()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--sockets", type=int, default=500)
    words.add_argument("--seconds", type=float, default=12.0)
    given = words.parse_args()
    asyncio.run(main(given.sockets, given.seconds))
