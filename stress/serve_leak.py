"""A server that keeps something of every request for ever, for serve_soak.py to find: LEAK_BYTES of each."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clearformer.cli import main
from clearformer.serve.app import Server

KEPT: list[bytearray] = []
watching = Server.watching


@contextmanager
def leaking(server: Server, *given: Any) -> Iterator[None]:
    KEPT.append(bytearray(os.urandom(64) * (int(os.environ["LEAK_BYTES"]) // 64 + 1)))
    with watching(server, *given):
        yield


Server.watching = leaking  # type: ignore[method-assign]
main()
