"""The state of a run on disk, such that no fault loses more than what came after the last save.

A save is written to a new folder under a name that is never read, flushed, read back and compared with its manifest,
and only then renamed to what readers look for. The ones before it stay until that is done, and at least one after it:
if the newest is damaged, the one before is used.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load as unpack
from safetensors.torch import save as pack
from torch import Tensor

from clearformer.errors import TrainingError

MANIFEST, FACTS = "manifest.json", "progress.json"


class Saved(NamedTuple):
    """Named groups of tensors (weights, optimizer, ...), the facts beside them, and what was passed over on the way."""

    tensors: dict[str, dict[str, Tensor]]
    facts: dict[str, Any]
    folder: Path
    damaged: list[str]


class States:
    """The saves of one run: the newest `keep`, and that of the step `spared`, if there is one to come back to."""

    def __init__(self, folder: Path, keep: int = 2, spared: int | None = None):
        self.folder, self.keep, self.spared = folder, keep, spared

    def save(self, name: str, tensors: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, Any]) -> Path:
        """Write a state; `name`s must sort by age. The state is there when this returns, or nothing changed."""
        content = {f"{group}.safetensors": pack(dict(named)) for group, named in tensors.items() if named}
        content[FACTS] = json.dumps(facts, indent=1).encode()
        listed = {file: {"bytes": len(data), "sha256": _sha256(data)} for file, data in content.items()}
        content[MANIFEST] = json.dumps(listed, indent=1).encode()
        waiting, final = self.folder / f".{name}.partial", self.folder / name
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._clear()
            waiting.mkdir()
            for file, data in content.items():
                write_flushed(waiting / file, data)
            flush_folder(waiting)
            if fault := _fault(waiting):
                raise TrainingError(f"{fault} right after it was written; the disk cannot be trusted")
            if final.exists():
                shutil.rmtree(final)
            waiting.rename(final)
            flush_folder(self.folder)
        except OSError as error:
            shutil.rmtree(waiting, ignore_errors=True)
            raise TrainingError(
                f"cannot save to {self.folder}: {error.strerror}; the last state is {self.newest() or 'none'}"
            ) from None
        names = self.names()
        number = names.index(name)
        # later ones are there only if they were damaged, and the run went on from one before them
        old = [each for each in names[: max(0, number + 1 - self.keep)] if each != state_name(self.spared)]
        for other in (*old, *names[number + 1 :]):
            shutil.rmtree(self.folder / other, ignore_errors=True)
        return final

    def load(self) -> Saved | None:
        """The newest state that is whole; None if there is none. Damaged ones are passed over and named."""
        damaged: list[str] = []
        for name in reversed(self.names()):
            fault = _fault(self.folder / name)
            if fault is None:
                return self._read(self.folder / name, damaged)
            damaged.append(fault)
        if damaged:
            raise TrainingError("no state of this run can be used:\n  " + "\n  ".join(damaged))
        return None

    def at(self, step: int) -> Saved | None:
        """The state of a step, if it is there and whole."""
        folder = self.folder / str(state_name(step))
        return self._read(folder, []) if _fault(folder) is None else None

    def names(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir() and not path.name.startswith("."))

    def newest(self) -> str | None:
        names = self.names()
        return names[-1] if names else None

    def _read(self, folder: Path, damaged: list[str]) -> Saved:
        try:
            tensors = {path.stem: unpack(path.read_bytes()) for path in folder.glob("*.safetensors")}
            return Saved(tensors, json.loads((folder / FACTS).read_bytes()), folder, damaged)
        except (OSError, SafetensorError, ValueError) as error:
            raise TrainingError(f"{folder} cannot be read: {error}") from None

    def _clear(self) -> None:
        """Remove what saves that never ended have left."""
        for path in self.folder.glob(".*.partial"):
            shutil.rmtree(path, ignore_errors=True)


def state_name(step: int | None, part: int = 0) -> str | None:
    """What the state after a step is called, and after some batches of the next one; names sort by age."""
    return None if step is None else f"{step:08d}-{part:04d}"


def _fault(folder: Path) -> str | None:
    """Why a state is not whole, or None."""
    try:
        listed = json.loads((folder / MANIFEST).read_bytes())
        if FACTS not in listed:
            return f"{folder / MANIFEST} is damaged"
        for file, known in listed.items():
            data = (folder / file).read_bytes()
            if len(data) != known["bytes"]:
                return f"{folder / file} has {len(data):,} bytes instead of {known['bytes']:,}"
            if _sha256(data) != known["sha256"]:
                return f"{folder / file} is damaged: its content does not match the manifest"
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{folder / MANIFEST} is damaged"
    return None


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_flushed(path: Path, data: bytes) -> None:
    with path.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """The file has its old content or its new one, never less."""
    waiting = path.with_name(f".{path.name}.partial")
    try:
        write_flushed(waiting, data)
        waiting.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        waiting.unlink(missing_ok=True)
        raise TrainingError(f"cannot write {path}: {error.strerror}") from None


def flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
