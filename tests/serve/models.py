"""Tiny models with random weights, as a server has them: one that chats, one without a template, one that embeds."""

from functools import cache
from pathlib import Path

import clearformer as cf
from clearformer import presets
from clearformer.kernels.pack import pack
from clearformer.serve.registry import Registry, ServedModel
from clearformer.tasks.complete import Completer
from clearformer.tasks.embed import Embedder
from tests.laws.cases import loud
from tests.serve.asking import Asking
from tests.tasks.writers import TEMPLATE, generation, words

POSITIONS = 700
CREATED = 1_700_000_000


def completer(template: str | None = TEMPLATE, **changed: object) -> Completer:
    """Packed, as it is served: on the paged KV cache, with a prefix cache."""
    found = words(template=template)
    model = pack(loud(cf.build(presets.llama("tiny", vocabulary=len(found)), seed=4)).eval(), "float32")
    metadata = {"task": "complete", "longest": POSITIONS, "generation": generation(**{"bos_token_id": 1, **changed})}
    return Completer(model, found, metadata)  # type: ignore[arg-type]


def embedder() -> Embedder:
    found = words()
    model = loud(cf.build(presets.bert("tiny", vocabulary=len(found)), seed=2)).eval()
    return Embedder(model, found, {"task": "embed", "longest": 40, "normalise": True})  # type: ignore[arg-type]


def served(**tasks: object) -> Registry:
    return Registry([ServedModel(name, task, Path(), CREATED) for name, task in tasks.items()])


@cache
def usual() -> Asking:
    """One server for all tests of protocols that write."""
    spelt = completer(suppress_tokens=[0, 1, *range(3, 260)])  # says no bytes that are no characters
    return Asking(registry=served(chat=completer(), plain=completer(None), spelt=spelt, vectors=embedder()))
