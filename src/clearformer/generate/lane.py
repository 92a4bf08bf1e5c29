"""One batch and the loop that drives it: take requests in, run a step, let every request choose, tell its handle."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from clearformer.errors import DataError
from clearformer.generate.batch import Batch, Entry
from clearformer.generate.requests import failed
from clearformer.generate.searches import BeamSearch, Best, Step, TokenSearch, advance_beams, take_likeliest

if TYPE_CHECKING:
    from clearformer.generate.engine import Engine


class Lane:
    """Whoever holds the lock drives: the engine's own thread, or a caller of `Engine.run` while it waits."""

    def __init__(self, engine: "Engine", batch: Batch):
        self.engine, self.batch, self.lock = engine, batch, threading.Lock()
        self.taken: list[Entry] = []  # from the queue, not yet in the batch
        self.active: set[Entry] = set()  # all that this lane has
        self.look = False  # whether something was cancelled since its entries were last looked at

    @torch.inference_mode()
    def work(self, until: Callable[[], bool]) -> None:
        """Take turns until there is nothing to do or `until` says so. Called with the lock held."""
        while not until() and self.turn():
            pass

    def turn(self) -> bool:
        """One step of everything in this lane; False where there was nothing to do."""
        self._take()
        self._drop_cancelled()
        self._admit()
        if not self.batch.busy:
            return bool(self.taken)
        try:
            self._check_positions()
            self.batch.threads = self.engine.threads_for(self)
            entries, best = self._step()
            if best is not None:
                self._choose(entries, best)
        except Exception as error:  # of the whole step: all that are in the batch fail, those that wait go on
            self._fail([entry for entry in self.active if entry not in self.taken], error)
        return True

    def _step(self) -> tuple[list[Entry], Best | None]:
        """A step; where lanes work side by side, the engine is told whether this one had a core for it."""
        if len(self.engine.lanes) == 1 or not self.engine.side_by_side:
            return self.batch.step()
        wall, cpu = time.perf_counter(), time.thread_time()
        found = self.batch.step()
        self.engine.contention.saw(time.perf_counter() - wall, time.thread_time() - cpu)
        return found

    def _admit(self) -> None:
        """Let in what there is room for; where that fails, one by one, so that only what is wrong fails."""
        if not self.taken:
            return
        try:
            del self.taken[: self.batch.admit(self.taken)]
        except Exception:
            try:
                del self.taken[: self.batch.admit(self.taken[:1])]
            except Exception as error:
                self._fail(self.taken[:1], error)

    def _take(self) -> None:
        for handle in self.engine.share(self):
            try:
                entry = Entry(handle, self.engine.vocabulary)
            except Exception as error:
                handle.finish(None, failed(error))
                continue
            handle.search, handle.taken = entry.search, time.perf_counter()
            self.taken.append(entry)
            self.active.add(entry)

    def _drop_cancelled(self) -> None:
        self.engine.forget_cancelled()
        if not self.look:
            return
        self.look = False
        gone = [entry for entry in self.active if entry.handle.cancelled]
        if gone:
            self._let_go(gone)
            for entry in gone:
                entry.handle.finish(None)

    def _check_positions(self) -> None:
        """A text that has come to the end of the position table cannot go on."""
        if (most := self.engine.positions) is None:
            return
        for entry in list(self.batch.entries):
            search = entry.search
            written = search.length if isinstance(search, BeamSearch) else len(search.texts[search.live[0]])
            if (length := len(entry.request.prompt) + written) > most:
                self._fail([entry], DataError(f"a text has {length} tokens, and this model has {most} positions"))

    def _choose(self, entries: list[Entry], best: Best) -> None:
        """What every entry makes of the best logits; one that fails leaves the others alone."""
        steps: list[Step | BaseException] = [([], [])] * len(entries)
        beams: list[tuple[BeamSearch, int, int]] = []
        quick: list[tuple[TokenSearch, int]] = []
        of_beams, of_quick, first = [], [], 0
        for n, entry in enumerate(entries):
            search = entry.search
            if isinstance(search, BeamSearch):
                beams.append((search, first, entry.rows))
                of_beams.append(n)
            elif search.quick and entry.request.on_token is None:
                quick.append((search, first))
                of_quick.append(n)
            else:
                steps[n] = self._one(entry, search, best, first)
            first += entry.rows
        if quick:
            for n, step in zip(of_quick, take_likeliest(quick, best), strict=True):
                steps[n] = step
        if beams:
            for n, grown in zip(of_beams, advance_beams(beams, best), strict=True):
                steps[n] = grown
        moves = [None if isinstance(step, BaseException) or not step[0] else step for step in steps]
        self.batch.advance(list(zip(entries, moves, strict=True)))
        for entry, on, own in zip(entries, moves, steps, strict=True):
            if on is None:
                self._end(entry, own)
            elif entry.handle.watched or entry.handle.on_step is not None:
                entry.handle.told()

    def _one(self, entry: Entry, search: TokenSearch, best: Best, first: int) -> Step | BaseException:
        try:
            before = search.shown
            step = search.advance(best, first, entry.rows)
            if entry.request.on_token is not None and search.shown > before:  # the first text may be done already
                entry.request.on_token(search.token(before))
        except Exception as error:
            return error
        return step

    def _end(self, entry: Entry, step: Step | BaseException) -> None:
        """A request is done, or has failed."""
        self._forget([entry])
        handle, search = entry.handle, entry.search
        if isinstance(step, BaseException):
            handle.finish(None, failed(step))
            return
        try:
            if isinstance(search, BeamSearch) and entry.request.on_token is not None:
                for n in range(len(search.ended[0].tokens)):
                    entry.request.on_token(search.token(n))
            handle.finish(search.results())
        except Exception as error:
            handle.finish(None, failed(error))

    def _fail(self, entries: list[Entry], error: BaseException) -> None:
        self._let_go(entries)
        for entry in entries:
            entry.handle.finish(None, failed(error))

    def _let_go(self, entries: list[Entry]) -> None:
        self.taken = [entry for entry in self.taken if entry not in entries]
        self.batch.drop(entries)
        self._forget(entries)

    def _forget(self, entries: list[Entry]) -> None:
        self.active.difference_update(entries)
