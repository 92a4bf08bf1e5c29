"""Reading model folders of which nothing is trusted: JSON with limits, and safetensors mapped into memory.

Everything a file claims is checked against the file itself before anything of that size is allocated. Nothing is
executed, and no link is followed out of the folder. One thing cannot be defended against: a file that is cut short
while it is mapped.
"""

import math
import mmap
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch

from clearformer.errors import CheckpointError
from clearformer.untrusted_files import open_file, parse_json, read_bytes, read_json, shown

__all__ = [
    "Tensors",
    "finite",
    "open_file",
    "open_tensors",
    "parse_json",
    "read_bytes",
    "read_json",
    "release",
    "shown",
]

LARGEST_HEADER = 100_000_000  # bytes; the format's own limit
MOST_TENSORS = 200_000
MOST_SHARDS = 4_096
LONGEST_NAME = 1_024
MOST_AXES = 8

KINDS: dict[str, torch.dtype] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack")


@dataclass(frozen=True, slots=True)
class Entry:
    """What a header says of one tensor; the offsets count from the start of the file."""

    kind: str
    shape: tuple[int, ...]
    start: int
    end: int
    file: Path


class Tensors(Mapping[str, torch.Tensor]):
    """Tensors by name. Each is a view of the mapped file: asking costs nothing, and memory is used as values are read.

    The mapping is private, so writing into a tensor changes neither the file nor what other processes see.
    """

    def __init__(self, entries: dict[str, Entry], maps: dict[Path, mmap.mmap]):
        self._entries, self._maps = entries, maps

    def __getitem__(self, name: str) -> torch.Tensor:
        entry = self._entries[name]
        dtype, size = KINDS[entry.kind], entry.end - entry.start
        if size == 0:
            return torch.empty(entry.shape, dtype=dtype)
        data, count = self._maps[entry.file], size // dtype.itemsize
        if dtype == torch.bool:  # a byte may hold more than 0 and 1, a bool may not
            found = torch.frombuffer(data, dtype=torch.uint8, count=count, offset=entry.start) != 0
        elif entry.start % dtype.itemsize:  # values across the boundaries of words: copied to where they do not lie so
            found = torch.frombuffer(data, dtype=torch.uint8, count=size, offset=entry.start).clone().view(dtype)
        else:
            found = torch.frombuffer(data, dtype=dtype, count=count, offset=entry.start)
        return found.view(entry.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # without making the tensor

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].shape

    def kind(self, name: str) -> str:
        """The type as the file names it: F32, F16, BF16, I64, …"""
        return self._entries[name].kind

    def where(self, name: str) -> Path:
        """The file that holds it."""
        return self._entries[name].file

    def release(self, name: str) -> None:
        """Let go of the memory that reading a tensor took; its values are read anew if asked."""
        entry = self._entries[name]
        _release(self._maps[entry.file], entry.start, entry.end)

    @property
    def size(self) -> int:
        """Bytes of all tensors together."""
        return sum(entry.end - entry.start for entry in self._entries.values())


def release(tensor: torch.Tensor) -> None:
    """The same for a tensor that nobody has written into: if it is a view of a mapped file, its memory is let go."""
    start = tensor.data_ptr()
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    extent = (1 + sum((size - 1) * step for size, step in steps)) * tensor.itemsize  # some columns reach over all rows
    for first, data in list(_MAPPED.items()):
        if first <= start < first + len(data):
            _release(data, start - first, start - first + extent)


_MAPPED: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()  # files, by their addresses


def _release(data: mmap.mmap, start: int, end: int) -> None:
    page = mmap.PAGESIZE
    start, end = -(-start // page) * page, end // page * page  # the pages that are wholly its own
    if end > start and hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED, start, end - start)


def finite(values: torch.Tensor) -> bool:
    """Whether no value is NaN or infinite, in one pass and without a copy."""
    if values.numel() == 0 or not (values.is_floating_point() or values.is_complex()):
        return True
    if values.is_complex():
        values = torch.view_as_real(values)
    if values.dtype.itemsize == 1:  # types of eight bits have no comparisons
        values = values.to(torch.float16)
    low, high = torch.aminmax(values.detach())  # NaN is the least and the greatest wherever there is one
    return math.isfinite(low.item()) and math.isfinite(high.item())


def open_tensors(folder: str | Path, stem: str = "model") -> Tensors:
    """The tensors of `STEM.safetensors`, or of the shards that `STEM.safetensors.index.json` lists."""
    folder = Path(folder)
    single, index = folder / f"{stem}.safetensors", folder / f"{stem}.safetensors.index.json"
    if os.path.lexists(single):
        return _collect([single])
    if os.path.lexists(index):
        listed = _weight_map(index)
        found = _collect([folder / shard for shard in sorted(set(listed.values()))], index)
        _check_index(index, listed, found)
        return found
    raise CheckpointError(_nothing(folder, single.name))


def _collect(paths: list[Path], index: Path | None = None) -> Tensors:
    entries: dict[str, Entry] = {}
    maps: dict[Path, mmap.mmap] = {}
    for path in paths:
        if index is not None and not os.path.lexists(path):
            raise CheckpointError(f"{index} lists {path.name}, which is not there; the checkpoint is incomplete")
        more, maps[path] = _open_one(path)
        if twice := entries.keys() & more.keys():
            name = min(twice)
            raise CheckpointError(f"{path} holds {shown(name)}, which {entries[name].file.name} holds too")
        entries.update(more)
        if len(entries) > MOST_TENSORS:
            raise CheckpointError(f"{path.parent} holds more than {MOST_TENSORS:,} tensors")
    return Tensors(entries, maps)


def _open_one(path: Path) -> tuple[dict[str, Entry], mmap.mmap]:
    handle = open_file(path)
    try:
        size = os.fstat(handle).st_size
        entries = _header(handle, size, path)
        data = mmap.mmap(handle, size, access=mmap.ACCESS_COPY)
        _MAPPED[torch.frombuffer(data, dtype=torch.uint8, count=1).data_ptr()] = data
        return entries, data
    except ValueError as error:
        raise CheckpointError(f"{path} cannot be read: {error}; the file is damaged or no safetensors") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    finally:
        os.close(handle)


def _header(handle: int, size: int, path: Path) -> dict[str, Entry]:
    """The table of a file, every line of it checked against the file's size."""
    if size < 8:
        raise ValueError(f"it has {size} bytes, and a header alone takes more")
    length = int.from_bytes(os.read(handle, 8), "little")
    if length > LARGEST_HEADER or length > size - 8:
        raise ValueError(f"its first bytes promise a header of {length:,} bytes in a file of {size:,}")
    with open(handle, "rb", closefd=False) as file:
        raw = file.read(length)
    if not raw.startswith(b"{"):
        raise ValueError("its header is no JSON object")
    table = parse_json(raw, depth=4)
    notes = table.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(value, str) for value in notes.values()):
        raise ValueError("its __metadata__ is not texts by name")
    if len(table) > MOST_TENSORS:
        raise ValueError(f"it holds {len(table):,} tensors; more than {MOST_TENSORS:,} are not read")
    entries = {name: _entry(name, line, 8 + length, path) for name, line in table.items()}
    _check_cover(entries, 8 + length, size)
    return entries


def _entry(name: str, line: Any, begin: int, path: Path) -> Entry:
    if not 0 < len(name) <= LONGEST_NAME:
        raise ValueError(f"the name of a tensor has {len(name):,} characters")
    if not isinstance(line, dict) or line.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{shown(name)} does not say dtype, shape and data_offsets")
    kind, shape, offsets = line["dtype"], line["shape"], line["data_offsets"]
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"{shown(name)} is of type {shown(str(kind))}; known: {', '.join(KINDS)}")
    if not _naturals(shape) or len(shape) > MOST_AXES:
        raise ValueError(f"{shown(name)} has the shape {shown(str(shape))}")
    if not _naturals(offsets) or len(offsets) != 2:
        raise ValueError(f"{shown(name)} has the offsets {shown(str(offsets))}")
    if math.prod(max(n, 1) for n in shape) > 2**60:  # beside a 0, too, where PyTorch's own products would overflow
        raise ValueError(f"{shown(name)} has the shape {shown(str(shape))}, which is too large")
    needed = math.prod(shape) * KINDS[kind].itemsize
    if offsets[1] - offsets[0] != needed:
        raise ValueError(f"{shown(name)}, {kind} {shape}, needs {needed:,} bytes and has the offsets {offsets}")
    return Entry(kind, tuple(shape), begin + offsets[0], begin + offsets[1], path)


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int and 0 <= each < 2**60 for each in value)


def _check_cover(entries: dict[str, Entry], begin: int, size: int) -> None:
    """The format wants every byte after the header to belong to exactly one tensor."""
    order = sorted(entries.items(), key=lambda item: (item[1].start, item[1].end))
    first, last = (order[0][1].start, order[-1][1].end) if order else (begin, begin)
    if first != begin or last != size:
        raise ValueError(f"its tensors take bytes {first:,} to {last:,} of a file of {size:,} with data from {begin:,}")
    for (before, one), (after, other) in pairwise(order):
        if one.end != other.start:
            fault = "overlap" if one.end > other.start else "have a gap between them"
            raise ValueError(f"{shown(before)} and {shown(after)} {fault}")


_SHARD = re.compile(r"(?!\.)[^/\\:\x00-\x1f]{1,200}\.safetensors")


def _weight_map(index: Path) -> dict[str, str]:
    listed = read_json(index).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise CheckpointError(
            f"{index} has no weight_map, or an empty one; it should say which file holds which tensor"
        )
    for name, shard in listed.items():
        if not isinstance(shard, str) or not _SHARD.fullmatch(shard):
            raise CheckpointError(
                f"{index} puts {shown(name)} into {shown(str(shard))}; expected the plain name of a .safetensors file"
            )
    if len(shards := set(listed.values())) > MOST_SHARDS:
        raise CheckpointError(f"{index} lists {len(shards):,} files; more than {MOST_SHARDS:,} are not read")
    return listed


def _check_index(index: Path, listed: dict[str, str], found: Tensors) -> None:
    for name, shard in listed.items():
        if name not in found or found.where(name).name != shard:
            raise CheckpointError(f"{index} puts {shown(name)} into {shard}, which does not hold it")


def _nothing(folder: Path, wanted: str) -> str:
    if not folder.is_dir():
        return f"{folder} is a file; a model is a folder" if folder.exists() else f"there is no folder {folder}"
    try:
        pickles = sorted({path.name for pattern in PICKLES for path in folder.glob(pattern)})
        others = sorted(path.name for path in folder.glob("*.safetensors"))
    except OSError as error:
        return f"{folder} cannot be read: {error.strerror}"
    if pickles:
        few = ", ".join(shown(name)[1:-1] for name in pickles[:5]) + (", …" if len(pickles) > 5 else "")
        return (
            f"{folder} has no {wanted}, only {few}. Reading such files can run code, so they are not read. "
            "Convert them on a machine where that does no harm, with transformers: "
            "AutoModel.from_pretrained(folder).save_pretrained(new, safe_serialization=True)"
        )
    return f"{folder} has no {wanted}" + (f"; it has {', '.join(shown(name) for name in others[:5])}" if others else "")
