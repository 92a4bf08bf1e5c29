"""A folder of static vectors: `static.json` (what it is), `words.txt` (a word a line), `static.safetensors`, and for
whoever finds it, `README.md`. Nothing in it is trusted when it is read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from clearformer.checkpoints.safe import Tensors, finite, open_tensors
from clearformer.errors import CheckpointError
from clearformer.static.vocabulary import Vocabulary
from clearformer.untrusted_files import read_bytes, read_json, shown

ABOUT, WORDS, STEM = "static.json", "words.txt", "static"
VERSION = 1
LARGEST_WORDS = 2**30  # bytes of words.txt


def is_static(folder: Path) -> bool:
    return (folder / ABOUT).is_file()


def write(folder: Path, about: Mapping[str, Any], vocabulary: Vocabulary, tensors: Mapping[str, Tensor]) -> None:
    """Into a folder that is there."""
    (folder / ABOUT).write_text(json.dumps({"version": VERSION, **about}, indent=1) + "\n", encoding="utf-8")
    (folder / WORDS).write_text("".join(f"{word}\n" for word in vocabulary), encoding="utf-8", newline="\n")
    write_tensors(folder / f"{STEM}.safetensors", tensors)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    path.chmod(0o644)


def read(folder: Path, kind: str) -> tuple[dict[str, Any], Vocabulary, Tensors]:
    """What a folder of this kind holds; its tensors are not looked at yet."""
    if not is_static(folder):
        raise CheckpointError(
            f"{folder} holds no static vectors: it has no {ABOUT}; clearformer train words makes some"
            if folder.is_dir()
            else f"there is no folder {folder}",
            path=folder,
        )
    about = read_json(folder / ABOUT)
    if about.get("kind") != kind:
        raise CheckpointError(f"{folder} is of kind {shown(str(about.get('kind')))}; expected {kind!r}", path=folder)
    if about.get("version") != VERSION:
        raise CheckpointError(
            f"{folder} is of version {shown(str(about.get('version')))}; this program reads version {VERSION}",
            path=folder,
        )
    return about, _words(folder / WORDS), open_tensors(folder, STEM)


def _words(path: Path) -> Vocabulary:
    try:
        listed = read_bytes(path, LARGEST_WORDS).decode().removesuffix("\n").split("\n")
        if "" in listed:
            raise ValueError(f"line {listed.index('') + 1} is empty")
        return Vocabulary(listed)
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is damaged: byte {error.start:,} is not UTF-8", path=path) from None
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}", path=path) from None


def tensor(tensors: Tensors, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """A tensor that must be there, of this type and shape, without NaN or infinity."""
    if name not in tensors:
        raise CheckpointError(f"the folder is damaged: {STEM}.safetensors has no {name}")
    where = tensors.where(name)
    if tensors.shape(name) != shape:
        said = f"{name} has the shape {list(tensors.shape(name))}, and {ABOUT} and {WORDS} make it {list(shape)}"
        raise CheckpointError(f"{where} is damaged: {said}", path=where)
    found = tensors[name]
    if found.dtype != dtype:
        raise CheckpointError(f"{where} is damaged: {name} is {found.dtype}, expected {dtype}", path=where)
    if not finite(found):
        raise CheckpointError(f"{where} is damaged: {name} holds NaN or infinity", path=where)
    return found
