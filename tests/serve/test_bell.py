"""Threads ring, the loop hears: at once what is urgent, the rest together."""

import asyncio
import threading

import pytest

from clearformer.serve import bell as bells
from clearformer.serve.bell import Bell
from tests.serve.running import PATIENCE


def rung(bell: Bell, event: asyncio.Event, urgent: bool) -> None:
    thread = threading.Thread(target=bell.ring, args=(event,), kwargs={"urgent": urgent})
    thread.start()
    thread.join()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bells, "TOGETHER", 3600.0)


def test_what_is_urgent_is_heard_at_once_and_all_else_with_it(waits: None) -> None:
    async def main() -> None:
        bell, first, step = Bell(asyncio.get_running_loop()), asyncio.Event(), asyncio.Event()
        bell.heard = bell.loop.time()
        rung(bell, step, urgent=False)
        await asyncio.sleep(0.05)
        assert not step.is_set()  # not before its time
        rung(bell, first, urgent=True)
        await asyncio.wait_for(first.wait(), PATIENCE)
        assert step.is_set()

    asyncio.run(main())


def test_what_is_not_urgent_is_heard_in_time() -> None:
    async def main() -> None:
        bell, step = Bell(asyncio.get_running_loop()), asyncio.Event()
        for _ in range(3):
            rung(bell, step, urgent=False)
            await asyncio.wait_for(step.wait(), PATIENCE)
            step.clear()

    asyncio.run(main())


def test_it_is_heard_at_once_where_nothing_was_heard_for_long(waits: None) -> None:
    async def main() -> None:
        bell, step = Bell(asyncio.get_running_loop()), asyncio.Event()
        bell.heard = bell.loop.time() - 3600.0
        rung(bell, step, urgent=False)
        await asyncio.wait_for(step.wait(), PATIENCE)

    asyncio.run(main())
