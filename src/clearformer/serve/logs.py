"""The log: a JSON object a line on stderr, with what happened, when and how long it took, and never a text of a user.

Lines are written by a thread of their own: who does not read the log holds up no request. What cannot be written in
time is left out, and counted.
"""

import json
import logging
import queue
import sys
import threading
import time
import traceback
from typing import Any, TextIO

WAITING = 10_000  # lines at most


def line(fields: dict[str, Any]) -> str:
    """An object in one line of printable ASCII, whatever it holds: no control character reaches a terminal."""
    return json.dumps(fields, ensure_ascii=True, default=str)


def place(error: BaseException) -> str:
    """Where an error was raised. What it says stays out, for it may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = " < ".join(f"{frame.filename.rpartition('clearformer/')[2]}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(error).__name__} at {where}" if where else type(error).__name__


class Log:
    def __init__(self, out: TextIO | None = None):
        self.out = out
        self.dropped = 0
        self._lines: queue.Queue[str | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._life, name="clearformer-log", daemon=True)
        self._thread.start()

    def write(self, **fields: Any) -> None:
        now = time.time()
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d}Z"
        if self.dropped:
            fields["lines_left_out"] = self.dropped
        try:
            self._lines.put_nowait(line({"time": stamp, **fields}))
            self.dropped = 0
        except queue.Full:
            self.dropped += 1

    def close(self, seconds: float = 2.0) -> None:
        """Write what is left, if somebody reads it."""
        try:
            self._lines.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _life(self) -> None:
        while (text := self._lines.get()) is not None:
            try:
                print(text, file=self.out or sys.stderr, flush=True)
            except (OSError, ValueError):  # nobody reads it any more; requests are served nevertheless
                continue


class FromLogging(logging.Handler):
    """What libraries log, as lines of ours: uvicorn's warnings and errors."""

    def __init__(self, log: Log):
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {"event": "library", "library": record.name, "level": record.levelname.lower()}
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = place(record.exc_info[1])
        else:
            fields["message"] = record.getMessage()[:200]
        self.log.write(**fields)
