"""A model from the Hugging Face hub into a local folder: a pinned revision, only files that run nothing, all or none.

This is the one place that uses the network, and only when a person asks for it. The hub's own client does the transfer;
what is fetched, where it goes and whether it is what the hub promised is decided here.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from clearformer.errors import CheckpointError

SOURCE = "source.json"
WEIGHTS = re.compile(r"(?:model|weights)(?:-\d{5}-of-\d{5})?\.safetensors")
SHARD = re.compile(r"-\d{5}-of-\d{5}")
TAKEN = ("*.json", "vocab.txt", "merges.txt", "*.spm", "*.model", "*.jinja", "README.md", "LICENSE", "LICENSE.*")
UNSAFE = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")
# sentence encoders keep the settings of later modules in folders such as 1_Pooling
NAME = re.compile(r"(?:\d{1,2}_\w{1,40}/)?\w[\w.+-]{0,200}", re.ASCII)
REPOSITORY = re.compile(r"(?:[\w-][\w.-]{0,95}/)?[\w-][\w.-]{0,95}", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")
PIECE = 2**20


@dataclass(frozen=True)
class Wanted:
    """A file of a repository, with what the hub says of it where it does."""

    name: str
    size: int | None
    sha256: str | None  # of files in large-file storage
    blob: str | None  # git's name of the others' content


@dataclass(frozen=True)
class Download:
    folder: Path
    repository: str
    revision: str
    files: dict[str, str]  # name → sha256
    size: int


def download(
    repository: str,
    folder: str | Path | None = None,
    *,
    revision: str | None = None,
    endpoint: str | None = None,
    bars: bool = False,
) -> Download:
    """Fetch `ORG/NAME` at a revision into a new folder, `./NAME` where none is given.

    The saved access token of the hub's client goes to its usual address only, never to an `endpoint` given here.
    """
    if not REPOSITORY.fullmatch(repository) or ".." in repository:
        raise CheckpointError(f"{repository!r} names no repository; expected ORG/NAME, such as google/flan-t5-small")
    folder = Path(folder) if folder is not None else Path(repository.rpartition("/")[2])
    if os.path.lexists(folder):
        raise CheckpointError(f"{folder} exists already; give a new folder with --out, or move that one away")
    client = Client(repository, endpoint, bars)
    commit, listed = client.look(revision)
    wanted = choose(listed, repository)
    size = sum(file.size or 0 for file in wanted)
    waiting = _beside(folder, size)
    try:
        files = {}
        for file in wanted:
            client.fetch(file.name, commit, waiting)
            files[file.name] = _check(waiting, file)
        shutil.rmtree(waiting / ".cache", ignore_errors=True)  # the client's notes on what it has fetched
        note = {"repository": repository, "revision": commit, "asked": revision, "endpoint": client.endpoint}
        (waiting / SOURCE).write_text(json.dumps({**note, "files": files}, indent=1) + "\n", encoding="utf-8")
        size = _settle(waiting)
        waiting.chmod(0o755)
        waiting.rename(folder)
    except OSError as error:
        raise CheckpointError(f"cannot write {folder}: {error.strerror or error}; nothing was kept") from None
    finally:
        shutil.rmtree(waiting, ignore_errors=True)
    return Download(folder, repository, commit, files, size)


def choose(listed: list[Wanted], repository: str) -> list[Wanted]:
    """Weights as safetensors, and the JSON and texts that belong to them; names that lead elsewhere are left."""
    plain = [file for file in listed if NAME.fullmatch(file.name) and file.name != SOURCE]
    weights = {file.name for file in plain if WEIGHTS.fullmatch(PurePosixPath(file.name).name)}
    weights = {name for name in weights if (whole := SHARD.sub("", name)) == name or whole not in weights}
    if not any("/" not in name for name in weights):
        unsafe = [file.name for file in listed if any(PurePosixPath(file.name).match(each) for each in UNSAFE)]
        others = f"; it has {', '.join(unsafe[:3])}, and reading such files can run code" if unsafe else ""
        raise CheckpointError(
            f"{repository} has no model.safetensors at this revision{others}."
            " Look for a revision that has it, or convert the model where that does no harm"
        )
    return [
        file for file in plain if file.name in weights or any(PurePosixPath(file.name).match(each) for each in TAKEN)
    ]


class Client:
    """The hub's client library, with its many errors turned into one message each."""

    def __init__(self, repository: str, endpoint: str | None, bars: bool):
        try:
            import huggingface_hub
            from huggingface_hub.utils.tqdm import disable_progress_bars
        except ImportError:
            raise CheckpointError(
                "downloads need the hub's client library: pip install 'clearformer[download]'"
            ) from None
        huggingface_hub.logging.set_verbosity_error()
        if not bars:
            disable_progress_bars()
        if endpoint is not None and not endpoint.startswith(("https://", "http://")):
            raise CheckpointError(
                f"the endpoint {endpoint!r} is no address; expected one such as https://huggingface.co"
            )
        self.repository = repository
        self.token = None if endpoint is None else False
        self.api = huggingface_hub.HfApi(endpoint=endpoint, token=self.token, library_name="clearformer")
        self.endpoint: str = self.api.endpoint

    def look(self, revision: str | None) -> tuple[str, list[Wanted]]:
        """The commit that a revision is now, and the files of that commit."""
        try:
            info = self.api.model_info(self.repository, revision=revision, files_metadata=True, timeout=30)
            if not COMMIT.fullmatch(info.sha or ""):
                raise CheckpointError(f"{self.endpoint} does not say which commit {revision or 'its newest'} is")
            return info.sha or "", [_wanted(file) for file in info.siblings or []]
        except CheckpointError:
            raise
        except Exception as error:  # of the transport too, whose classes differ between versions of the client
            raise CheckpointError(self.explain(error, revision)) from None

    def fetch(self, name: str, commit: str, into: Path) -> None:
        try:
            self.api.hf_hub_download(self.repository, name, revision=commit, local_dir=into)
        except Exception as error:
            raise CheckpointError(f"{name}: {self.explain(error, commit)}; nothing was kept") from None

    def explain(self, error: Exception, revision: str | None) -> str:
        from huggingface_hub import errors

        at = f"{self.repository} at {self.endpoint}"
        match error:
            case errors.GatedRepoError():
                return f"{at} is given only to those who have agreed to its terms: do so there, then run: hf auth login"
            case errors.RevisionNotFoundError():
                return f"{at} has no revision {revision!r}"
            case errors.HfHubHTTPError() if error.response.status_code in (401, 404):  # private ones are hidden, too
                return f"there is no {at}, or it is private; check its name, or run: hf auth login"
            case errors.OfflineModeIsEnabled():
                return "the hub's client is told to stay offline; unset HF_HUB_OFFLINE"
            case errors.HfHubHTTPError():
                return f"{self.endpoint} answered {error.response.status_code} for {self.repository}"
            case OSError(errno=errno.ENOSPC):
                return "the disk is full"
            case PermissionError():
                return f"cannot write: {error.strerror}"
        first = next(iter(str(error).splitlines()), "")
        why = f"{type(error).__name__}: {first[:200]}"
        return f"{self.endpoint} cannot be reached, or does not answer as a hub does ({why})"


def _wanted(file: Any) -> Wanted:
    large = getattr(file, "lfs", None)
    return Wanted(file.rfilename, file.size, large.sha256 if large else None, None if large else file.blob_id)


def _beside(folder: Path, size: int) -> Path:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(folder.parent).free) < size:
            raise CheckpointError(f"{folder.parent} has {free:,} bytes free and the model takes {size:,}")
        return Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise CheckpointError(f"cannot write to {folder.parent}: {error.strerror}") from None


def _check(folder: Path, file: Wanted) -> str:
    """The sha256 of a fetched file, which must have the size and the hash that the hub gave for it."""
    path, size = folder / file.name, (folder / file.name).stat().st_size
    whole, blob = hashlib.sha256(), hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as handle:
        while piece := handle.read(PIECE):
            whole.update(piece)
            if file.blob is not None:
                blob.update(piece)
    for found, promised in ((size, file.size), (whole.hexdigest(), file.sha256), (blob.hexdigest(), file.blob)):
        if promised is not None and found != promised:
            raise CheckpointError(f"{file.name} arrived damaged: {found}, and the hub promised {promised}; try again")
    return whole.hexdigest()


def _settle(folder: Path) -> int:
    """Have everything on the disk before the folder gets its name; how many bytes there are."""
    size = 0
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as handle:
                os.fsync(handle.fileno())
            size += path.stat().st_size
    return size
