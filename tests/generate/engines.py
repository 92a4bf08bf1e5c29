"""What the tests of the engine share: tiny packed models, short requests, and a look at whether all cells are there."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

import clearformer as cf
from clearformer import presets
from clearformer.generate.batch import Model
from clearformer.generate.engine import Engine
from clearformer.generate.options import GenerationOptions, plan
from clearformer.generate.paged_batch import PagedBatch
from clearformer.generate.requests import Request, Written
from clearformer.kernels.pack import pack
from tests.laws.cases import loud

VOCABULARY = 100
PATIENCE = 60.0  # seconds after which a test that hangs fails
HOOKS = ("text", "stop", "allowed", "watch", "on_token")


@cache
def model(name: str = "llama", packed: bool = True) -> Model:
    made = loud(cf.build(getattr(presets, name)("tiny", vocabulary=VOCABULARY), seed=3)).eval()
    return pack(made, "float32") if packed else made


def request(prompt: Sequence[int] = (1, 2, 3), source: Any = None, **given: Any) -> Request:
    """With fields of the options and hooks; eight tokens where nothing is said."""
    hooks: dict[str, Any] = {name: given.pop(name) for name in HOOKS if name in given}
    options = GenerationOptions(**{"max_new_tokens": 8, **given})
    return Request(list(prompt), plan(options, len(prompt)), source=source, **hooks)


def alone(each: Request, name: str = "llama", packed: bool = True) -> list[Written]:
    with Engine(model(name, packed), kv_cache_tokens=1024) as engine:
        return engine.run([each])[0]


def batch(engine: Engine, lane: int = 0) -> PagedBatch:
    found = engine.lanes[lane].batch
    assert isinstance(found, PagedBatch)
    return found


def one_lane(**given: Any) -> Engine:
    """An engine whose requests all share one batch: tests have one thread."""
    assert torch.get_num_threads() == 1
    engine = Engine(model(given.pop("name", "llama")), **{"kv_cache_tokens": 1024, **given})
    assert len(engine.lanes) == 1
    return engine


def check_whole(engine: Engine) -> None:
    """Nothing is under way, and every cell is free or the prefix cache's."""
    for lane in range(len(engine.lanes)):
        found = batch(engine, lane)
        with engine.lanes[lane].lock:
            assert not engine.lanes[lane].active
            assert not found.of
            assert not found.entries
            assert not found.prefilling
            kept = 0 if found.prefixes is None else found.prefixes.size
            assert found.pool.left == found.pool.size - kept
            assert (found.pool.promised, found.memory.promised, found.reserved_rows) == (0, 0, 0)
            assert found.memory.left == found.memory.size
            free = found.pool.free[: found.pool.left].tolist()
            assert len(set(free)) == len(free)


def fails(*_: Any) -> Any:
    raise RuntimeError("broken on purpose")


def after(count: int, then: Callable[[], Any]) -> Callable[[Any], Any]:
    """A hook that does something when it is called for the time number `count`."""
    calls = [0]

    def hook(*_: Any) -> None:
        calls[0] += 1
        if calls[0] == count:
            then()

    return hook
