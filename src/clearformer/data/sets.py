"""Sets of data that recipes are trained on, by name: where they are, under which licence, and what they must be."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import Field

from clearformer.errors import DataError, nearest
from clearformer.spec.base import Part

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]{0,99}$")]


class File(Part):
    """One file: `urls` are tried in turn, until one has the pinned content."""

    name: Name
    urls: tuple[Annotated[str, Field(pattern=r"^(https?|file)://")], ...] = Field(min_length=1)
    bytes: Annotated[int, Field(ge=0)] | None = None  # as fetched
    sha256: Sha256 | None = None
    checked: Literal["file", "content"] = "file"  # content: what a gzip file holds, which is kept unpacked


class DataSet(Part):
    title: str
    licence: str
    home: str
    files: tuple[File, ...] = Field(min_length=1)
    prepare: Literal["aligned", "idx-images", "scan"] | None = None
    languages: tuple[str, str] = ("en", "de")  # of aligned texts: source and target
    held_out: tuple[int, int] = (1000, 2000)  # of aligned texts: pairs to validate and to test on

    @property
    def bytes(self) -> int | None:
        """What is fetched, where all of it is known."""
        sizes = [file.bytes for file in self.files]
        return None if None in sizes else sum(size or 0 for size in sizes)


@cache
def data_sets() -> dict[str, DataSet]:
    content = tomllib.loads((files("clearformer") / "data" / "sets.toml").read_text(encoding="utf-8"))
    return {name: DataSet._from(said) for name, said in content.items()}


def data_set(name: str) -> DataSet:
    known = data_sets()
    if name not in known:
        raise DataError(
            f"there is no data set {name!r}{nearest(name, known)}; clearformer data lists them", param="name"
        )
    return known[name]
