"""Packed models in other processes: pickled for new ones, and in copies of this one."""

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import clearformer as cf
from clearformer.kernels import pack as packing
from clearformer.kernels.native.stack import NativeStack
from clearformer.kernels.pack import pack
from tests.laws.cases import Case
from tests.laws.test_packed import FITTING, answer, precisions
from tests.tasks import writers

SRC = Path(packing.__file__).parents[2]


@precisions
@pytest.mark.parametrize("case", FITTING, ids=str)
def test_a_pickled_model_gives_the_same_bits(case: Case, precision: str) -> None:
    with torch.inference_mode():
        model = pack(case.model(), precision)
        wanted = answer(case, model)  # a program that has run has tables, rooms and a fused step
        twin = pickle.loads(pickle.dumps(model))
        assert [type(part) for part in twin.modules()] == [type(part) for part in model.modules()]
        assert torch.equal(answer(case, twin), wanted)
        assert twin.training == model.training


def test_a_copy_stands_on_its_own() -> None:
    with torch.inference_mode(False), torch.no_grad():
        model, ids = pack(cf.build(cf.presets.llama("tiny"), seed=0)), torch.tensor([[3, 1, 2]])
        wanted = model(ids)
        for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            for one, other in zip(_stacks(twin), _stacks(model), strict=True):
                assert not _addresses(one) & _addresses(other)
            for parameter in twin.parameters():
                parameter.zero_()
            assert not torch.equal(twin(ids), wanted)
            assert torch.equal(model(ids), wanted)
            twin.load_state_dict(model.state_dict())  # which still makes its programs anew
            assert torch.equal(twin(ids), wanted)


def _stacks(model: torch.nn.Module) -> list[NativeStack]:
    return [part for part in model.modules() if isinstance(part, NativeStack)]


def _addresses(stack: NativeStack) -> set[int]:
    named = [each._asdict() for each in stack.program.operations]
    return {each[name] for each in named for name in ("weight", "table", "angles") if each.get(name)}


def _translated(translator: object) -> tuple[list[str], str, int]:
    (found,) = translator.translate(["How are you?"])  # type: ignore[attr-defined]
    return list(found.tokens), type(translator.model.encoder).__name__, os.getpid()  # type: ignore[attr-defined]


def test_a_loaded_model_goes_to_a_spawned_process() -> None:
    translator = cf.load("en-de", precision="int8")
    tokens, kind, _ = _translated(translator)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        theirs = pool.apply_async(_translated, (translator,)).get(timeout=120)
    assert (tokens, kind) == theirs[:2]
    assert kind == "NativeStack"
    assert theirs[2] != os.getpid()


def test_a_completer_that_has_chatted_can_be_pickled() -> None:
    completer = writers.completer(writers.TEMPLATE)
    completer.model = pack(completer.model)
    said = [{"role": "user", "content": "one two"}]
    wanted = completer.chat(said)
    assert pickle.loads(pickle.dumps(completer)).chat(said) == wanted


FORK = """
import os, torch, clearformer as cf
torch.set_num_threads(2)
translator = cf.load("en-de", precision="int8")
texts = ["How are you?", "The old man reads a book in the garden."]
wanted = [each.text for each in translator.translate(texts)]  # OpenMP has its threads now
child = os.fork()
if child == 0:
    found = [each.text for each in translator.translate(texts)]
    os._exit(0 if found == wanted else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert [each.text for each in translator.translate(texts)] == wanted
from clearformer.kernels.native.runtime import machine
assert machine().threads == 2 or machine().team is None
print(code)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_loaded_model_answers_after_fork() -> None:
    """The threads of OpenMP are not there in the copy; a model that ran with two must not wait for them."""
    assert _run(FORK) == "0"


FORCED = """
import os, torch
from clearformer.kernels.native.heads import Product
torch.set_num_threads(2)
with torch.inference_mode():
    x, product = torch.randn(3, 40), Product(torch.randn(64, 40), None)
    wanted = product(x)
    child = os.fork()
    if child == 0:
        torch.set_num_threads(2)  # whatever is said there
        os._exit(0 if torch.equal(product(x), wanted) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_the_machine_has_one_thread_after_fork() -> None:
    assert _run(FORCED) == "0"


def _run(script: str) -> str:
    """What a script prints; one that hangs is ended, its children too."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])}
    started = subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        return started.communicate(timeout=90)[0].strip()
    finally:
        if started.poll() is None:
            os.killpg(started.pid, 9)
            started.wait()
