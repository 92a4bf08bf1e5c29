"""From files as they are published to files as recipes read them. What is made is the same from the same files."""

import gzip
import hashlib
import re
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from clearformer.data.sets import DataSet
from clearformer.errors import DataError

LARGEST = 4 * 2**30  # bytes of an unpacked file
COMMAND = re.compile(r"IN: (.*) OUT: (.*)")


def prepare(folder: Path, data: DataSet) -> list[str]:
    """Make what recipes read of what was fetched into a folder; the names of the files that were made."""
    if data.prepare is None:
        return []
    before = set(folder.iterdir())
    try:
        {"aligned": _aligned, "idx-images": _idx_images, "scan": _scan}[data.prepare](folder, data)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, struct.error, ValueError) as error:
        raise DataError(f"{folder}: what was fetched is not what was expected ({error})", path=folder) from None
    return sorted(path.name for path in set(folder.iterdir()) - before)


def _aligned(folder: Path, data: DataSet) -> None:
    """Two files of a zip, line for line → train, valid and test, each of both languages, gzip.

    Repeated pairs are left out. Which pairs are held out follows from the hash of their source, and no text of
    theirs is trained on, on either side.
    """
    with zipfile.ZipFile(folder / data.files[0].name) as archive:
        sides = [_member(archive, language) for language in data.languages]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(f"{len(sides[0]):,} and {len(sides[1]):,} lines")
    pairs = list(dict.fromkeys((a, b) for a, b in zip(*sides, strict=True) if a and b))
    sources = sorted({source for source, _ in pairs}, key=_rank)
    valid, test = data.held_out
    if valid + test > len(sources) // 2:
        raise ValueError(f"{len(sources):,} different texts, and {valid + test:,} are to be held out")
    part = dict.fromkeys(sources[:valid], "valid") | dict.fromkeys(sources[valid : valid + test], "test")
    chosen: dict[str, dict[str, str]] = {"valid": {}, "test": {}}  # one translation of each
    for source, target in pairs:
        if source in part:
            chosen[part[source]].setdefault(source, target)
    known = {target for each in chosen.values() for target in each.values()}
    train = [(source, target) for source, target in pairs if source not in part and target not in known]
    for name, rows in {"train": train, **{name: list(each.items()) for name, each in chosen.items()}}.items():
        for side, language in enumerate(data.languages):
            text = "".join(row[side] + "\n" for row in rows)
            (folder / f"{name}.{language}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _member(archive: zipfile.ZipFile, language: str) -> list[str]:
    names = [name for name in archive.namelist() if name.endswith(f".{language}")]
    if len(names) != 1:
        raise ValueError(f"{len(names)} files of the language {language} in the archive")
    if archive.getinfo(names[0]).file_size > LARGEST:
        raise ValueError(f"{names[0]} is larger than {LARGEST:,} bytes")
    return [" ".join(line.split()) for line in archive.read(names[0]).decode().split("\n")]


def _rank(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _idx_images(folder: Path, data: DataSet) -> None:
    """Images and labels as MNIST has them → train, valid (the last 2,000 of it) and test as .npz."""
    found = {file.name: _idx(folder / file.name) for file in data.files}
    images, labels, test_images, test_labels = (found[file.name] for file in data.files)
    held = min(2000, len(images) // 10)
    parts = {
        "train": (images[:-held], labels[:-held]),
        "valid": (images[-held:], labels[-held:]),
        "test": (test_images, test_labels),
    }
    for name, (x, y) in parts.items():
        np.savez_compressed(folder / f"{name}.npz", x=x, y=y)


def _idx(path: Path) -> np.ndarray:
    """http://yann.lecun.com/exdb/mnist: two zeros, the type (8: bytes), the number of axes, their sizes, the bytes."""
    with gzip.open(path) as handle:
        content = handle.read(2**30)
    zero, kind, axes = struct.unpack(">HBB", content[:4])
    if (zero, kind) != (0, 8) or not 1 <= axes <= 3:
        raise ValueError(f"{path.name} holds no bytes in MNIST's format")
    shape = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _scan(folder: Path, data: DataSet) -> None:
    """`IN: jump twice OUT: I_JUMP I_JUMP` → a command, a tab, its actions."""
    for name in ("train", "test"):
        rows = [COMMAND.fullmatch(line) for line in (folder / f"simple-{name}.txt").read_text().splitlines()]
        text = "".join(f"{row[1]}\t{row[2]}\n" for row in rows if row is not None)
        (folder / f"{name}.tsv").write_text(text)
