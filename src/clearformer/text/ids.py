"""In place of a tokenizer where a folder has none: ids are shown by their numbers, and no text can be read."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from clearformer.errors import DataError
from clearformer.text.special_tokens import KEYS


class Ids:
    """As `PublicTokenizer`, of which only what shows ids is there."""

    plain, clean, trim, longest, chat_template = False, False, False, None, None

    def __init__(self, folder: Path):
        self.folder, self.special = folder, set[int]()
        for role in KEYS:
            setattr(self, role, None)

    def __getattr__(self, name: str) -> Any:
        if name in ("encode", "encode_all", "ids_of", "chat"):
            return self._refuse
        raise AttributeError(name)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise DataError(
            f"{self.folder} has no tokenizer, so its model reads no texts: put its tokenizer.json there, give ids to"
            " complete([[1, 2, 3]]), or run .model on a tensor of ids"
        )

    def __len__(self) -> int:
        return 0

    def target(self) -> "Ids":
        return self

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        return " ".join(map(str, map(int, ids)))

    def spoken(self, ids: Iterable[int], *, special: bool = False) -> list[int]:
        return [int(i) for i in ids]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [str(int(i)) for i in ids]

    def stream(self) -> "Stream":
        return Stream()


class Stream:
    """As that of `PublicTokenizer`: every number is certain at once."""

    def __init__(self) -> None:
        self.told = False

    def add(self, number: int) -> str:
        text, self.told = f" {number}" if self.told else str(number), True
        return text

    def end(self) -> str:
        self.told = False
        return ""
