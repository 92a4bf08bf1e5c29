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
from clearformer.generate.batch import Entry, Model, Moves, encoded_sources
from clearformer.generate.prefix_cache import Node, PrefixCache
from clearformer.generate.requests import Request
from clearformer.generate.searches import ALL, Best

Array = np.ndarray[Any, Any]
MAX_ROWS = 128
CACHE_BYTES = 2 << 30  # of a lane's KV cache at most; what is never used takes no memory
MAX_CELLS = 1 << 17
PREFILL_SECONDS = 0.05  # that rows which are being written may wait for a piece of a prompt
PREFILL = (64, 2048)  # tokens of a piece: at least, and at most
SMALL = 64 << 20  # bytes of weights: several lanes of one thread each, for what is read twice is near
TINY = 8 << 20  # bytes of weights that one thread reads sooner than two have met


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
        fits = isinstance(stack, NativeStack) and stack.runs and stack.program.given > 0
        if not fits or fused_step(stack, model.head) is None:
            return []
    weights = sum(
        each.numel() * each.element_size() for each in {id(p): p for p in _weights(stack, model.head)}.values()
    )
    lanes = max(1, machine().threads) if weights <= SMALL else 1
    rows = max_rows or MAX_ROWS
    return [PagedBatch(model, weights, kv_cache_tokens, rows, prefix_cache) for _ in range(lanes)]


def _weights(*modules: torch.nn.Module) -> list[torch.Tensor]:
    return [each for module in modules for each in (*module.parameters(), *module.buffers())]


class PagedEntry:
    """What a batch keeps of an entry: the cells of its prompt, how far it is read, and what was promised to it."""

    def __init__(self, entry: Entry, number: int, promised: int, known: Array, node: Node | None):
        prompt = entry.request.prompt
        self.entry, self.number, self.promised, self.node = entry, number, promised, node
        self.ids = np.asarray(prompt, dtype=np.int64)
        self.cells = np.zeros(len(prompt), dtype=np.int32)
        self.cells[: len(known)] = known
        self.read = len(known)
        self.kept = 0  # cells that the prefix cache took over
        self.memory = np.zeros(1, dtype=np.int32)  # the cells of its source
        self.sources = 0


class PagedBatch:
    def __init__(self, model: Model, weights: int, cells: int | None, max_rows: int, prefix_cache: bool):
        from clearformer.kernels.native.kv_pool import KVPool

        self.model, self.weights, self.max_rows = model, weights, max_rows
        self.stack: Any = model.decoder if isinstance(model, EncoderDecoder) else model.stack
        program = self.stack.program
        own = [0 if n in program.crossing else width for n, width in enumerate(program.keys)]
        cross = [width if n in program.crossing else 0 for n, width in enumerate(program.keys)]
        size = cells or max(1024, min(CACHE_BYTES // max(8 * sum(own), 1), MAX_CELLS))
        self.pool = KVPool(size, own)
        self.memory = KVPool(min(size, MAX_CELLS) if any(cross) else 1, cross)
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

    @property
    def busy(self) -> bool:
        return bool(self.entries or self.prefilling)

    @property
    def appetite(self) -> int:
        """Requests that there is use for at once."""
        return self.max_rows

    def too_large(self, request: Request) -> str | None:
        plan, needed = request.plan, _needed(request)
        if needed > self.pool.size:
            return (
                f"this request may need {needed:,} tokens of the KV cache ({len(request.prompt):,} of its prompt and"
                f" {plan.rows} × {plan.limit:,} to write), and there are {self.pool.size:,}; lower max_new_tokens, or"
                " give the engine more kv_cache_tokens"
            )
        if plan.rows > self.max_rows:
            return f"{plan.rows} rows are asked for, and a batch has {self.max_rows}; lower num_beams"
        if (
            self.crossing.any()
            and request.source is not None
            and _source_tokens(self.model, request) > self.memory.size
        ):
            return f"the source is longer than the {self.memory.size:,} tokens that the KV cache has for sources"
        return None

    # --- joining ----------------------------------------------------------------------------------------------

    def admit(self, waiting: list[Entry]) -> int:
        joining: list[PagedEntry] = []
        fits, rows, sources, cells = 0, self.reserved_rows, 0, 0
        for entry in waiting:
            rows += entry.request.plan.rows
            sources += _source_tokens(self.model, entry.request) if self.crossing.any() else 0
            cells += _needed(entry.request)
            room = self.pool.available + (self.prefixes.size if self.prefixes else 0)
            if rows > self.max_rows or sources > self.memory.available or (fits and cells > room):
                break
            fits += 1
        few = fits < len(waiting) and rows - self.reserved_rows < self.max_rows // 4
        if self.busy and few:  # several at once, for their encoder
            return 0
        for entry in waiting[:fits]:
            if (one := self._reserve(entry)) is None:
                break
            joining.append(one)
        for one in joining:
            self.of[one.entry] = one
            self.reserved_rows += one.entry.request.plan.rows
        if joining and self.crossing.any():
            try:
                self._encode(joining)
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
        needed = _needed(entry.request) - len(known)
        if self.prefixes is not None and needed > self.pool.available:
            self.pool.give_back(self.prefixes.evict(needed - self.pool.available))
        if needed > self.pool.available:
            if node is not None and self.prefixes is not None:
                self.prefixes.leave(node)
            return None
        self.pool.promised += needed
        self.numbers += 1
        return PagedEntry(entry, self.numbers, needed, known, node)

    def _encode(self, joining: list[PagedEntry]) -> None:
        """Keys and values of what new sources say, for every layer that looks at them."""
        from clearformer.kernels.native.launch import Job, wide
        from clearformer.kernels.native.paged_kv import Texts
        from clearformer.kernels.native.runtime import at_most

        assert isinstance(self.model, EncoderDecoder)
        device = torch.device("cpu")
        with at_most(self.threads):
            states, places = encoded_sources(self.model, [one.entry.request for one in joining], device)
            texts = Texts.of(places, len(states))
            rows = wide(states.flatten(0, 1) if places.start is not None else states[places.real])
            self.memory.promised += len(rows)
            owners = np.repeat(np.array([one.number for one in joining]), texts.count)
            cells = self.memory.take(owners, len(rows))
            ends = np.cumsum(texts.count)
            for one, end, count in zip(joining, ends.tolist(), texts.count.tolist(), strict=True):
                one.memory, one.sources = np.ascontiguousarray(cells[end - count : end]), count
            job = Job(self.stack.memories, rows)
            job.keys(self.addresses, cells)
            job.run(texts.position)

    # --- a step -----------------------------------------------------------------------------------------------

    def step(self) -> tuple[list[Entry], Best | None]:
        from clearformer.kernels.native.runtime import at_most

        pieces = self._pieces()
        ended = [one for one, stop in pieces if stop == len(one.ids)]
        began = time.perf_counter()
        with at_most(1 if self.weights <= TINY and self.count <= 8 and not pieces else self.threads):
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
        from clearformer.kernels.native import isa
        from clearformer.kernels.native.fused_step import fused_step
        from clearformer.kernels.native.launch import Job, at
        from clearformer.kernels.native.paged_kv import span
        from clearformer.kernels.native.topk import Ranking, scratch

        n, ranked = self.count, self.count + len(ended)
        ids, position, lists = (
            [self.token[:n]],
            [self.length[:n]],
            [at(self.table) + 4 * self.table.shape[1] * np.arange(n)],
        )
        source_at, source_count = [self.source_at[:n]], [self.source_count[:n]]
        new = [self.pool.take(self.owner[:n], n)]
        self.table[np.arange(n), self.length[:n]] = new[0]
        firsts, rests = [], []  # the rows of pieces: what is ranked comes first
        for one, stop in pieces:
            cells = self.pool.take(one.number, stop - one.read)
            one.cells[one.read : stop] = cells
            last = stop - 1 if stop == len(one.ids) else stop
            if last < stop:
                firsts.append((one, last, stop))
            if one.read < last:
                rests.append((one, one.read, last))
        for one, start, stop in (*firsts, *rests):
            ids.append(one.ids[start:stop])
            position.append(np.arange(start, stop))
            lists.append(np.full(stop - start, at(one.cells)))
            new.append(one.cells[start:stop])
            source_at.append(np.full(stop - start, at(one.memory)))
            source_count.append(np.full(stop - start, one.sources))
        places = np.concatenate(position)
        length = places + 1
        step = fused_step(self.stack, self.model.head)
        assert step is not None
        longest = max(int(length.max()), max((one.sources for one in self.of.values()), default=1))
        rows = torch.empty(len(places), isa.stride(self.stack.width))
        job = Job(step.program, rows, longest, scratch(max(ranked, 1)))
        job.keys(self.addresses, np.concatenate(new))
        if self.crossing.any():
            job.sees(isa.MEMORY, np.concatenate(source_at), 0, np.concatenate(source_count))
        for number, pattern in enumerate(self.stack.program.patterns, 1 + isa.MEMORY):
            job.sees(number, np.concatenate(lists), *span(pattern, places, length))
        job.ids(np.ascontiguousarray(np.concatenate(ids)))
        searches = [entry.search for entry in (*self.entries, *(one.entry for one in ended))]
        wanted = [search.wanted() for search in searches]
        keep = max([count for count in wanted if count != ALL] + [search.best for search in searches] + [1])
        heat = None
        if any(search.temperature != 1.0 for search in searches):
            counts = [entry.rows for entry in self.entries] + [1] * len(ended)
            heat = np.repeat(np.array([1 / each.temperature for each in searches], dtype=np.float32), counts)
        ranking = Ranking(job, keep, step.outputs, ranked, heat, whole=ALL in wanted)
        job.run(places)
        if not ranked:
            return None
        totals = ranking.totals[:, 0]
        product = self.model.head.ready()

        def logits(row: int) -> Array:
            """Kept, or made from the row's state."""
            if ranking.logits is not None:
                return ranking.logits[row]
            assert product is not None
            return product(rows[row : row + 1, : self.stack.width]).numpy()[0]

        return Best(ranking.numbers[0], ranking.places[0], totals[:, 0], totals[:, 1], totals[:, 2], logits)

    def _join(self, one: PagedEntry) -> None:
        """A prompt that was read becomes a row."""
        self.prefilling.remove(one)
        self._widen(len(one.ids) + 1)
        n = self.count
        self.table[n, : len(one.cells)] = one.cells
        self.length[n], self.owner[n] = len(one.ids), one.number
        self.source_count[n] = one.sources
        self.source_at[n] = one.memory.__array_interface__["data"][0]
        self.count += 1
        self.entries.append(one.entry)
        if self.prefixes is not None and one.node is not None:
            self._remember(one, one.ids, one.cells)

    def _remember(self, one: PagedEntry, tokens: Array, cells: Array) -> None:
        """Let the prefix cache keep what was read."""
        assert self.prefixes is not None and one.node is not None
        kept, one.node = self.prefixes.insert(tokens, cells, one.node)
        self.pool.owner[kept] = -2  # the cache's
        one.kept += len(kept)

    def _widen(self, longest: int) -> None:
        if longest > self.table.shape[1]:
            wide = np.zeros((self.max_rows, 2 * longest), dtype=np.int32)
            wide[:, : self.table.shape[1]] = self.table
            self.table, self.spare = wide, wide.copy()

    # --- going on and leaving -----------------------------------------------------------------------------------

    def advance(self, moves: Moves) -> None:
        rows: list[int] = []
        tokens: list[int] = []
        kept, first, gone = [], 0, []
        for entry, step in moves:
            if step is not None:
                rows += [first + row for row in step[0]] if first else step[0]
                tokens += step[1]
                kept.append(entry)
                first, entry.rows = first + entry.rows, len(step[0])
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
        if (
            row is not None
            and self.prefixes is not None
            and one.node is not None
            and len(getattr(search, "texts", ())) == 1
        ):
            length = int(self.length[row])
            tokens = np.concatenate([one.ids, np.array(search.texts[0], dtype=np.int64)])[:length]  # type: ignore[union-attr]
            self._remember(one, tokens, self.table[row, :length])
        if one.node is not None and self.prefixes is not None:
            self.prefixes.leave(one.node)
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


def _needed(request: Request) -> int:
    """Cells that a request may use: its prompt's, and one for every token of every row but the last."""
    return len(request.prompt) + request.plan.rows * request.plan.limit


def _source_tokens(model: Model, request: Request) -> int:
    if isinstance(request.source, torch.Tensor) and request.source.is_floating_point():
        assert isinstance(model, EncoderDecoder)
        return int(model.encoder.embed.count)  # type: ignore[arg-type]
    return len(request.source)
