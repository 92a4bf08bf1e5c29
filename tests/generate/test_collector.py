"""Python's cycle collector rests while many requests are served, and is as it was afterwards."""

import gc
import threading
from collections.abc import Iterator

import pytest

from clearformer.generate.collector import collector_paused


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_it_is_off_within_and_on_again_after_an_error() -> None:
    seen = []

    def fails() -> None:
        with collector_paused():
            seen.append(gc.isenabled())
            raise ValueError("within")

    with pytest.raises(ValueError, match="within"):
        fails()
    assert seen == [False]
    assert gc.isenabled()


def test_who_has_turned_it_off_finds_it_off() -> None:
    gc.disable()
    with collector_paused():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_a_pause_within_a_pause_does_not_end_it() -> None:
    with collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_pauses_that_overlap_do_not_keep_it_off() -> None:
    began, first_over, checked = threading.Event(), threading.Event(), threading.Event()

    def second() -> None:
        with collector_paused():
            began.set()
            first_over.wait(10)
            assert gc.isenabled()  # the one who paused it has ended
        checked.set()

    thread = threading.Thread(target=second)
    with collector_paused():
        thread.start()
        assert began.wait(10)
    first_over.set()
    thread.join(10)
    assert checked.is_set()
    assert gc.isenabled()
