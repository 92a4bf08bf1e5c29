"""The errors a user can meet. Each message says what was given, what was expected and what to do."""

from collections.abc import Iterable


class ClearformerError(Exception):
    """The base of every error that is the user's to act on; the command line prints it without a traceback.

    `param` names the argument or option that was wrong, where one was: a program need not read the message.
    """

    def __init__(self, message: str = "", *, param: str | None = None):
        super().__init__(message)
        self.message, self.param = message, param


class SpecError(ClearformerError):
    """A specification that describes no model."""


class DataError(ClearformerError):
    """Input that does not fit the model it was given to."""


class KernelError(ClearformerError):
    """A kernel asked for by name that cannot compute what the model asks."""


class CheckpointError(ClearformerError):
    """A model folder that is missing, damaged or not what it claims to be."""


class TrainingError(ClearformerError):
    """A training run that cannot start, go on, or be resumed."""


class TraceError(ClearformerError):
    """An address that names nothing in this model, or a change that does not fit there."""


class Cancelled(DataError):
    """A request that was cancelled, or whose engine was closed, and is asked for its result."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'causal'?`, or the whole short list where nothing is near."""
    from difflib import get_close_matches

    known = sorted(set(known))
    if close := get_close_matches(name, known, n=3, cutoff=0.5):
        return "; did you mean " + " or ".join(repr(c) for c in close) + "?"
    return f"; known: {', '.join(known)}" if len(known) <= 20 else ""
