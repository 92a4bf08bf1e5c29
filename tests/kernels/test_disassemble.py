"""Programs as text."""

import json

import pytest
import torch
from typer.testing import CliRunner

import clearformer as cf
from clearformer.cli import app
from clearformer.errors import DataError
from clearformer.kernels.native import isa, processor
from clearformer.kernels.native.disassemble import BARRIER, buffer, line, listings
from clearformer.kernels.native.program import Program
from clearformer.kernels.pack import pack, plain
from tests.laws.cases import ALL, Case
from tests.laws.test_packed import FITTING

LLAMA = """\
operations: 32, barriers: 18
buffers: STATES 32, NORMED 32, QUERIES 32, MIXED 32, INNER 48, GATES 48, NEW_KEYS 16, NEW_VALUES 16
with vectors given instead of tokens: from 1 on
   0 ┌ pick      tokens → STATES                            32              times 1
   1 └ norm      STATES → NORMED                            32              RMSNorm
       ─ barrier ─
   2   linear    NORMED → QUERIES                           32 → 32         float32
   3   linear    NORMED → NEW_KEYS                          32 → 16         float32
   4   linear    NORMED → NEW_VALUES                        32 → 16         float32
       ─ barrier ─
   5 ┌ rotate    NEW_KEYS                                   2 × 8           rotary, by halves
   6 │ store     NEW_KEYS → keys 0                          16              each row to its cell
   7 │ store     NEW_VALUES → values 0                      16              each row to its cell
   8 └ rotate    QUERIES                                    4 × 8           rotary, by halves
       ─ barrier ─
   9   attend    QUERIES, keys 0, values 0 → MIXED          4 × 8           causal, scale 0.353553, 2 key heads (GQA)
       ─ barrier ─
  10   linear    MIXED → STATES                             32 → 32         float32, added
       ─ barrier ─
  11   norm      STATES → NORMED                            32              RMSNorm
       ─ barrier ─
  12   linear    NORMED → GATES                             32 → 48         float32
  13   linear    NORMED → INNER                             32 → 48         float32
       ─ barrier ─
  14   activate  GATES                                      48              silu, times INNER
       ─ barrier ─
  15   linear    GATES → STATES                             48 → 32         float32, added
       ─ barrier ─
"""


def test_a_program_reads_as_what_it_does() -> None:
    model = pack(cf.build(cf.presets.llama("tiny"), seed=0))
    text = str(model.stack.program)  # type: ignore[union-attr]
    assert text.startswith(LLAMA), text


def test_int8_is_shown() -> None:
    model = pack(cf.build(cf.presets.llama("tiny"), seed=0), "int8")
    lines = str(model.stack.program).splitlines()  # type: ignore[union-attr]
    assert "linear    QUANTISED → QUERIES                        32 → 32         int8" in lines[7]
    assert "2 └ quantise  NORMED → QUANTISED" in lines[5]
    assert lines[5].endswith("int8 in groups of 64" if processor.multiplies_bytes() else "int16 up to ±32767")


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("case", FITTING, ids=str)
def test_all_of_any_program_is_listed(case: Case, precision: str) -> None:
    """Every operation has its own line, and a barrier is where the table has a wait."""
    for stack in pack(case.model(), precision).children():
        program = getattr(stack, "program", None)
        if isinstance(program, Program):
            rows, lines = isa.table(program.operations), str(program).splitlines()
            first = next(n for n, words in enumerate(lines) if words.startswith("   0 "))
            for number, (row, operation) in enumerate(zip(rows, program.operations, strict=True)):
                assert lines[first].split()[0] == str(number)
                assert type(operation).__name__.lower() in lines[first]
                assert "=" not in lines[first]  # in words, not field by field
                assert (lines[first + 1 : first + 2] == [f"{'':7}{BARRIER}"]) == bool(row[isa.WAIT])
                first += 1 + row[isa.WAIT]
            assert first == len(lines)


def test_what_has_no_words_is_listed_field_by_field() -> None:
    class Unknown(isa.NamedTuple):  # type: ignore[misc]
        source: int
        width: int

    assert line(Unknown(1, 20), Program()).flow == "source=1, width=20"  # type: ignore[arg-type]


def test_every_buffer_has_its_name() -> None:
    names = [buffer(number) for number in range(isa.FIRST_KEYS)]
    assert [getattr(isa, name) for name in names] == list(range(isa.FIRST_KEYS))
    assert [buffer(number) for number in isa.keys(3)] == ["keys 3", "values 3"]


def test_a_stack_without_a_program_says_why() -> None:
    case = next(each for each in ALL if each not in FITTING)
    (words,) = set(listings(pack(case.model())).values())
    assert words.startswith("no program: ")


def test_a_model_that_runs_by_modules_is_listed_too() -> None:
    with torch.no_grad():
        model = plain(pack(cf.build(cf.presets.llama("tiny"), seed=0)))
    assert listings(model) == {"stack": "no program: it was packed without"}


def test_inspect_shows_the_program() -> None:
    done = CliRunner().invoke(app, ["inspect", "en-de", "--program", "--precision", "int8"])
    assert done.exit_code == 0, done.output
    assert "encoder\noperations: " in done.output
    assert "NEW_KEYS → keys 1" in done.output.split("decoder, keys and values of its memory")[1]
    asked = ["inspect", "en-de", "--program", "--precision", "float32", "--json"]
    found = json.loads(CliRunner().invoke(app, asked).output)
    assert list(found["programs"]) == ["encoder", "decoder", "decoder, keys and values of its memory"]
    assert "float32" in found["programs"]["encoder"]


def test_a_precision_belongs_to_a_program() -> None:
    done = CliRunner().invoke(app, ["inspect", "en-de", "--precision", "int8"])
    assert isinstance(done.exception, DataError)
    assert "--program" in str(done.exception)
