"""How the event loop hears of threads: many ring, it wakes once and looks at all that is new."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

TOGETHER = 0.02  # seconds within which what is not urgent is looked at together: to look takes time from the engine
EACH = 0.001  # and so many more for each that is looked at, which takes a twentieth of that: never more than this share


class Bell:
    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop = loop
        self.news: deque[asyncio.Event] = deque()
        self.rung = self.noted = False  # and not yet heard: what is urgent, what is not
        self.heard, self.many = 0.0, 0  # when, by the loop's clock, and how many

    def ring(self, event: asyncio.Event, *, urgent: bool = True) -> None:
        """From any thread: let the event be set, together with all others that are rung for before the loop wakes. It
        wakes at once for what is urgent, and for the rest when it has not done so for a while."""
        self.news.append(event)
        if urgent and not self.rung:
            self.rung = True
            self._call(self._heard)
        elif not urgent and not self.noted:
            self.noted = True
            self._call(self._soon)

    def _call(self, what: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            self.loop.call_soon_threadsafe(what)

    def _soon(self) -> None:
        self.loop.call_at(self.heard + TOGETHER + EACH * self.many, self._looked)

    def _looked(self) -> None:
        self.noted = False  # first, so that what comes now is noted again
        self._set()

    def _heard(self) -> None:
        self.rung = False
        self._set()

    def _set(self) -> None:
        events = set()
        while self.news:
            events.add(self.news.popleft())
        for event in events:
            event.set()
        self.heard, self.many = self.loop.time(), len(events)


_bells: list[Bell] = []  # of the loop that serves: there is one


def bell() -> Bell:
    """The bell of the loop that runs."""
    loop = asyncio.get_running_loop()
    if not _bells or _bells[0].loop is not loop:
        _bells[:] = [Bell(loop)]
    return _bells[0]
