"""A folder that appears under its name when it is complete."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from clearformer.errors import CheckpointError


def write_folder(folder: Path, write: Callable[[Path], None]) -> Path:
    """Let `write` fill a folder beside the final one, flush it and rename it; an existing one is not written over."""
    if os.path.lexists(folder):
        raise CheckpointError(f"{folder} exists already; give a new folder, or move that one away", path=folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        waiting = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise CheckpointError(f"cannot write to {folder.parent}: {error.strerror}", path=folder) from None
    try:
        write(waiting)
        for file in waiting.rglob("*"):
            if file.is_file():
                with file.open("rb") as handle:
                    os.fsync(handle.fileno())
        waiting.chmod(0o755)
        waiting.rename(folder)
    except OSError as error:
        raise CheckpointError(f"cannot write {folder}: {error.strerror}; nothing was saved", path=folder) from None
    finally:
        shutil.rmtree(waiting, ignore_errors=True)  # gone already where all went well
    return folder
