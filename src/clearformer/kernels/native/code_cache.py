"""The machine's code on disk: compiled once a machine, by processes of its own, and read by all later ones.

A file of the cache is named by all its code was made from (sources, compiler, processor) and begins with a checksum.
The folder may be deleted at any time.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from clearformer.kernels.native.compile import PARTS

HERE = Path(__file__).parent
SOURCES = ("processor.py", "isa.py", "simd.py", "microkernels.py", "gemm.py", "ops.py", "compile.py")
TIMEOUT = 120  # seconds
# the package is found where it is in this process; -P keeps the current folder, or any script's, off the path
START = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("clearformer", sys.argv[1])
sys.modules["clearformer"] = module_from_spec(spec)
from clearformer.kernels.native.compile import main
main(int(sys.argv[2]))
"""


def objects() -> list[bytes]:
    """The object file of each part, from disk or compiled now; ImportError without a compiler, OSError where it
    fails."""
    import llvmlite  # noqa: F401  (what is missing is to be said before anything is tried)

    paths = [folder() / f"{_name()}-{part}.o" for part in range(len(PARTS))]
    found = [code for path in paths if (code := read(path)) is not None]
    if len(found) < len(paths):
        found = _compiled()
        for path, code in zip(paths, found, strict=True):
            write(path, code)
    return found


def _compiled() -> list[bytes]:
    """All parts, at the same time."""
    import importlib.util

    if importlib.util.find_spec("numba") is None:
        raise ImportError("No module named 'numba'", name="numba")
    with ThreadPoolExecutor() as pool:
        return list(pool.map(_part, range(len(PARTS))))


def _part(number: int) -> bytes:
    command = [sys.executable, "-P", "-c", START, str(HERE.parents[1] / "__init__.py"), str(number)]
    try:
        # not in the current folder: it may be a model's, from anywhere, and Numba reads its settings where it is run
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=True, cwd=HERE, env=_environment())
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        raise OSError("; ".join(lines[-3:]) or f"it ended with {error.returncode}") from None
    except subprocess.TimeoutExpired:
        raise OSError(f"it took more than {TIMEOUT} s") from None
    return done.stdout


def _environment() -> dict[str, str]:
    """That of this process, with paths that mean the same in another folder; an empty one is the current folder."""
    paths = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _name() -> str:
    from llvmlite import binding

    made_from = hashlib.sha256()
    for source in SOURCES:
        made_from.update((HERE / source).read_bytes())
    for package in ("numba", "llvmlite"):
        try:
            made_from.update(version(package).encode())
        except PackageNotFoundError:
            made_from.update(b"none")
    made_from.update((binding.get_host_cpu_name() + binding.get_host_cpu_features().flatten()).encode())
    return made_from.hexdigest()[:32]


def folder() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "clearformer" / "native"


def read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content[32:] if hashlib.sha256(content[32:]).digest() == content[:32] else None


def write(path: Path, code: bytes) -> None:
    """Under its name only when whole; where nothing can be written, each process compiles anew."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as room:
            whole = Path(room) / path.name
            whole.write_bytes(hashlib.sha256(code).digest() + code)
            os.replace(whole, path)
    except OSError:
        pass
