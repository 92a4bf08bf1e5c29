"""How much work is let in: a bound on the tokens of all that waits or runs; what is over it is refused at once."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from clearformer.serve.errors import Overloaded

MEMORY = 10.0  # seconds over which the speed is measured
SMALL = 16  # such a part of the queue is a request that tells, where it is refused, that others would be too
SHARE = 0.75  # of the queue that one of several models may have, so that the others are never kept out


class Admission:
    def __init__(self, most: int, models: int = 1):
        self.most, self.of_one = most, most if models < 2 else int(SHARE * most)
        self.tokens, self.requests = 0, 0
        self.left = 0  # how many have left the queue so far
        self.held: Counter[str] = Counter()  # tokens of each model
        self._lock = threading.Lock()
        self._rate, self._seen = 1_000.0, time.monotonic()  # tokens a second that were finished lately
        self._finished = 0

    @contextmanager
    def enter(self, tokens: int, model: str = "") -> Iterator[None]:
        """Hold so many tokens of the queue. A request that has the queue to itself may be larger than the bound."""
        with self._lock:
            full = self.tokens > 0 and self.tokens + tokens > self.most
            unfair = self.held[model] > 0 and self.held[model] + tokens > self.of_one
            if full or unfair:
                over = max(self.tokens + tokens - self.most, self.held[model] + tokens - self.of_one)
                small = SMALL * tokens <= (self.most if full else self.of_one)
                raise Overloaded(over / max(1.0, self._speed()), self.left if small else None)
            self.tokens += tokens
            self.held[model] += tokens
            self.requests += 1
        try:
            yield
        finally:
            with self._lock:
                self.tokens -= tokens
                self.held[model] -= tokens
                self.requests -= 1
                self.left += 1
                self._finished += tokens

    def _speed(self) -> float:
        now = time.monotonic()
        passed = now - self._seen
        if passed > 1.0 and self._finished:
            share = min(1.0, passed / MEMORY)
            self._rate += share * (self._finished / passed - self._rate)
            self._finished, self._seen = 0, now
        return self._rate
