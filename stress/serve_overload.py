"""Ten times more than the server can do: it goes on as fast as before, says no at once, and loses nothing it took.

    python stress/serve_overload.py [--seconds 120] [--times 10]

First its peak is measured with clients that wait for each answer; then requests come at `times` that rate, whether
answered or not. Texts are translations of several sentences by the bundled model.
"""

import argparse
import asyncio
import time
from collections import Counter

from serve_process import Bars, Connection, Server, percentile, server, settled

CLIENTS = 16
IN_FLIGHT = 400  # requests that this client has under way at most
TEXT = "I have to go home now. The old man lives near the river. Do you know when the train leaves? It is cold today."
QUEUE = 8_192  # tokens: some seconds of work
TICK = 0.005  # seconds between two looks at what is to be sent


def body(number: int) -> dict[str, object]:
    return {"q": f"{TEXT} We have {number} apples.", "source": "en", "target": "de"}


async def peak(port: int, seconds: float) -> float:
    """Answers a second, with as many clients as keep it busy."""
    count, end = 0, time.perf_counter() + seconds

    async def client(number: int) -> None:
        nonlocal count
        made = Connection(port)
        while time.perf_counter() < end:
            answer = await made.ask("POST", "/translate", body(number * 100_000 + count))
            count += answer.status == 200
        await made.close()

    begun = time.perf_counter()
    await asyncio.gather(*(client(n) for n in range(CLIENTS)))
    return count / (time.perf_counter() - begun)


class Flood:
    """Requests at a rate, whether answered or not, and what became of them."""

    def __init__(self, up: Server):
        self.up = up
        self.free = [Connection(up.port) for _ in range(IN_FLIGHT)]
        self.ends: Counter[str] = Counter()
        self.refused: list[float] = []
        self.answered: list[float] = []
        self.memory: list[float] = []
        self.finished = 0  # answers within the time of the flood

    async def one(self, made: Connection, number: int) -> None:
        try:
            answer = await made.ask("POST", "/translate", body(number))
            status = answer.status
            self.ends[str(status)] += 1
            if status == 429:
                self.refused.append(answer.seconds)
                self.ends["refused without retry-after"] += b"\r\nretry-after: " not in answer.head
            elif status == 200:
                self.answered.append(answer.seconds)
                self.ends["answers that are none"] += not answer.json["translatedText"]
        except OSError:
            self.ends["lost"] += 1
            await made.close()
        self.free.append(made)

    async def run(self, rate: float, seconds: float) -> None:
        tasks: set[asyncio.Task[None]] = set()
        begun, sent = time.perf_counter(), 0
        while (now := time.perf_counter() - begun) < seconds:
            while sent < now * rate:
                sent += 1
                if not self.free:
                    self.ends["not sent, for this client has too many under way"] += 1
                    continue
                task = asyncio.create_task(self.one(self.free.pop(), sent))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            if len(self.memory) < now:
                self.memory.append(self.up.memory)
            await asyncio.sleep(TICK)
        self.finished = len(self.answered)
        if tasks:
            await asyncio.wait(tasks, timeout=60)
        self.ends["lost"] += len(tasks)
        for each in self.free:
            await each.close()


async def main(seconds: float, times: float) -> None:
    bars = Bars()
    with server("en-de", flags=("--queue-tokens", str(QUEUE), "--no-access-log")) as up:
        await peak(up.port, 2.0)  # warm
        best = await peak(up.port, max(3.0, min(15.0, seconds / 4)))
        before, used, own = up.memory, up.seconds, time.process_time()
        flood = Flood(up)
        await flood.run(times * best, seconds)
        used, own = up.seconds - used, time.process_time() - own
        await settled(up.port)
        ends = flood.ends
        bars.told("peak, requests/s", f"{best:.1f}")
        bars.told("offered, requests/s", f"{times * best:.1f}")
        for name, count in sorted(ends.items()):
            if count:
                bars.told(f"  {name}", f"{count:,}")
        bars.told("processor time of the server, of the client", f"{used:.1f} s, {own:.1f} s")
        bars.least("answers under overload, of the peak", flood.finished / seconds / best, 0.9)
        bars.told("refusals, p50", f"{1000 * percentile(flood.refused, 0.5):.1f} ms")
        bars.most("refusals, p99", 1000 * percentile(flood.refused, 0.99), 100, " ms")
        bars.told("answers, p50", f"{percentile(flood.answered, 0.5):.2f} s")
        bars.most("memory that came on top", max(flood.memory) - before, 64, " MB")
        bars.most("lost, empty, or without retry-after",
                  ends["lost"] + ends["answers that are none"] + ends["refused without retry-after"], 0)  # fmt: skip
        others = {name for name in ends if name.isdigit()} - {"200", "429"}
        bars.most("other statuses", sum(ends[name] for name in others), 0)
        bars.most("exit code", abs(up.end()), 0)
    bars.end()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seconds", type=float, default=120.0)
    words.add_argument("--times", type=float, default=10.0)
    given = words.parse_args()
    asyncio.run(main(given.seconds, given.times))
