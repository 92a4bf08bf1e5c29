"""The worked numbers of the lecture notes, recomputed once in double precision and copied here as literals."""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
import torch
import typer
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from clearformer.cli.notes import register
from clearformer.errors import ClearformerError, DataError
from clearformer.notes import EXAMPLES, Section, get, parts
from clearformer.notes.positions import save_heatmap
from clearformer.notes.render import draw, number


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """The tensors are tiny: on a busy machine a second thread is only waited for."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def sections(name: str) -> tuple[Section, ...]:
    return tuple(get(name).run())


def flat(name: str) -> list[Section]:
    return [inner for s in sections(name) for inner in (s.parts if isinstance(s, parts.Beside) else (s,))]


def values(name: str, title: str) -> list[list[float]]:
    found = [s for s in flat(name) if isinstance(s, parts.Matrix) and s.title == title]
    assert len(found) == 1, f"{len(found)} matrices called {title!r} in {name}"
    return [[round(x, 4) + 0.0 for x in row] for row in found[0].values]


def slips(name: str) -> list[parts.Slip]:
    return [s for s in sections(name) if isinstance(s, parts.Slip)]


# --- the worked numbers -----------------------------------------------------------------------------------


WORKED = {
    # N2, self-attention numerical
    ("numerical", "X"): [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]],
    ("numerical", "Q"): [[1, 0, 2], [2, 2, 2], [2, 1, 3]],
    ("numerical", "K"): [[0, 1, 1], [4, 4, 0], [2, 3, 1]],
    ("numerical", "V"): [[1, 2, 3], [2, 8, 0], [2, 6, 3]],
    ("numerical", "Q Kᵀ"): [[2, 4, 4], [4, 16, 12], [4, 12, 10]],
    ("numerical", "output"): [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]],
    ("numerical", "output, scaled"): [[1.8639, 6.3194, 1.7042], [1.9991, 7.8141, 0.2735], [1.9926, 7.4796, 0.7359]],
    # N2, look-ahead mask
    ("mask", "softmax of the masked scores"): [
        [1, 0, 0, 0],
        [0.3775, 0.6225, 0, 0],
        [0.2584, 0.3156, 0.4260, 0],
        [0.2144, 0.2619, 0.2619, 0.2619],
    ],
    # N1
    ("softmax", "softmax([3, 2])"): [[0.7311, 0.2689]],
    ("softmax", "softmax([1, 0, 1])"): [[0.4223, 0.1554, 0.4223]],
    ("softmax", "their sum, the output for «The»"): [[0.4223, 0.5777, 0.8446, 0.1554]],
    # N3
    ("positions", "PE"): [
        [0, 1, 0, 1, 0, 1],
        [0.8415, 0.5403, 0.0464, 0.9989, 0.0022, 1.0000],
        [0.9093, -0.4161, 0.0927, 0.9957, 0.0043, 1.0000],
    ],
    ("words", "S1, as given"): [[0.7, 0.2, 0.1], [0.25, 0.7, 0.05], [0.1, 0.2, 0.7]],
    ("words", "S2, as given"): [[0.8, 0.15, 0.05], [0.2, 0.78, 0.02], [0.4, 0.01, 0.59]],
    ("bank", "weights"): [[0.7, 0.2, 0.1], [0.25, 0.7, 0.05], [0.1, 0.2, 0.7]],
    # N4's columns: N2's output, transposed
    ("columns", "Z = V · weights"): [[1.8639, 1.9991, 1.9926], [6.3194, 7.8141, 7.4796], [1.7042, 0.2735, 0.7359]],
}


@pytest.mark.parametrize(("name", "title"), WORKED, ids=lambda x: x)
def test_worked_numbers(name: str, title: str) -> None:
    assert values(name, title) == WORKED[name, title]


def test_first_rows_of_the_numerical_weights() -> None:
    assert values("numerical", "weights")[0] == [0.0634, 0.4683, 0.4683]
    assert values("numerical", "weights, scaled")[0] == [0.1361, 0.4319, 0.4319]


def test_masked_scores_are_minus_infinity_above_the_diagonal() -> None:
    masked = values("mask", "masked scores")
    assert [[x == float("-inf") for x in row] for row in masked] == [[j > i for j in range(4)] for i in range(4)]
    assert [row[: i + 1] for i, row in enumerate(masked)] == [[0.7], [0.1, 0.6], [0.1, 0.3, 0.6], [0.1, 0.3, 0.3, 0.3]]


def test_norms_of_the_n3_table_by_hand() -> None:
    # s1 = 2 3 7 5 4: mean 4.2, variance 2.96; f1 = 2 1 5 6 7: mean 4.2, variance 5.36
    assert values("norms", "layer norm")[0] == [-1.2787, -0.6975, 1.6275, 0.4650, -0.1162]
    assert [row[0] for row in values("norms", "batch norm")] == [-0.9503, -1.3822, 0.3455, 0.7775, 1.2094]


def test_parameter_counts_of_the_published_models() -> None:
    table = next(s for s in sections("families") if isinstance(s, parts.Table) and "parameters" in s.columns)
    counts = {row[1]: int(row[-1].replace(",", "")) for row in table.rows}
    assert counts["BERT base"] == 109_482_240
    assert counts["DistilBERT"] == 66_362_880
    assert counts["GPT-2"] == 124_439_808
    assert counts["T5 small"] == 60_506_624
    assert counts["FLAN-T5 small"] == 76_961_152
    assert counts["Llama 2 7B"] == 6_738_415_616
    assert counts["ViT B/16"] == 86_567_656


# --- the slips --------------------------------------------------------------------------------------------

SLIPS = [
    ("words", "0.2 money + 0.7 bank + 0.1 grows", "0.25, 0.7 and 0.05"),
    ("words", "0.5 river + 0.4 bank + 0.1 flows", "0.2, 0.78 and 0.02"),
    ("words", "[0.8, 0.1]", "[0.9, 0.1]"),
    ("words", "E_cat = [0 1 0 1]", "cat [0 1 0]"),
    ("bank", "the dot products themselves as weights", "the softmax"),
    ("bank", "weights of S1", "0.0010 one way and 0.0050"),
    ("softmax", "(0.75, 0.25)", "[0.7311, 0.2689]"),
    ("softmax", "3/2 = 1", "1.5"),
    ("softmax", "0.4221", "[0.4223, 0.1554, 0.4223]"),
    ("softmax", "[1.2669, 0.7999, 1.2669, 0.7999]", "[0.4223, 0.5777, 0.8446, 0.1554]"),
    ("softmax", "[0.4223, 0.4223, 0.4223, 0]", "[0.0000, 0.4223, 0.4223, 0.0000]"),
    ("numerical", "d_k as the dimension", "queries and keys"),
    ("scaling", "exploding", "vanishing"),
    ("heads", "head 1 + self-attention head 2", "W_O"),
    ("positions", "PE(pos, i)", "PE(pos, 2i)"),
    ("positions", "10000^(2i/p)", "10000^(2i/d)"),
    ("order", "q_i = old q_i + p_i", "W_Q (x_i + p_i)"),
    ("norms", "(X + Z) + R", "LayerNorm(X + Z) + R"),
    ("mask", "j < i", "j ≤ i"),
    ("mask", "Softmax(grid)", "[1.0, 1.0, 1.1, 1.0]"),
    ("mask", "0.37 and 0.62", "0.3775, 0.6225 and 0.3156"),
    ("columns", "softmax(QᵀK/√p)", "softmax(KᵀQ/√p)"),
    ("columns", "x_iᵀ W_Q W_Kᵀ x_i", "x_iᵀ W_Q W_Kᵀ x_j"),
    ("cross", "only relies on the K and V of the word I", "all source words"),
    ("cross", "output sequences", "words of the output sequence"),
    ("teacher-forcing", "append <start>", "in front"),
    ("families", "top 5", "four"),
    ("recurrence", "unparallelizable", "one pass a word"),
]


@pytest.mark.parametrize(("name", "printed", "right"), SLIPS)
def test_slips_are_pointed_out(name: str, printed: str, right: str) -> None:
    assert any(printed in slip.notes_say and right in slip.right for slip in slips(name))


# --- every example ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_every_check_of_every_example_holds(example: parts.Example) -> None:
    assert [s.claim for s in sections(example.name) if isinstance(s, parts.Check) and not s.holds] == []


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_every_example_fits_the_page(example: parts.Example, width: int) -> None:
    page = Console(file=StringIO(), width=width, color_system=None)
    for section in sections(example.name):
        page.print(draw(section))
    lines = page.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len([line for line in lines if line.strip()]) >= 10
    assert max(cell_len(line) for line in lines) <= width
    written = {
        number(x, s.decimals) for s in flat(example.name) if isinstance(s, parts.Matrix) for r in s.values for x in r
    }
    assert all(any(text in line for line in lines) for text in written)


@pytest.mark.parametrize("coloured", [True, False])
def test_the_heat_map_is_drawn_with_and_without_colour(coloured: bool) -> None:
    picture = next(s for s in sections("positions") if isinstance(s, parts.Picture))
    assert (len(picture.values), len(picture.values[0])) == (50, 128)
    page = Console(file=StringIO(), width=140, force_terminal=coloured, color_system="truecolor" if coloured else None)
    page.print(draw(picture))
    drawn = page.file.getvalue()  # type: ignore[attr-defined]
    assert drawn.count("▀") == (25 * 128 if coloured else 0)
    assert coloured or drawn.splitlines()[2].strip() == "▒█" * 64  # position 0 is 0, 1, 0, 1, ...


def test_numbers_are_written_as_people_write_them() -> None:
    assert [number(x, 4) for x in (float("-inf"), -0.4161, -0.00001, 1.0)] == ["−∞", "−0.4161", "0.0000", "1.0000"]


# --- finding and showing ----------------------------------------------------------------------------------


def test_examples_are_numbered_in_order_and_found_either_way() -> None:
    assert [e.number for e in EXAMPLES] == list(range(1, 23))
    assert all(get(e.name) is get(e.number) is get(str(e.number)) is e for e in EXAMPLES)


def test_an_unknown_example_is_an_error_that_offers_the_nearest() -> None:
    with pytest.raises(DataError, match=r"no example .nonsense.*1 to 22"):
        get("nonsense")
    with pytest.raises(DataError, match="did you mean 'numerical'"):
        get("numericla")


def test_command_lists_and_shows() -> None:
    app = typer.Typer()
    register(app)
    listed = CliRunner().invoke(app, []).output
    assert all(e.name in listed for e in EXAMPLES)
    shown = CliRunner().invoke(app, ["softmax", "--plain"]).output
    assert "0.7311" in shown
    assert "slip" in shown
    assert "\x1b[" not in shown


def test_importing_and_listing_leave_torch_alone() -> None:
    code = "import sys, clearformer.notes.render, clearformer.cli.notes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_saving_the_heat_map_names_the_extra_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ClearformerError, match=r"clearformer\[plot\]"):
        save_heatmap(tmp_path / "positions.png")


def test_saving_the_heat_map(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    save_heatmap(tmp_path / "positions.png")
    assert (tmp_path / "positions.png").stat().st_size > 1000
