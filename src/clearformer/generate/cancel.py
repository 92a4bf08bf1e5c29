"""A cancel scope: all work that is begun inside it can be ended from another thread.

    scope = CancelScope()
    with scope:
        translator.translate(texts)  # raises CancelledError soon after scope.cancel()

Requests to an engine leave their batch at the next step; encoders look between two batches.
"""

import threading
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Self

from clearformer.errors import CancelledError

if TYPE_CHECKING:
    from clearformer.generate.requests import Handle

_CURRENT: ContextVar["CancelScope | None"] = ContextVar("cancel_scope", default=None)


class CancelScope:
    def __init__(self) -> None:
        self.cancelled = False
        self._handles: list[Handle] = []
        self._lock = threading.Lock()
        self._entered = threading.local()  # several threads may work in one scope, and each leaves it for itself

    def cancel(self) -> None:
        """End all that was begun in this scope, and whatever is begun in it later. Safe from any thread."""
        with self._lock:
            self.cancelled = True
            handles, self._handles = self._handles, []
        for handle in handles:
            handle.cancel()

    def add(self, handle: "Handle") -> None:
        with self._lock:
            if not self.cancelled:
                self._handles.append(handle)
                return
        handle.cancel()

    @property
    def begun(self) -> tuple["Handle", ...]:
        """What engines were asked in this scope, in the order in which it was asked."""
        with self._lock:
            return tuple(self._handles)

    def check(self) -> None:
        if self.cancelled:
            raise CancelledError("this work was cancelled")

    def __enter__(self) -> Self:
        tokens: list[Token[CancelScope | None]] = self._entered.__dict__.setdefault("tokens", [])
        tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        _CURRENT.reset(self._entered.tokens.pop())


def current() -> CancelScope | None:
    """The scope that this code runs in, if it runs in one."""
    return _CURRENT.get()


def check_cancelled() -> None:
    """Raise if the scope that this code runs in was cancelled."""
    if (scope := _CURRENT.get()) is not None:
        scope.check()
