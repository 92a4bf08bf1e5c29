"""A recorded tensor or a part of one, as numbers, as a table, as data for other programs and as a picture."""

from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from clearformer.errors import TraceError
from clearformer.explain import show

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

SCHEMA = "clearformer.tensor/1"


@dataclass(frozen=True, eq=False)
class View:
    """A recorded tensor, or a part of one: `values`, the letters of its `axes`, and where it came from."""

    address: str
    axes: list[str]
    values: Tensor
    operands: list[str]
    labels: dict[str, list[str]]
    starts: dict[str, int] = field(default_factory=dict)  # the first number of an axis, where a part is looked at
    both: bool = False  # whether the whole tensor has queries and keys
    note: str = ""  # how to read it, where it is more than a step's result

    def __getitem__(self, cells: Any) -> Tensor:
        return self.values[cells]

    def __repr__(self) -> str:
        return show.line(self)

    def __str__(self) -> str:
        return show.text(self)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        yield show.table(self, options.max_width)

    def label(self, axis: str | None, n: int) -> str:
        """The number of a cell on its axis in the whole tensor, and its word: the same in tables and pictures."""
        words, number = self.labels.get(axis or "", []), n + self.starts.get(axis or "", 0)
        return f"{number} {words[n]}" if n < len(words) else str(number)

    def name(self, axis: str) -> str:
        return show.word(axis, ["t", "s"] if self.both else self.axes)

    def numpy(self) -> Any:
        """The numbers as a NumPy array, exactly."""
        values = self.values.detach().cpu()
        return (values.float() if values.dtype.itemsize == 2 and values.is_floating_point() else values).numpy()

    def to_dict(self, *, packed: bool = False) -> dict[str, Any]:
        """For JSON: every number exactly as it was computed (float32 numbers have exact decimals), as lists, or packed:
        base64 of little-endian bytes, row by row. What is infinite or no number is null in lists."""
        numbers = self.numpy()
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "address": self.address,
            "axes": self.axes,
            "names": [self.name(axis) for axis in self.axes],
            "shape": list(numbers.shape),
            "starts": [self.starts.get(axis, 0) for axis in self.axes],
            "words": self.labels,
            "operands": self.operands,
            "dtype": str(numbers.dtype),
        }
        if self.note:
            found["note"] = self.note
        if packed:
            little = numbers.astype(numbers.dtype.newbyteorder("<"))
            return found | {"base64": b64encode(little.tobytes()).decode()}
        return found | {"values": _finite(numbers.tolist())}

    def to_dataframe(self) -> Any:
        """A pandas table: rows and columns are called as in the printed one. More than two axes become an index with
        a level each."""
        try:
            import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError:
            raise TraceError(
                "a data frame needs pandas, which is not installed: pip install pandas; .numpy() gives the same numbers"
            ) from None
        numbers = self.numpy()
        names = [
            [self.label(axis, n) for n in range(size)] for axis, size in zip(self.axes, numbers.shape, strict=True)
        ]
        called = [self.name(axis) for axis in self.axes]
        if numbers.ndim < 2:
            rows = pandas.Index(names[0], name=called[0]) if names else None
            return pandas.DataFrame(numbers.reshape(-1, 1), index=rows, columns=[self.address])
        rows = pandas.MultiIndex.from_product(names[:-1], names=called[:-1])
        rows = rows.get_level_values(0) if numbers.ndim == 2 else rows
        columns = pandas.Index(names[-1], name=called[-1])
        return pandas.DataFrame(numbers.reshape(-1, numbers.shape[-1]), index=rows, columns=columns)

    def to_svg(self) -> str:
        """A heat map with the words on its axes, as text in SVG: no scripts, and every word is only text."""
        from clearformer.explain.picture import svg

        return svg(self)

    def to_png(self, path: str | Path | None = None) -> bytes:
        """The same as PNG, drawn with matplotlib; also written to a file where one is named."""
        from clearformer.explain.picture import png

        made = png(self)
        if path is not None:
            Path(path).write_bytes(made)
        return made

    def _repr_html_(self) -> str:
        from clearformer.explain.html import view

        return view(self)


def _finite(values: Any) -> Any:
    """JSON has no infinities."""
    if isinstance(values, list):
        return [_finite(each) for each in values]
    return values if values - values == 0 else None
