"""One batch and the loop that drives it: take requests in, run a step, let every request choose, tell its handle."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from clearformer.errors import DataError
from clearformer.generate.batch import Batch, Entry
from clearformer.generate.requests import failed
from clearformer.generate.searches import BeamSearch, Best, Step, advance_beams

if TYPE_CHECKING:
    from clearformer.generate.engine import Engine


class Lane:
    """Whoever holds the lock drives: the engine's own thread, or a caller of `Engine.run` while it waits."""

    def __init__(self, engine: "Engine", batch: Batch):
        self.engine, self.batch, self.lock = engine, batch, threading.Lock()
        self.taken: list[Entry] = []  # from the queue, not yet in the batch
        self.active: set[Entry] = set()  # all that this lane has

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
            entries, best = self.batch.step()
            if best is not None:
                self._choose(entries, best)
        except Exception as error:  # of the whole step: all that are in the batch fail, those that wait go on
            self._fail([entry for entry in self.active if entry not in self.taken], error)
        return True

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
            self.taken.append(entry)
            self.active.add(entry)

    def _drop_cancelled(self) -> None:
        self.engine.forget_cancelled()
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
        steps: dict[Entry, Step | BaseException] = {}
        beams, first = [], 0
        for entry in entries:
            if isinstance(entry.search, BeamSearch):
                beams.append((entry, first))
            else:
                try:
                    steps[entry] = entry.search.advance(best, first, entry.rows)
                    if (hook := entry.request.on_token) is not None:
                        for token in entry.search.new:
                            hook(token)
                except Exception as error:
                    steps[entry] = error
            first += entry.rows
        if beams:
            found = advance_beams([(entry.search, first, entry.rows) for entry, first in beams], best)  # type: ignore[misc]
            steps |= {entry: step for (entry, _), step in zip(beams, found, strict=True)}
        moves: list[tuple[Entry, Step | None]] = []
        for entry in entries:
            step = steps[entry]
            moves.append((entry, None if isinstance(step, BaseException) or not step[0] else step))
        self.batch.advance(moves)
        for entry in entries:
            self._tell(entry, steps[entry])

    def _tell(self, entry: Entry, step: Step | BaseException) -> None:
        handle = entry.handle
        if isinstance(step, BaseException):
            self._forget([entry])
            handle.finish(None, failed(step))
            return
        if new := entry.search.new:
            handle.tokens += new
            entry.search.new = []
            handle.told()
        if not step[0]:
            self._forget([entry])
            results = entry.search.results()
            if isinstance(entry.search, BeamSearch):
                handle.tokens += entry.search.told()
                if entry.request.on_token is not None:
                    try:
                        for token in handle.tokens:
                            entry.request.on_token(token)
                    except Exception as error:
                        handle.finish(None, failed(error))
                        return
            handle.finish(results)

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
