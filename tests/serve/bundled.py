"""One server with bundled models, for all tests that only ask it."""

from functools import cache

from tests.serve.asking import Asking


@cache
def bundled() -> Asking:
    return Asking("en-de", "en-hi", "language-id", "sentences")
