"""llama.cpp through its own functions: nothing of Python's between two steps but the choice of the likeliest token."""

import ctypes
from importlib import import_module
from typing import Any

import numpy as np

library: Any = import_module("llama_cpp")
LONGEST = 512  # tokens in one call
_silent = library.llama_log_callback(lambda level, text, data: None)


class Model:
    """A GGUF file and a cache for so many texts and tokens."""

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

    def greedy(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        """The likeliest `count` tokens after each prompt; all prompts go in together."""
        library.llama_memory_clear(library.llama_get_memory(self.context), True)
        found: list[list[int]] = [[] for _ in prompts]
        new, past = prompts, 0
        while True:
            for row, token in enumerate(self._step(new, past)):
                found[row].append(token)
            if len(found[0]) == count:
                return found
            past += len(new[0])
            new = [row[-1:] for row in found]

    def _step(self, rows: list[list[int]], past: int) -> list[int]:
        """One call with the new tokens of every row; the likeliest that follows each."""
        batch, place, last = self.batch, 0, []
        for row, tokens in enumerate(rows):
            for number, token in enumerate(tokens):
                batch.token[place], batch.pos[place] = token, past + number
                batch.n_seq_id[place], batch.seq_id[place][0] = 1, row
                batch.logits[place] = number == len(tokens) - 1
                place += 1
            last.append(place - 1)
        batch.n_tokens = place
        if library.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama.cpp could not decode")
        return [self._likeliest(each) for each in last]

    def _likeliest(self, place: int) -> int:
        logits = library.llama_get_logits_ith(self.context, place)
        return int(np.argmax(np.ctypeslib.as_array(logits, shape=(self.words,))))
