"""What the small JSON files beside a tokenizer say: which token plays which role, lengths, the chat template.

They come from many hands. An entry may be a text or `{"content": …}`, may be null, and may name a token that the
vocabulary does not have; the last is left out.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clearformer.errors import CheckpointError
from clearformer.untrusted_files import read_bytes, read_json

KEYS = {  # the role and its name in public files
    "pad": "pad_token",
    "start": "bos_token",
    "end": "eos_token",
    "unknown": "unk_token",
    "mask": "mask_token",
    "separator": "sep_token",
    "first": "cls_token",
}
KNOWN = {  # names to try where no file says anything
    "pad": ("<pad>", "[PAD]", "<|pad|>"),
    "start": ("<s>", "<|begin_of_text|>", "<|endoftext|>"),
    "end": ("</s>", "<|end_of_text|>", "<|endoftext|>"),
    "unknown": ("<unk>", "[UNK]", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>"),
    "separator": ("[SEP]",),
    "first": ("[CLS]",),
}
FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
LONGEST = 10**9  # model_max_length beyond it means "not known"
LARGEST_TEMPLATE = 2**16  # bytes


@dataclass(frozen=True)
class Said:
    """The files' content, as far as text ↔ ids needs it."""

    config: dict[str, Any] = field(default_factory=dict)  # config.json, the decoder's part included
    settings: dict[str, Any] = field(default_factory=dict)  # tokenizer_config.json
    tokens: dict[str, str] = field(default_factory=dict)  # role → token
    added: dict[str, int] = field(default_factory=dict)  # added_tokens.json and added_tokens_decoder
    special: frozenset[str] = frozenset()  # which of them, and of the roles', are special
    flags: dict[str, dict[str, bool]] = field(default_factory=dict)  # how a token takes the spaces around it
    chat_template: str | None = None

    @property
    def family(self) -> str:
        """The kind of model, or what the tokenizer's class is called after: `llama`, `qwen2`, …"""
        family = self.config.get("model_type")
        if isinstance(family, str):
            return family.lower()
        name = self.settings.get("tokenizer_class")
        return name.removesuffix("Fast").removesuffix("Tokenizer").lower() if isinstance(name, str) else ""

    @property
    def longest(self) -> int | None:
        found = self.settings.get("model_max_length")
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= LONGEST:
            return None
        return int(found)

    def flag(self, name: str, default: bool) -> bool:
        found = self.settings.get(name)
        return found if isinstance(found, bool) else default

    def roles(self, find: Callable[[str], int | None], size: int, names: dict[str, str]) -> dict[str, int | None]:
        """Ids of the roles: named in the files, numbered in config.json, in `names`, or of a well-known name."""
        made: dict[str, int | None] = {}
        for role, key in KEYS.items():
            options = [self.tokens.get(role), self._numbered(key, size), names.get(role), *KNOWN[role]]
            ids = (option if isinstance(option, int) else find(option) for option in options if option is not None)
            made[role] = next((number for number in ids if number is not None), None)
        return made

    def _numbered(self, key: str, size: int) -> int | None:
        number = self.config.get(f"{key}_id")
        number = number[0] if isinstance(number, list) and number else number
        return number if type(number) is int and 0 <= number < size else None


def read_said(folder: Path) -> Said:
    """Everything the small files of a folder say; those that are missing say nothing."""
    config = _optional(folder / "config.json")
    inner = config.get("decoder")
    config = {**(inner if isinstance(inner, dict) else {}), **config}
    where = folder / "tokenizer_config.json"
    settings, named = _optional(where), _optional(folder / "special_tokens_map.json")
    decoder = settings.get("added_tokens_decoder")
    if isinstance(decoder, dict):  # the newer layout: the older files beside it are left-overs
        named, added = {}, _decoder(decoder, where)
        entries = list(decoder.values())
    else:
        added, entries = _numbers(_optional(folder / "added_tokens.json"), folder), []
    tokens, special = dict[str, str](), {token for e in entries if e.get("special") and (token := content(e, where))}
    for role, key in KEYS.items():
        entry = named.get(key) or settings.get(key)
        if token := content(entry, where):
            tokens[role] = token
            entries.append(entry)
    special |= {*tokens.values(), *_extra(settings, where), *_extra(named, where)}
    flags = {
        token: {flag: entry[flag] for flag in FLAGS if isinstance(entry.get(flag), bool)}
        for entry in entries
        if isinstance(entry, dict) and (token := content(entry, where))
    }
    return Said(config, settings, tokens, added, frozenset(special), flags, _template(folder, settings))


def _decoder(found: dict[str, Any], where: Path) -> dict[str, int]:
    """Added tokens, with their ids, of the newer layout, where ids name tokens."""
    added = {}
    for number, entry in found.items():
        token = content(entry, where)
        if not isinstance(entry, dict) or token is None or not re.fullmatch("[0-9]{1,9}", number):
            raise CheckpointError(f"{where}: added_tokens_decoder has an entry that is no token with its id")
        added[token] = int(number)
    return added


def content(entry: Any, where: Path) -> str | None:
    """The token of an entry, which may be a text, an object with `content`, or nothing."""
    if isinstance(entry, dict):
        entry = entry.get("content")
    if entry is not None and not isinstance(entry, str):
        raise CheckpointError(f"{where}: a special token is neither text nor an object with its content")
    return entry or None


def _extra(source: dict[str, Any], where: Path) -> set[str]:
    found: set[str] = set()
    for key in ("additional_special_tokens", "extra_special_tokens"):
        entries = source.get(key)
        entries = list(entries.values()) if isinstance(entries, dict) else entries
        tokens = [content(entry, where) for entry in entries] if isinstance(entries, list) else []
        found |= {token for token in tokens if token is not None}
    return found


def _numbers(found: dict[str, Any], folder: Path) -> dict[str, int]:
    for token, number in found.items():
        if type(number) is not int or not 0 <= number < 10**9:
            raise CheckpointError(f"{folder / 'added_tokens.json'}: the id of {token[:40]!r} is no number")
    return dict(found)


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_symlink() or path.exists() else {}


def _template(folder: Path, settings: dict[str, Any]) -> str | None:
    """The chat template: of its own file, else of the settings, where several are named the one called default."""
    found: Any = settings.get("chat_template")
    if (folder / "chat_template.jinja").exists():
        try:
            found = read_bytes(folder / "chat_template.jinja", LARGEST_TEMPLATE).decode()
        except UnicodeDecodeError:
            raise CheckpointError(f"{folder / 'chat_template.jinja'} is not UTF-8 text") from None
    elif (folder / "chat_template.json").exists():
        found = read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(found, list):
        found = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
    if isinstance(found, dict):
        found = found.get("default")
    if found is not None and not isinstance(found, str):
        raise CheckpointError(f"{folder}: the chat template is no text")
    if found is not None and len(found.encode()) > LARGEST_TEMPLATE:
        raise CheckpointError(f"{folder}: the chat template is larger than {LARGEST_TEMPLATE:,} bytes")
    return found
