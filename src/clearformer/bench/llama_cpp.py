"""llama.cpp through its own functions: nothing of Python's between two steps but the choice of the likeliest token.

Several texts are decoded in parallel, as sequences of one batch.
"""

import ctypes
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

library: Any = import_module("llama_cpp")
LONGEST = 512  # tokens in one call
_silent = library.llama_log_callback(lambda level, text, data: None)


class Place(NamedTuple):
    """A token of a text, and whether the logits after it are asked for."""

    row: int
    position: int
    token: int
    asked: bool


class Model:
    """A GGUF file and a KV cache for so many texts and tokens."""

    def __init__(self, path: str, threads: int, texts: int, tokens: int):
        library.llama_log_set(_silent, ctypes.c_void_p(0))
        library.llama_backend_init()
        self.model = library.llama_model_load_from_file(path.encode(), library.llama_model_default_params())
        options = library.llama_context_default_params()
        options.n_ctx, options.n_seq_max, options.kv_unified = tokens, texts, True
        options.n_batch = options.n_ubatch = LONGEST
        options.n_threads = options.n_threads_batch = threads
        self.context = library.llama_init_from_model(self.model, options)
        if not self.context:
            raise RuntimeError(f"llama.cpp cannot run {path}")
        self.words = library.llama_vocab_n_tokens(library.llama_model_get_vocab(self.model))
        self.batch = library.llama_batch_init(LONGEST, 0, 1)

    def use(self, threads: int) -> None:
        library.llama_set_n_threads(self.context, threads, threads)

    def complete(
        self, prompts: list[list[int]], count: int, *, ends: Sequence[int] = (), top_p: float | None = None
    ) -> list[list[int]]:
        """Up to `count` tokens after each prompt, the likeliest or, with `top_p`, drawn; an end is the last."""
        library.llama_memory_clear(library.llama_get_memory(self.context), True)
        sampler = None if top_p is None else _sampler(top_p)
        found: list[list[int]] = [[] for _ in prompts]
        new = [
            Place(row, n, token, n == len(tokens) - 1)
            for row, tokens in enumerate(prompts)
            for n, token in enumerate(tokens)
        ]
        try:
            while new:
                chosen = self._step(new, sampler)
                for row, token in chosen.items():
                    found[row].append(token)
                new = [
                    Place(row, len(prompts[row]) + len(found[row]) - 1, token, True)
                    for row, token in chosen.items()
                    if len(found[row]) < count and token not in ends
                ]
            return found
        finally:
            if sampler is not None:
                library.llama_sampler_free(sampler)

    def _step(self, places: list[Place], sampler: Any) -> dict[int, int]:
        """The token that follows each row of which it was asked, after as many calls as its tokens need."""
        batch, chosen = self.batch, {}
        for first in range(0, len(places), LONGEST):
            some = places[first : first + LONGEST]
            for n, each in enumerate(some):
                batch.token[n], batch.pos[n] = each.token, each.position
                batch.n_seq_id[n], batch.seq_id[n][0] = 1, each.row
                batch.logits[n] = each.asked
            batch.n_tokens = len(some)
            if library.llama_decode(self.context, batch) != 0:
                raise RuntimeError("llama.cpp could not decode")
            for n, each in enumerate(some):
                if each.asked:
                    chosen[each.row] = self._chosen(n, sampler)
        return chosen

    def _chosen(self, place: int, sampler: Any) -> int:
        if sampler is not None:
            return int(library.llama_sampler_sample(sampler, self.context, place))
        logits = library.llama_get_logits_ith(self.context, place)
        return int(np.argmax(np.ctypeslib.as_array(logits, shape=(self.words,))))


def _sampler(top_p: float) -> Any:
    chain = library.llama_sampler_chain_init(library.llama_sampler_chain_default_params())
    for part in (
        library.llama_sampler_init_top_p(top_p, 1),
        library.llama_sampler_init_temp(1.0),
        library.llama_sampler_init_dist(0),
    ):
        library.llama_sampler_chain_add(chain, part)
    return chain
