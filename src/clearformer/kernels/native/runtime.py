"""The machine's code: compiled once a machine, kept on disk, and run on PyTorch's own threads.

A file of the cache is named by all its code was made from (sources, compiler, processor) and begins with a checksum.
The folder may be deleted at any time.
"""

import ctypes
import hashlib
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from clearformer.kernels.native import isa
from clearformer.kernels.native.compile import PARTS, symbol, target_machine
from clearformer.kernels.native.processor import cores

SOURCES = ("processor.py", "isa.py", "simd.py", "microkernels.py", "gemm.py", "ops.py", "compile.py")
PATIENCE = 120  # seconds
SPIN = 10_000  # turns that a thread waits for the others before it lets someone else have its core


class Machine:
    """The code, and PyTorch's way to start threads and let them wait for each other."""

    def __init__(self, objects: list[bytes]):
        from llvmlite import binding

        for name in ("memset", "memcpy", "memmove"):
            binding.add_symbol(name, _address(ctypes.CDLL(None), name))
        self.engines: list[Any] = []  # one each: of several objects in one, only the first finds its constants
        found: dict[str, int] = {}
        for code, functions in zip(objects, PARTS, strict=True):
            engine = binding.create_mcjit_compiler(binding.parse_assembly(""), target_machine())
            engine.add_object_file(binding.ObjectFileRef.from_data(code))
            engine.finalize_object()
            found |= {name: engine.get_function_address(symbol(name)) for name in functions}
            self.engines.append(engine)
        self.run, self.lock, self.at_work = found["run"], Lock(), 0  # and how many threads are, of all jobs
        self.codes = np.array([found[kind.__name__.lower()] for kind in isa.KINDS], dtype=np.int64)
        self.alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.run)
        self.team = _openmp()
        if self.team is not None:
            self.team.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            self.team.GOMP_parallel.restype = None
        # the addresses of the functions with which a thread lets others run, and that tell it its number and theirs
        self.give_way = _address(ctypes.CDLL(None), "sched_yield") if self.team is not None else _NOTHING_AT
        self.thread = _NOTHING_AT if self.team is None else _address(self.team, "omp_get_thread_num")
        self.count = _ONE_AT if self.team is None else _address(self.team, "omp_get_num_threads")

    @property
    def threads(self) -> int:
        return 1 if self.team is None else torch.get_num_threads()

    def start(self, fields: np.ndarray[Any, Any], job: int, threads: int) -> None:
        """Run the job of these fields, which are at an address."""
        if self.team is None or threads == 1:
            self.alone(job)
            return
        with self.lock:
            self.at_work += threads
            fields[isa.PATIENCE] = SPIN if self.at_work <= cores() else 0
        try:
            self.team.GOMP_parallel(self.run, job, threads, 0)
        finally:
            with self.lock:
                self.at_work -= threads


@cache
def machine() -> Machine:
    """The machine, from disk or compiled now; ImportError without a compiler, OSError where it fails."""
    import llvmlite  # noqa: F401  (what is missing is to be said before anything is tried)

    paths = [_folder() / f"{_name()}-{part}.o" for part in range(len(PARTS))]
    found = [code for path in paths if (code := _read(path)) is not None]
    if len(found) < len(paths):
        found = _compiled()
        for path, code in zip(paths, found, strict=True):
            _write(path, code)
    return Machine(found)


def _compiled() -> list[bytes]:
    """All parts, at the same time."""
    import importlib.util

    if importlib.util.find_spec("numba") is None:
        raise ImportError("No module named 'numba'", name="numba")
    with ThreadPoolExecutor() as pool:
        return list(pool.map(_part, range(len(PARTS))))


def _part(number: int) -> bytes:
    command = [sys.executable, "-m", "clearformer.kernels.native.compile", str(number)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        raise OSError("; ".join(lines[-3:]) or f"it ended with {error.returncode}") from None
    except subprocess.TimeoutExpired:
        raise OSError(f"it took more than {PATIENCE} s") from None
    return done.stdout


def _name() -> str:
    from llvmlite import binding

    made_from = hashlib.sha256()
    for source in SOURCES:
        made_from.update((Path(__file__).parent / source).read_bytes())
    for package in ("numba", "llvmlite"):
        try:
            made_from.update(version(package).encode())
        except PackageNotFoundError:
            made_from.update(b"none")
    made_from.update((binding.get_host_cpu_name() + binding.get_host_cpu_features().flatten()).encode())
    return made_from.hexdigest()[:32]


def _folder() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "clearformer" / "native"


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content[32:] if hashlib.sha256(content[32:]).digest() == content[:32] else None


def _write(path: Path, code: bytes) -> None:
    """Under its name only when whole; where nothing can be written, each process compiles anew."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as room:
            whole = Path(room) / path.name
            whole.write_bytes(hashlib.sha256(code).digest() + code)
            os.replace(whole, path)
    except OSError:
        pass


def _openmp() -> ctypes.CDLL | None:
    """The library that PyTorch runs its threads with, or None where it is not GNU's: then there is one thread."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*")):
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            continue
    return None


def _address(library: ctypes.CDLL, name: str) -> int:
    found = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert found
    return found


_NOTHING = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
_NOTHING_AT = ctypes.cast(_NOTHING, ctypes.c_void_p).value or 0
_ONE = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)
_ONE_AT = ctypes.cast(_ONE, ctypes.c_void_p).value or 0
