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
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from clearformer.kernels.native.compile import NAME, target_machine

SOURCES = ("simd.py", "layout.py", "program.py", "compile.py")
PATIENCE = 120  # seconds


class Machine:
    """The code, and PyTorch's way to start threads and let them wait for each other."""

    def __init__(self, code: bytes):
        from llvmlite import binding

        for name in ("memset", "memcpy", "memmove"):
            binding.add_symbol(name, _address(ctypes.CDLL(None), name))
        target = target_machine()
        self.engine = binding.create_mcjit_compiler(binding.parse_assembly(""), target)  # the code lives as long
        self.engine.add_object_file(binding.ObjectFileRef.from_data(code))
        self.engine.finalize_object()
        self.run = self.engine.get_function_address(NAME)
        self.alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.run)
        self.team = _openmp()
        if self.team is not None:
            self.team.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            self.team.GOMP_parallel.restype = None
        # the addresses of the functions in which a thread waits for the others, and that tell it its number
        self.barrier = _NOTHING_AT if self.team is None else _address(self.team, "GOMP_barrier")
        self.thread = _NOTHING_AT if self.team is None else _address(self.team, "omp_get_thread_num")

    @property
    def threads(self) -> int:
        return 1 if self.team is None else torch.get_num_threads()

    def start(self, job: int, threads: int) -> None:
        if self.team is None or threads == 1:
            self.alone(job)
        else:
            self.team.GOMP_parallel(self.run, job, threads, 0)


@cache
def machine() -> Machine:
    """The machine, from disk or compiled now; ImportError without a compiler, OSError where it fails."""
    import llvmlite  # noqa: F401  (what is missing is to be said before anything is tried)

    path = _folder() / _name()
    code = _read(path)
    if code is None:
        code = _compiled()
        _write(path, code)
    return Machine(code)


def _compiled() -> bytes:
    import importlib.util

    if importlib.util.find_spec("numba") is None:
        raise ImportError("No module named 'numba'", name="numba")
    command = [sys.executable, "-m", "clearformer.kernels.native.compile"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        raise OSError(lines[-1] if lines else f"it ended with {error.returncode}") from None
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
    return f"{made_from.hexdigest()[:32]}.o"


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
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(code).digest() + code)
        os.replace(file.name, path)
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
