"""Whether other processes use the cores: threads that wait for each other then lose more than they gain."""

import time

LOST = 0.4  # the share of its time that a thread may be without a core before it is to work alone
WINDOW = 0.02  # seconds that are looked back on
ALONE, LONGEST = 0.1, 1.6  # seconds: at first, and at most


class Contention:
    """Told of every run how long it took and for how much of that it had a core. What it answers holds for a while:
    longer each time that another try with all threads shows the same."""

    def __init__(self, lost: float = LOST, alone: float = ALONE, longest: float = LONGEST):
        self.most, self.first, self.longest = lost, alone, longest
        self.until, self.pause, self.lost = 0.0, alone, 0.0

    def alone(self) -> bool:
        """Whether one thread should do what several could."""
        return bool(self.until) and time.perf_counter() < self.until

    def saw(self, wall: float, cpu: float) -> None:
        """A run with several threads took so long, and had a core for so long."""
        if wall <= 0:
            return
        self.lost += min(1.0, wall / WINDOW) * (max(0.0, 1 - cpu / wall) - self.lost)
        if self.lost > self.most:
            now = time.perf_counter()
            again = self.until and now - self.until < self.pause
            self.pause = min(2 * self.pause, self.longest) if again else self.first
            self.until, self.lost = now + self.pause, 0.0
