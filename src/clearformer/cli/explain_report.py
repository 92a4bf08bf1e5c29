"""What `clearformer explain` prints: the answer, the choices of each step, the texts that were found, the beam."""

from typing import TYPE_CHECKING, Any

from clearformer.explain.show import number
from clearformer.explain.table import Column, Row, fitted
from clearformer.explain.words import shown

if TYPE_CHECKING:
    from clearformer.tasks.tracing import Answered
    from clearformer.tasks.wrote import Node, Wrote

RANKED = "; of those that ended, in brackets, divided by length^length_penalty, which they are ranked by"
TOKEN = 16  # characters of a token in a table
NUMBERS = 6  # of a vector
LEAST = 16  # characters of a line of the tree, however deep it is


def wrote(run: "Wrote") -> list[str]:
    source = [f"source  {_joined(run.source)}"] if run.source else []
    end = (
        f"ended: {run.finish}, " if run.finish not in ("end", "forced") else "given, " if run.finish == "forced" else ""
    )
    return [
        *source,
        f"{'target' if run.source else 'read  '}  {_joined(run.tokens if run.source else run.read)}",
        *([] if run.source else [f"wrote   {_joined(run.tokens)}"]),
        f"text    {shown(run.text, 2000)}   ({end}log-probability {number(run.score)})",
    ]


def answered(run: "Answered") -> list[str]:
    lines = [f"tokens  {_joined(run.tokens)}"] if run.grid is None else []
    if run.grid is not None:
        lines.append(f"image   {run.grid[0]} × {run.grid[1]} patches, called row,column")
    if any(run.segments):
        lines.append(f"sides   {' '.join(map(str, run.segments))}")
    if run.windows > 1:
        lines.append(f"window  {run.window} of 0 to {run.windows - 1}")
    return [*lines, *(f"{run.verb:<7} {line}" for line in _answer(run.answer))]


def _answer(found: dict[str, Any]) -> list[str]:
    """The answer of any verb, a line for each part."""
    if "probabilities" in found:
        best = sorted(found["probabilities"].items(), key=lambda item: -item[1])[:10]
        return [f"{100 * chance:5.1f} %  {shown(name)}" for name, chance in best]
    if "labels" in found:
        return [f"{100 * each['probability']:5.1f} %  {shown(each['label'])}" for each in found["labels"]]
    if "words" in found:
        return [
            f"{100 * word['probability']:5.1f} %  {shown(word['label'])}  {shown(word['text'])}"
            for word in found["words"]
        ]
    if "masks" in found:
        masks = [", ".join(f"{shown(c['token'])} {c['probability']:.3f}" for c in mask) for mask in found["masks"]]
        return [shown(found["text"], 2000), *masks]
    if "vector" in found:
        some = ", ".join(number(each) for each in found["vector"][:NUMBERS])
        return [f"{len(found['vector'])} numbers, pooled by {found['pool']}: {some}, …"]
    if "text" in found:
        return [f"{shown(found['text'], 2000)}   ({100 * found['probability']:.1f} %)"]
    return []


def choices(run: "Wrote", width: int) -> Any:
    """A row for each step: the position and the token that was read there, what was taken, what else there was."""
    first = len(run.read) - 1
    read = [run.read[-1], *run.tokens]
    most = max((len(choice.likeliest) for choice in run.choices), default=0)
    rows = []
    for n, choice in enumerate(run.choices):
        cells = [(f"{shown(choice.chosen, TOKEN)} {choice.probability:.3f}", "")]
        cells += [
            (f"{shown(token, TOKEN)} {p:.3f}", "bold" if token == choice.chosen else "")
            for token, p in choice.likeliest
        ]
        rows.append(Row(f"{first + n} {read[n]}", cells))
    names = ["taken", *(str(rank + 1) for rank in range(most))]
    return fitted("read ↓ rank →", [Column(name, right=False) for name in names], rows, width)


def found(run: "Wrote") -> list[str]:
    """The texts that were found; both numbers, since their order is that of the second."""
    rows = [f"{number(one.score):>8} {number(one.normalised):>10}  {shown(one.text, 2000)}" for one in run.best]
    return ["\ntexts found, best first", f"{'score':>8} {'normalised':>10}", *rows]


def tree(run: "Wrote", width: int) -> Any:
    """Every hypothesis: an unbranched run of tokens goes on one line, as far as there is room."""
    from rich.text import Text

    penalty = float(run.options.get("length_penalty", 1.0)) if run.options.get("num_beams", 1) > 1 else None
    lines = [Text(shown(run.tree.token))]

    def grow(node: "Node", depth: int, front: str) -> None:
        children = sorted(node.children.values(), key=lambda each: -each.score)
        for n, child in enumerate(children):
            last = n + 1 == len(children)
            line, inside = Text(front + ("└── " if last else "├── ")), front + ("    " if last else "│   ")
            deep, end = depth, child
            line.append(_label(end, deep, penalty))
            while len(end.children) == 1:
                (end,) = end.children.values()
                deep += 1
                said = _label(end, deep, penalty)
                if line.cell_len + said.cell_len + 2 > max(width, len(inside) + LEAST):
                    lines.append(line)
                    line = Text(inside + "· ")
                elif line.cell_len > len(inside):
                    line.append("  ")
                line.append(said)
            lines.append(line)
            grow(end, deep + 1, inside)

    grow(run.tree, 1, "")
    return Text("\n").join(lines)


def _label(node: "Node", depth: int, penalty: float | None) -> Any:
    from rich.text import Text

    ranked = f" ({node.score / depth**penalty:.2f})" if node.ended and penalty is not None else ""
    style = "bold green" if node.chosen else "" if node.ended else "dim"
    return Text(f"{shown(node.token)} {node.score:.2f}{ranked}", style=style)


def _joined(tokens: list[str]) -> str:
    return " ".join(shown(token) for token in tokens)
