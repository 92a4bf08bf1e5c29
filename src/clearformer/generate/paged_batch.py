"""Continuous batching on a paged KV cache: rows join and leave at every step, and prompts are read in pieces.

One step is one run of one program. Its rows are the next token of every text that is being written, the last token of
every prompt that comes to its end, and then other tokens of prompts, up to a budget; the first two kinds are ranked.
Rows need no padding and see lists of cells, so that none depends on another.
"""

import time
from typing import Any

import numpy as np
import torch

from clearformer.core.model import EncoderDecoder
from clearformer.errors import DataError
from clearformer.generate.batch import Entry, Model, Moves, encoded_sources
from clearformer.generate.paged_entry import PagedEntry, address, cells_needed, portions, source_tokens
from clearformer.generate.prefix_cache import PrefixCache
from clearformer.generate.requests import Request
from clearformer.generate.searches import ALL, Best, TokenSearch

Array = np.ndarray[Any, Any]
MAX_ROWS = 256
MAX_SOURCES = 64  # of a lane: each has keys and values of its own, which are to stay in the nearer caches
CACHE_BYTES = 2 << 30  # of a lane's KV cache at most; what is never used takes no memory
MAX_CELLS = 1 << 17
PREFILL_SECONDS = 0.05  # that rows which are being written may wait for a piece of a prompt
PREFILL = (64, 2048)  # tokens of a piece: at least, and at most
SMALL = 64 << 20  # bytes of weights: several lanes of one thread each, for what is read twice is near
TINY, FEW = 8 << 20, 16  # bytes of weights, and rows, that one thread is done with sooner than two have met


def lanes_for(
    model: Model, *, kv_cache_tokens: int | None, max_rows: int | None, prefix_cache: bool
) -> list["PagedBatch"]:
    """A batch for each lane that suits the model; none where it cannot run as one program."""
    try:
        from clearformer.kernels.native.fused_step import fused_step
        from clearformer.kernels.native.runtime import machine
        from clearformer.kernels.native.stack import NativeStack
    except ImportError:
        return []
    stack = model.decoder if isinstance(model, EncoderDecoder) else model.stack
    with torch.inference_mode():
        if not (isinstance(stack, NativeStack) and stack.runs and stack.program.given > 0):
            return []
        if fused_step(stack, model.head) is None:
            return []
    weights = sum(
        each.numel() * each.element_size() for each in {id(p): p for p in _weights(stack, model.head)}.values()
    )
    lanes = max(1, machine().threads) if weights <= SMALL else 1
    rows = max_rows or MAX_ROWS
    return [PagedBatch(model, weights, kv_cache_tokens, rows, prefix_cache) for _ in range(lanes)]


def _weights(*modules: torch.nn.Module) -> list[torch.Tensor]:
    return [each for module in modules for each in (*module.parameters(), *module.buffers())]


class PagedBatch:
    def __init__(self, model: Model, weights: int, cells: int | None, max_rows: int, prefix_cache: bool):
        from clearformer.kernels.native.kv_pool import KVPool
        from clearformer.kernels.native.stack import NativeStack

        self.model, self.weights, self.max_rows, self.max_requests = model, weights, max_rows, max_rows
        stack = model.decoder if isinstance(model, EncoderDecoder) else model.stack
        assert isinstance(stack, NativeStack)
        self.stack, program = stack, stack.program
        own = [0 if n in program.crossing else width for n, width in enumerate(program.keys)]
        cross = [width if n in program.crossing else 0 for n, width in enumerate(program.keys)]
        size = cells or max(1024, min(CACHE_BYTES // max(8 * sum(own), 1), MAX_CELLS))
        self.pool = KVPool(size, own)
        self.memory = KVPool(size if any(cross) else 1, cross)
        self.crossing = np.array([bool(width) for width in cross])[:, None]
        self.addresses = np.where(self.crossing, self.memory.addresses, self.pool.addresses)
        self.prefixes = PrefixCache() if prefix_cache and not any(cross) else None
        self.entries: list[Entry] = []
        self.prefilling: list[PagedEntry] = []
        self.of: dict[Entry, PagedEntry] = {}
        self.numbers = 0
        self.reserved_rows = 0
        self.threads = 1  # that a step may have
        self.rate = 4_000.0  # tokens of prompts that were read a second
        # the rows of `entries`, in order
        self.table = np.zeros((max_rows, 128), dtype=np.int32)
        self.spare = self.table.copy()
        self.length = np.zeros(max_rows, dtype=np.int64)
        self.token = np.zeros(max_rows, dtype=np.int64)
        self.owner = np.zeros(max_rows, dtype=np.int64)
        self.source_at = np.zeros(max_rows, dtype=np.int64)
        self.source_count = np.zeros(max_rows, dtype=np.int64)
        self.count = 0
        self.rows_of = np.arange(max_rows)
        self.crosses = bool(self.crossing.any())
        if self.crosses:
            self.max_requests = min(max_rows, MAX_SOURCES)
        self.patterns = list(program.patterns)
        self.longest_source = 0
        self.runner: Any = None
        self._place()

    def _place(self) -> None:
        """Where the lists of cells are, now that they have a new place."""
        self.table_at, self.step_of = address(self.table), 4 * self.table.shape[1] * self.rows_of

    def _ready(self) -> None:
        """The program of a step, made anew where the model's weights are others now."""
        from clearformer.kernels.native.fused_step import fused_step
        from clearformer.kernels.native.step_runner import StepRunner

        fused = fused_step(self.stack, self.model.head)
        if fused is None:
            raise DataError("this model can no longer run as one program; make another engine for it")
        if self.runner is None or self.runner.fused is not fused:
            self.runner, self.product = StepRunner(fused, self.stack.width, self.addresses), self.model.head.ready()  # type: ignore[operator]

    @property
    def busy(self) -> bool:
        return bool(self.entries or self.prefilling)

    @property
    def appetite(self) -> int:
        """Requests that there is use for at once: those that are written, and those that join next."""
        return self.max_requests + self.max_requests // 4

    def too_large(self, request: Request) -> str | None:
        plan, needed = request.plan, cells_needed(request)
        if needed > self.pool.size:
            return (
                f"this request may need {needed:,} tokens of the KV cache ({len(request.prompt):,} of its prompt and"
                f" {plan.rows} × {plan.limit:,} to write), and there are {self.pool.size:,}; lower max_new_tokens, or"
                " give the engine more kv_cache_tokens"
            )
        if plan.rows > self.max_rows:
            return f"{plan.rows} rows are asked for, and a batch has {self.max_rows}; lower num_beams"
        if self.crossing.any() and request.source is not None and source_tokens(self.model, request) > self.memory.size:
            return f"the source is longer than the {self.memory.size:,} tokens that the KV cache has for sources"
        return None

    def forget(self) -> None:
        if self.prefixes is not None:
            self.pool.give_back(self.prefixes.evict(self.prefixes.size))

    # --- joining ----------------------------------------------------------------------------------------------

    def admit(self, waiting: list[Entry]) -> int:
        self._ready()
        joining: list[PagedEntry] = []
        fits, rows, sources, cells = 0, self.reserved_rows, 0, 0
        for entry in waiting:
            rows += entry.request.plan.rows
            sources += source_tokens(self.model, entry.request) if self.crosses else 0
            cells += cells_needed(entry.request)
            room = self.pool.available + (self.prefixes.size if self.prefixes else 0)
            if (
                len(self.of) + fits >= self.max_requests
                or rows > self.max_rows
                or sources > self.memory.available
                or (fits and cells > room)
            ):
                break
            fits += 1
        few = fits < len(waiting) and fits < self.max_requests // 4 and rows - self.reserved_rows < self.max_rows // 4
        if self.busy and few:  # several at once, for their encoder
            return 0
        for entry in waiting[:fits]:
            if (one := self._reserve(entry)) is None:
                break
            joining.append(one)
        for one in joining:
            self.of[one.entry] = one
            self.reserved_rows += one.entry.request.plan.rows
        if joining and self.crosses:
            try:
                for some in portions(self.model, joining):
                    self._encode(some)
            except BaseException:
                for one in joining:
                    self._leave(one.entry, None)
                raise
        self.prefilling += joining
        return len(joining)

    def _reserve(self, entry: Entry) -> PagedEntry | None:
        """Cells for all that a request may need, so that it will never have to wait for any; None where there are not
        enough now."""
        known, node = np.zeros(0, dtype=np.int32), None
        if self.prefixes is not None:
            known, node = self.prefixes.match(entry.request.prompt[:-1])
        needed = cells_needed(entry.request) - len(known)
        if self.prefixes is not None and needed > self.pool.available:
            self.pool.give_back(self.prefixes.evict(needed - self.pool.available))
        if needed > self.pool.available:
            if node is not None and self.prefixes is not None:
                self.prefixes.leave(node)
            return None
        self.pool.promised += needed
        self.numbers += 1
        entry.handle.cached = len(known)
        return PagedEntry(entry, self.numbers, needed, known, node)

    def _encode(self, joining: list[PagedEntry]) -> None:
        """Keys and values of what new sources say, for every layer that looks at them."""
        from clearformer.kernels.native.launch import Job, wide
        from clearformer.kernels.native.paged_kv import Texts
        from clearformer.kernels.native.runtime import at_most
        from clearformer.kernels.native.stack import NativeStack

        assert isinstance(self.model, EncoderDecoder)
        requests = [one.entry.request for one in joining]
        tokens = sum(source_tokens(self.model, request) for request in requests)
        with at_most(self._threads_for(tokens)):
            read = None
            if isinstance(self.model.encoder, NativeStack) and not isinstance(requests[0].source, torch.Tensor):
                read = self.model.encoder.read([request.source for request in requests])
            if read is not None:
                rows, texts = read
            else:
                states, places = encoded_sources(self.model, requests, torch.device("cpu"))
                texts = Texts.of(places, len(states))
                rows = wide(states.flatten(0, 1) if places.start is not None else states[places.real])
            self.memory.promised += len(rows)
            owners = np.repeat(np.array([one.number for one in joining]), texts.count)
            cells = self.memory.take(owners, len(rows))
            ends = np.cumsum(texts.count)
            for one, end, count in zip(joining, ends.tolist(), texts.count.tolist(), strict=True):
                one.memory, one.sources = np.ascontiguousarray(cells[end - count : end]), count
            self.longest_source = max(self.longest_source, int(texts.count.max()))
            job = Job(self.stack.memories, rows)
            job.keys(self.addresses, cells)
            job.run(texts.position)

    # --- a step -----------------------------------------------------------------------------------------------

    def step(self) -> tuple[list[Entry], Best | None]:
        pieces = self._pieces()
        ended = [one for one, stop in pieces if stop == len(one.ids)]
        began = time.perf_counter()
        best = self._run(pieces, ended)
        if read := sum(stop - one.read for one, stop in pieces):
            seconds = time.perf_counter() - began
            self.rate += 0.3 * ((read + self.count) / max(seconds, 1e-6) - self.rate)
        self.length[: self.count] += 1
        for one, stop in pieces:
            one.read = stop
        for one in ended:
            self._join(one)
        return list(self.entries), best

    def _pieces(self) -> list[tuple[PagedEntry, int]]:
        """Of waiting prompts, in their order, as much as the budget has room for: up to which token of each."""
        if not self.prefilling:
            return []
        least, most = PREFILL
        budget = max(least, min(most, int(self.rate * PREFILL_SECONDS))) if self.count else most
        pieces = []
        for one in self.prefilling:
            if budget <= 0:
                break
            stop = min(len(one.ids), one.read + budget)
            budget -= stop - one.read
            pieces.append((one, stop))
        return pieces

    def _run(self, pieces: list[tuple[PagedEntry, int]], ended: list[PagedEntry]) -> Best | None:
        n, ranked = self.count, self.count + len(ended)
        searches = [entry.search for entry in self.entries]
        searches += [one.entry.search for one in ended]
        keep, whole, heated = 1, False, False
        for search in searches:
            wanted = search.asked = search.steady or search.wanted()
            if wanted == ALL:
                whole = True
            elif wanted > keep:
                keep = wanted
            if search.best > keep:
                keep = search.best
            heated |= search.temperature != 1.0
        total = n + sum(stop - one.read for one, stop in pieces)
        longest = int(self.length[:n].max(initial=0)) + 1
        longest = (
            max(longest, self.longest_source, *(stop for _, stop in pieces))
            if pieces or self.longest_source
            else longest
        )
        threads = self._threads_for(total)
        runner = self.runner
        runner.reserve(total, ranked or 1, longest, keep, threads)
        self._fill(runner, pieces)
        if heated:
            counts = [entry.rows for entry in self.entries] + [1] * len(ended)
            heat = np.array([1 / each.temperature for each in searches], dtype=np.float32)
            runner.heat[:ranked] = np.repeat(heat, counts)
        numbers, tokens, totals, logits = runner.run(total, ranked, keep, longest, threads, heated, whole)
        if not ranked:
            return None

        def all_of(row: int) -> Array:
            """Kept, or made from the row's state."""
            if logits is not None:
                return logits[row]
            return self.product(runner.states[row : row + 1, : runner.width]).numpy()[0]

        return Best(numbers, tokens, totals[:, 0], totals[:, 1], totals[:, 2], all_of)

    def _threads_for(self, rows: int) -> int:
        return 1 if self.weights <= TINY and rows <= FEW else self.threads

    def _fill(self, runner: Any, pieces: list[tuple[PagedEntry, int]]) -> None:
        """The rows of a run: texts that are written, prompts that come to their end, the rest of prompts."""
        n = self.count
        position, lists = self.length[:n], self.table_at + self.step_of[:n]
        if n:
            cells = self.pool.take(self.owner[:n], n)
            self.table[self.rows_of[:n], position] = cells
            runner.ids[:n], runner.positions[:n], runner.cells[:n] = self.token[:n], position, cells
            if self.crosses:
                spans = runner.spans[0]
                spans[:n, 0], spans[:n, 2] = self.source_at[:n], self.source_count[:n]
            self._spans(runner, slice(0, n), lists, position)
        if not pieces:
            return
        firsts, rests = [], []  # what is ranked comes first
        for one, stop in pieces:
            one.cells[one.read : stop] = self.pool.take(one.number, stop - one.read)
            last = stop - 1 if stop == len(one.ids) else stop
            if last < stop:
                firsts.append((one, last, stop))
            if one.read < last:
                rests.append((one, one.read, last))
        at = n
        for one, start, stop in (*firsts, *rests):
            rows = slice(at, at + stop - start)
            runner.ids[rows], runner.cells[rows] = one.ids[start:stop], one.cells[start:stop]
            runner.positions[rows] = positions = np.arange(start, stop)
            if self.crosses:
                runner.spans[0][rows, 0], runner.spans[0][rows, 2] = address(one.memory), one.sources
            self._spans(runner, rows, address(one.cells), positions)
            at = rows.stop

    def _spans(self, runner: Any, rows: slice, lists: Array | int, position: Array) -> None:
        from clearformer.kernels.native.paged_kv import span

        for spans, pattern in zip(runner.spans[1:], self.patterns, strict=True):
            spans[rows, 0] = lists
            spans[rows, 1], spans[rows, 2] = span(pattern, position, position + 1)

    def _join(self, one: PagedEntry) -> None:
        """A prompt that was read becomes a row."""
        one.entry.handle.first = time.perf_counter()
        self.prefilling.remove(one)
        self._widen(len(one.ids) + 1)
        n = self.count
        self.table[n, : len(one.cells)] = one.cells
        self.length[n], self.owner[n] = len(one.ids), one.number
        self.source_count[n] = one.sources
        self.source_at[n] = address(one.memory)
        self.count += 1
        self.entries.append(one.entry)
        if self.prefixes is not None and one.node is not None:
            self._remember(one, one.ids, one.cells)

    def _remember(self, one: PagedEntry, tokens: Array, cells: Array) -> None:
        """Let the prefix cache keep what was read."""
        assert self.prefixes is not None
        assert one.node is not None
        kept, one.node = self.prefixes.insert(tokens, cells, one.node)
        self.pool.owner[kept] = -2  # the cache's
        one.kept += len(kept)

    def _widen(self, longest: int) -> None:
        if longest > self.table.shape[1]:
            wide = np.zeros((self.max_rows, 2 * longest), dtype=np.int32)
            wide[:, : self.table.shape[1]] = self.table
            self.table, self.spare = wide, wide.copy()
            self._place()

    # --- going on and leaving -----------------------------------------------------------------------------------

    def advance(self, moves: Moves) -> None:
        rows: list[int] = []
        tokens: list[int] = []
        kept, first, gone = [], 0, []
        for entry, step in moves:
            if step is not None:
                numbers, chosen = step
                rows += [first + number for number in numbers]
                tokens += chosen
                kept.append(entry)
                first, entry.rows = first + entry.rows, len(numbers)
            else:
                gone.append((entry, first))
                first += entry.rows
        for entry, row in gone:
            self._leave(entry, row)
        self.entries = kept
        self._select(np.array(rows, dtype=np.int64))
        self.token[: self.count] = tokens

    def _select(self, rows: Array) -> None:
        """Keep these rows, in this order, repeats allowed."""
        n = len(rows)
        longest = int(self.length[: self.count].max(initial=0))
        if n != self.count or (rows != np.arange(n)).any():
            self.spare[:n, :longest] = self.table[rows, :longest]
            self.table, self.spare = self.spare, self.table
            self.table_at = address(self.table)
            for array in (self.length, self.token, self.owner, self.source_at, self.source_count):
                array[:n] = array[rows]
            self.count = n
        self._widen(longest + 1)

    def _leave(self, entry: Entry, row: int | None) -> None:
        """Give back the cells of an entry; its text, if it was one alone, stays in the prefix cache."""
        one = self.of.pop(entry, None)
        if one is None:  # a step that failed had let it go
            return
        search = entry.search
        if row is not None and one.node is not None and isinstance(search, TokenSearch) and len(search.texts) == 1:
            length = int(self.length[row])
            tokens = np.concatenate([one.ids, np.array(search.texts[0], dtype=np.int64)])[:length]
            self._remember(one, tokens, self.table[row, :length])
        if one.node is not None and self.prefixes is not None:
            self.prefixes.leave(one.node)
        if row is not None and entry.rows == 1 and entry.request.plan.rows == 1 and self.prefixes is None:
            cells = self.table[row, : self.length[row]].copy()  # a text that was always alone has all of its own
        else:
            cells = self.pool.owned(one.number)
        self.pool.promised -= one.promised - one.kept - len(cells)
        self.pool.give_back(cells)
        if one.sources:
            self.memory.give_back(one.memory)
        self.reserved_rows -= entry.request.plan.rows

    def drop(self, entries: list[Entry]) -> None:
        for one in [each for each in self.prefilling if each.entry in entries]:
            self.prefilling.remove(one)
            self._leave(one.entry, None)
        rows: list[int] = []
        first, kept = 0, []
        for entry in self.entries:
            if entry in entries:
                self._leave(entry, None)
            else:
                rows += range(first, first + entry.rows)
                kept.append(entry)
            first += entry.rows
        if len(kept) < len(self.entries):
            self.entries = kept
            self._select(np.array(rows, dtype=np.int64))
