"""The machine's code on disk, and the processes that compile it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import clearformer as cf
from clearformer.kernels import pack as packing
from clearformer.kernels.native import code_cache, runtime

SRC = Path(code_cache.__file__).parents[3]


def test_code_on_disk_is_used_only_if_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "code.o"
    assert code_cache.read(path) is None
    code_cache.write(path, b"machine code")
    assert code_cache.read(path) == b"machine code"
    assert [each.name for each in path.parent.iterdir()] == ["code.o"]
    whole = path.read_bytes()
    for damaged in (b"", whole[:10], whole[:-1], whole[:40] + b"X" + whole[41:]):
        path.write_bytes(damaged)
        assert code_cache.read(path) is None


def test_code_is_never_written_in_place(tmp_path: Path) -> None:
    """Who reads a file while it is written anew has the old one, whole."""
    path = tmp_path / "code.o"
    code_cache.write(path, b"old" * 1000)
    whole = path.read_bytes()
    with path.open("rb") as reader:
        code_cache.write(path, b"new" * 2000)
        assert reader.read() == whole
    assert code_cache.read(path) == b"new" * 2000


def test_a_disk_that_fills_up_leaves_the_old_code(tmp_path: Path) -> None:
    """A process whose writing fails in the middle: the name stands for the old file, and nothing else is left."""
    path = tmp_path / "code.o"
    code_cache.write(path, b"old" * 1000)
    script = (
        "import resource, signal, sys; from pathlib import Path; from clearformer.kernels.native import code_cache;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096));"
        "code_cache.write(Path(sys.argv[1]), b'new' * 100_000)"
    )
    done = _python(["-c", script, str(path)], SRC)
    assert (done.returncode, done.stderr) == (0, "")
    assert code_cache.read(path) == b"old" * 1000
    assert [each.name for each in tmp_path.iterdir()] == ["code.o"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    code_cache.write(file / "below" / "code.o", b"code")


def test_a_second_process_needs_no_compiler() -> None:
    script = (
        "import sys, torch; from clearformer.kernels.native.runtime import machine; machine();"
        "assert 'numba' not in sys.modules; print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "fine", done.stderr


HOSTILE = """
from pathlib import Path
Path({mark!r}).write_text(__name__)
raise SystemExit("this must not be run")
"""


def test_code_in_the_current_folder_is_not_run(tmp_path: Path) -> None:
    """Files of a folder from anywhere that are named like what the compiler imports are not run, nor in the way."""
    here, script, mark = tmp_path / "model", tmp_path / "script.py", tmp_path / "was_run"
    (here / "llvmlite").mkdir(parents=True)
    for name in ("numba.py", "llvmlite/__init__.py", "random.py", "clearformer.py", "numpy.py", "sitecustomize.py"):
        (here / name).write_text(HOSTILE.format(mark=str(mark)))
    (here / ".numba_config.yaml").write_text("disable_jit: 1\n")
    script.write_text("from clearformer.kernels.pack import missing\nprint(missing())\n")
    cache = tmp_path / "cache"
    done = _python([str(script)], here, XDG_CACHE_HOME=str(cache))
    assert (done.stdout.strip(), done.stderr) == ("None", "")
    assert not mark.exists()
    assert len(list(cache.rglob("*.o"))) == len(code_cache.PARTS)


def test_the_compiler_finds_this_package_by_a_relative_path(tmp_path: Path) -> None:
    """A checkout that is used by PYTHONPATH=src is found by a process that runs in another folder."""
    script = tmp_path / "script.py"
    script.write_text(
        "from clearformer.kernels.native.code_cache import _environment\nprint(_environment()['PYTHONPATH'])"
    )
    done = _python([str(script)], SRC.parent, PYTHONPATH=os.pathsep.join([SRC.name, "", "lib"]))
    assert done.stdout.strip() == os.pathsep.join([str(SRC), str(SRC.parent / "lib")])  # and not the current folder


def _python(command: list[str], folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(SRC), **variables}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A compiler that fails."""

    def fail() -> None:
        raise OSError("out of order")

    monkeypatch.setattr(runtime, "machine", fail)
    packing.missing.cache_clear()
    packing._say_slow.cache_clear()
    yield
    packing.missing.cache_clear()


@pytest.mark.usefixtures("broken")
def test_a_fast_path_that_is_not_there_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    model = cf.build(cf.presets.gpt2("tiny"), seed=0)
    packing.pack(model, native=False)
    assert capsys.readouterr() == ("", "")  # it was not asked for
    packing.pack(model)
    packing.pack(model, "int8")
    told = capsys.readouterr()
    assert told == ("", "clearformer: the fast path is not taken: its code could not be compiled: out of order\n")


@pytest.mark.usefixtures("broken")
def test_without_stderr_nothing_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    packing.pack(cf.build(cf.presets.gpt2("tiny"), seed=0))
    assert capsys.readouterr().out == ""
