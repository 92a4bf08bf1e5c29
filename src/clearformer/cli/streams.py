"""stdout and stderr that every verb can write to: a closed one and a narrow encoding are no tracebacks."""

import codecs
import errno
import io
import os
import sys

PLAIN = {
    "−": "-",
    "–": "-",
    "—": "-",
    "×": "x",
    "·": "*",
    "→": "->",
    "←": "<-",
    "↓": "v",
    "√": "sqrt ",
    "…": "...",
    "▁": "_",
}


def plainly(error: UnicodeError) -> tuple[str, int]:
    """Signs that an encoding lacks: a minus must not become a question mark."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(PLAIN.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


class Closed(io.TextIOBase):
    """stdout where the caller has closed it (`>&-`); Python itself has nothing there."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "stdout is closed")


def settle() -> None:
    """Make stdout and stderr fit to be written to. Called once, before any verb."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # or the next file opened would be taken for a stream
            pass
        os.close(number)
    codecs.register_error("plainly", plainly)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            wide = stream.encoding.lower().startswith("utf")  # which lacks halves of characters only
            stream.reconfigure(errors="backslashreplace" if wide else "plainly")
    if sys.stdout is None:
        sys.stdout = Closed()


def check_stdout() -> None:
    """Raise before the work where its answers would have nowhere to go."""
    if isinstance(sys.stdout, Closed):
        sys.stdout.write("")
