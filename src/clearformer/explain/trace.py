"""Looking inside a run: every step by its address, its arithmetic, and what happens when a value is changed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

from clearformer.core.attention import Attention
from clearformer.core.model import EncoderDecoder, Transformer
from clearformer.errors import TraceError
from clearformer.explain import address, cell, show
from clearformer.explain.address import shorten
from clearformer.explain.changes import Changes, Changing, index, unknown
from clearformer.explain.given import Words, check_inputs, of_task, words_of
from clearformer.explain.record import record as recorded
from clearformer.explain.tape import Record, Tape
from clearformer.explain.view import View
from clearformer.explain.words import find, shown
from clearformer.kernels.pack import plain

if TYPE_CHECKING:
    from clearformer.explain.ablations import Ablations
    from clearformer.explain.attribution import Attribution
    from clearformer.explain.compare import Comparison
    from clearformer.explain.heads import Head
    from clearformer.explain.lens import Lens
    from clearformer.explain.scores import Score

__all__ = ["Ran", "Trace", "View", "trace"]

Model = Transformer | EncoderDecoder
Outputs = Sequence[str] | Callable[[], Sequence[str]]  # what the numbers of head.logits are called
Recording = Literal["auto", "all", "blocks"]
MOST = {"auto": 2**26, "all": float("inf"), "blocks": 0}  # bytes of the insides of blocks that are kept
SCHEMA = "clearformer.trace/1"


def trace(
    model: Any,
    *inputs: Any,
    words: Words | None = None,
    change: Changes | None = None,
    outputs: Outputs | None = None,
    record: Recording = "auto",
    **options: Any,
) -> "Trace":
    """Run the model on the inputs and keep every step.

    Inputs and options are those of the model's own call; of a task object, as `cf.load` gives it, those of its `trace`:
    a text. `words` label the tokens: a list, or `source` and `target` lists; `outputs` are the tokens or classes that
    the head chooses from. `change` replaces values by their address while the run goes on: a number, a tensor, or a
    function of the old values; `{"decoder.2.cross.h3.mixed": 0}` drops a head. `record` is what is kept: "all" steps,
    "blocks" the inputs and outputs of blocks alone, with the same numbers inside computed again when they are asked
    for, and "auto" as much of the inside as 64 MB hold.
    """
    if not isinstance(model, Transformer | EncoderDecoder):
        return of_task(model, inputs, options if change is None else {**options, "change": change})
    check_inputs(inputs)
    changes = Changing(change or {})
    names = ["source", "target"] if isinstance(model, EncoderDecoder) else ["input"]
    given = dict(zip(names, inputs, strict=False))
    labels = words_of(words, given)
    result, tape = recorded(model, changes, given, lambda twin: twin(*inputs, **options), MOST[record])
    changes.check(tape)
    crossing = {shorten(path) for path, module in model.named_modules() if _crosses(module)}
    return Trace(result, tape, labels, crossing, Ran(model, inputs, options, bool(change)), outputs)


def _crosses(module: nn.Module) -> bool:
    return isinstance(module, Attention) and module.source is None


@dataclass(frozen=True)
class Ran:
    """What was run, so that it can be run again."""

    model: Model
    inputs: tuple[Tensor, ...]
    options: dict[str, Any] = field(default_factory=dict)
    changed: bool = False

    @cached_property
    def plain(self) -> Any:
        """The model as it can be looked into, module by module."""
        return plain(self.model)

    @cached_property
    def attentions(self) -> dict[str, Attention]:
        """By their addresses."""
        named = self.plain.named_modules()
        return {shorten(path): module for path, module in named if isinstance(module, Attention)}

    @cached_property
    def _weights(self) -> dict[nn.Module, Tensor]:
        return {}

    def weight(self, linear: Any) -> Tensor:
        """The matrix of a linear layer; one of int8 is dequantised once."""
        if isinstance(linear, nn.Linear):
            return linear.weight.detach()
        if linear not in self._weights:
            self._weights[linear] = linear.weight.detach()
        return self._weights[linear]


class Trace:
    """The steps of one run. `trace[address]` is a view, `explain(address)` the arithmetic of a cell; `lens`,
    `attribution`, `ablations`, `heads`, `carried` and `compare` answer questions about the whole. Where a task made it,
    `run` is what the task did: its texts, tokens, steps and beams."""

    def __init__(
        self,
        result: Tensor,
        tape: Tape,
        words: dict[str, list[str]],
        crossing: set[str],
        ran: Ran | None = None,
        outputs: Outputs | None = None,
    ):
        self.result, self.tape, self.words = result, tape, words
        self.crossing = crossing  # the attentions whose keys are the source's
        self._ran, self._outputs = ran, outputs
        self.run: Any = None

    @property
    def ran(self) -> Ran:
        if self._ran is None:
            raise TraceError("this trace does not know its model; make it with cf.trace or a task's trace")
        return self._ran

    @cached_property
    def outputs(self) -> list[str]:
        """The tokens of the vocabulary, or the classes, that the logits are of; empty where nobody said."""
        return list(self._outputs() if callable(self._outputs) else self._outputs or ())

    def addresses(self, containing: str = "") -> list[str]:
        """The names of all steps, in the order they ran; heads and cells are written into them as needed."""
        return [name for name in self.tape.records if name not in self.tape.given and containing in name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.addresses())

    def __len__(self) -> int:
        return len(self.addresses())

    def __contains__(self, text: str) -> bool:
        return address.parse(text).name in self.tape.records

    def __repr__(self) -> str:
        read = "; ".join(f"{name}: {show.quoted(words)}" for name, words in self.words.items())
        names = self.addresses()
        return f"<Trace of {len(self)} steps, {names[0]} … {names[-1]}{f'; {read}' if read else ''}>"

    def _repr_html_(self) -> str:
        from clearformer.explain.html import trace

        return trace(self)

    def __getitem__(self, text: str) -> View:
        where, found = self.find(text)
        cells = self.index(where, text, found)
        left = [(axis, which) for axis, which in zip(found.axes, cells, strict=True) if not isinstance(which, int)]
        labels = {axis: words[which] for axis, which in left if (words := self.labels(found.name, axis))}
        sizes = dict(zip(found.axes, found.shape, strict=True))
        starts = {axis: start for axis, which in left if (start := which.indices(sizes[axis])[0])}
        both = {"t", "s"} <= set(found.axes)
        values = found.value.detach()[cells]
        return View(text, [axis for axis, _ in left], values, self.tape.operands(found), labels, starts, both)

    def explain(self, text: str) -> show.Explanation:
        """How one cell was computed, from the nearest named numbers."""
        where, found = self.find(text)
        cells = self.index(where, text, found)
        if any(not isinstance(which, int) for which in cells):
            left = [axis for axis, which in zip(found.axes, cells, strict=True) if not isinstance(which, int)]
            raise TraceError(f"{text}: name one cell; still open: {', '.join(show.word(a, found.axes) for a in left)}")
        size = found.shape
        exact = tuple(int(which) % size[n] for n, which in enumerate(cells))
        words = [self.word(found, axis, n) for axis, n in zip(found.axes, exact, strict=True)]
        full = address.write(found.name, found.axes, exact, size[0] if found.axes[:1] == ["b"] else 0)
        with self.tape.lock:
            self.tape.open(found)
            expression = cell.explain(self.tape, found.value, exact)
        number = float(found.value.detach()[exact])
        return show.Explanation(full, number, expression, [w for w in words if w], found.changed)

    def to_dict(self, text: str | None = None, *, packed: bool = False) -> dict[str, Any]:
        """For JSON: what there is, or, with an address, one tensor with its exact numbers (`View.to_dict`)."""
        if text is not None:
            return self[text].to_dict(packed=packed)
        steps = [self._listed(name) for name in self.addresses()]
        inputs = {name: self._input(name) for name in ("source", "target", "input") if name in self.tape.records}
        found = {"schema": SCHEMA, "inputs": inputs, "words": self.words, "addresses": steps}
        return found | ({"run": self.run.to_dict()} if self.run is not None else {})

    def _input(self, name: str) -> dict[str, Any]:
        """What was read: ids and their words; of an image its shape alone."""
        value = self.tape.records[name].value
        shape = list(value.shape[1:] if value.size(0) == 1 else value.shape)
        return {"ids": value.squeeze(0).tolist() if value.dim() == 2 else [], "words": self.words.get(name, []),
                "shape": shape}  # fmt: skip

    def _listed(self, name: str) -> dict[str, Any]:
        """One name: its axes, and whose words are on them. The batch is left out where there is one text."""
        found = self.tape.records[name]
        axes, shape = found.axes, list(found.shape)
        if axes[:1] == ["b"] and shape[:1] == [1]:
            axes, shape = axes[1:], shape[1:]
        sides = {axis: side for axis in axes if (side := self._side(name, axis)) in (*self.words, "outputs")}
        return {
            "address": name,
            "axes": axes,
            "names": [show.word(axis, axes) for axis in axes],
            "shape": shape,
            "words": sides,
            "operands": self.tape.operands(found),
            "changed": found.changed,
            "later": found.later,
        }

    def to_html(self, path: str | Path | None = None, *, budget: int = 3_000_000, title: str = "Clearformer") -> str:
        """The page with this trace in one HTML file that needs no server and no network; also written to a new file
        where one is named. Numbers are exact; what does not fit into so many bytes is listed in it."""
        from clearformer.page.export import to_html

        made = to_html(self, budget=budget, title=title)
        if path is not None:
            Path(path).write_text(made, encoding="utf-8")
        return made

    def show(self, *, height: int = 720) -> Any:
        """The page with this trace, in a frame of a notebook."""
        from clearformer.page.export import Frame, to_html

        return Frame(to_html(self), height)

    def lens(self, *, top: int = 5) -> "Lens":
        """What each layer would say if it were the last one (`lens.py`)."""
        from clearformer.explain.lens import lens

        return lens(self, top)

    def attribution(self, text: str) -> "Attribution":
        """Who wrote this logit: its parts by branch and head, which sum to it (`attribution.py`)."""
        from clearformer.explain.attribution import attribution

        return attribution(self, text)

    def score(self, text: str, *, by: str = "branch") -> "Score":
        """Why this score: q · k by where the query and the key came from; `by` head for more (`scores.py`)."""
        from clearformer.explain.scores import score

        return score(self, text, by)

    def ablations(self, text: str | None = None) -> "Ablations":
        """What a logit becomes without each head; without an address, the likeliest at the end (`ablations.py`)."""
        from clearformer.explain.ablations import ablations

        return ablations(self, text)

    def heads(self, of: str | None = None) -> "list[Head]":
        """What each head looks at: the token before, the first one, what followed before (`heads.py`)."""
        from clearformer.explain.heads import heads

        return heads(self, of)

    def carried(self, text: str) -> View:
        """How much each key's value really brings: ‖α v W_o‖ for every head, query and key (`heads.py`)."""
        from clearformer.explain.heads import carried

        return carried(self, text)

    def compare(self, other: "Trace") -> "Comparison":
        """Where two runs of one model part ways, step by step (`compare.py`)."""
        from clearformer.explain.compare import compare

        return compare(self, other)

    def differences(self, other: "Trace") -> dict[str, float]:
        """The largest change of each step between this run and another of the same model and shapes."""
        mine, theirs = self.tape.records, other.tape.records
        both = [
            name for name in self.addresses() if name in theirs and mine[name].value.shape == theirs[name].value.shape
        ]
        changes = {name: (mine[name].value - theirs[name].value).abs() for name in both}
        return {name: float(change.max()) for name, change in changes.items() if change.numel()}

    # --- names, words and where they lead -------------------------------------------------------------------

    def find(self, text: str) -> tuple[address.Address, Record]:
        where = address.parse(text)
        if where.name not in self.tape.records:
            raise TraceError(f"{text}: {unknown(where, self.tape)}")
        return where, self.tape.records[where.name]

    def index(self, where: address.Address, text: str, found: Record) -> tuple[Any, ...]:
        """What an address means on its tensor; words count as the numbers they have there."""
        queries = self.tape.records.get(f"{found.name.rsplit('.', 1)[0]}.q")
        heads = None if queries is None else queries.shape[1]
        return index(
            where, text, found.axes, found.value, heads, lambda a, w: find(w, self.labels(found.name, a), text)
        )

    def _side(self, name: str, axis: str) -> str | None:
        """Whose words are on an axis: those of an input, or of the outputs; compressed keys are no positions."""
        own, step = name.rsplit(".", 1) if "." in name else ("", name)
        if axis == "v" or (axis == "c" and name == "head.logits"):
            return "outputs"
        compressed = f"{own}.short_k" in self.tape.records and step not in ("k", "v")
        if axis not in ("t", "s") or (axis == "s" and compressed):
            return None
        if "input" in self.words:
            return "input"
        of_source = name.startswith(("encoder", "source")) or (axis == "s" and own in self.crossing)
        return "source" if of_source else "target"

    def labels(self, name: str, axis: str) -> list[str]:
        """The words along an axis, where there are any; as many as it has cells."""
        side = self._side(name, axis)
        words = self.outputs if side == "outputs" else self.words.get(side or "", [])
        found = self.tape.records[name]
        return words if len(words) == found.shape[found.axes.index(axis)] else []

    def word(self, found: Record, axis: str, number: int) -> str:
        labels = self.labels(found.name, axis)
        word = f" “{shown(labels[number])}”" if number < len(labels) else ""
        return "" if axis == "b" else f"{show.word(axis, found.axes)} {number}{word}"
