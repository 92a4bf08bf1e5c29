"""States on disk: whole or not there, and whatever happens to the newest, the one before is used and the file named."""

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clearformer.errors import TrainingError
from clearformer.training import state as module
from clearformer.training.state import FACTS, MANIFEST, States, replace_file
from tests.training.runs import ONE_THREAD


def content(number: int) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    tensors = {"weights": {"w": torch.full((3, 2), float(number))}, "average": {"w": torch.arange(4.0) + number}}
    return {**tensors, "gradients": {}}, {"step": number, "best": float("inf")}


def written(folder: Path, *numbers: int, keep: int = 2) -> States:
    states = States(folder, keep)
    for number in numbers:
        states.save(f"{number:08d}-0000", *content(number))
    return states


def assert_is(found: Any, number: int) -> None:
    tensors, facts = content(number)
    assert found.facts == facts
    assert found.tensors.keys() == {"weights", "average"}  # empty groups need no file
    for group in found.tensors:
        assert torch.equal(found.tensors[group]["w"], tensors[group]["w"])


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    assert States(tmp_path / "none").load() is None
    states = written(tmp_path, 1, 2)
    found = states.load()
    assert_is(found, 2)
    assert found is not None
    assert found.folder == tmp_path / "00000002-0000"
    assert found.damaged == []


def test_the_one_before_stays_and_older_ones_go(tmp_path: Path) -> None:
    states = written(tmp_path, 1, 2, 3, 4)
    assert states.names() == ["00000003-0000", "00000004-0000"]
    assert written(tmp_path, 5, keep=3).names() == ["00000003-0000", "00000004-0000", "00000005-0000"]


def test_the_manifest_names_every_file_with_its_hash(tmp_path: Path) -> None:
    import hashlib

    written(tmp_path, 7)
    folder = tmp_path / "00000007-0000"
    listed = json.loads((folder / MANIFEST).read_bytes())
    assert {*listed, MANIFEST} == {path.name for path in folder.iterdir()}
    for name, known in listed.items():
        data = (folder / name).read_bytes()
        assert known == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_a_state_is_flushed_and_checked_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    true_sync, true_rename, true_fault = module.os.fsync, Path.rename, module._fault

    def sync(handle: int) -> None:
        events.append("flush")
        true_sync(handle)

    def rename(self: Path, to: Path) -> Path:
        events.append(f"rename {self.name} to {to.name}")
        return true_rename(self, to)

    def fault(folder: Path) -> str | None:
        events.append("check")
        return true_fault(folder)

    monkeypatch.setattr(module.os, "fsync", sync)
    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(module, "_fault", fault)
    written(tmp_path, 1)
    files = ["flush"] * 4  # two groups, the facts, the manifest
    assert events == [*files, "flush", "check", "rename .00000001-0000.partial to 00000001-0000", "flush"]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("states")
    written(folder, 1, 2)
    return folder


FILES = st.sampled_from(["weights.safetensors", "average.safetensors", FACTS, MANIFEST])


def _damaged(two: Path, name: str, change: Any) -> None:
    """Either what was saved, to the last bit, or the one before it with the damaged file named."""
    path = two / "00000002-0000" / name
    before = path.read_bytes()
    path.write_bytes(change(before))
    try:
        found = States(two).load()
        assert found is not None
        if found.facts["step"] == 2:
            assert name == MANIFEST  # spaces between words may change; a byte of anything else may not
            assert json.loads(path.read_bytes()) == json.loads(before)
            assert_is(found, 2)
            assert found.damaged == []
        else:
            assert_is(found, 1)
            (fault,) = found.damaged
            assert str(two / "00000002-0000") in fault
            assert name in fault or name == MANIFEST
    finally:
        path.write_bytes(before)


@settings(max_examples=300)
@given(FILES, st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_any_byte_changed(two: Path, name: str, place: float, mask: int) -> None:
    def change(data: bytes) -> bytes:
        number = int(place * len(data))
        return data[:number] + bytes([data[number] ^ mask]) + data[number + 1 :]

    _damaged(two, name, change)


@settings(max_examples=100)
@given(FILES, st.floats(0, 1, exclude_max=True))
def test_any_file_cut(two: Path, name: str, place: float) -> None:
    _damaged(two, name, lambda data: data[: int(place * len(data))])


@settings(max_examples=100)
@given(FILES, st.one_of(st.binary(max_size=300), st.sampled_from([b"{}", b"[]", b"null", b'{"weights": 3}', b"1"])))
def test_any_file_written_over(two: Path, name: str, data: bytes) -> None:
    _damaged(two, name, lambda before: data)


@pytest.mark.parametrize("name", ["weights.safetensors", "average.safetensors", FACTS, MANIFEST])
def test_any_file_gone(tmp_path: Path, name: str) -> None:
    states = written(tmp_path, 1, 2)
    (tmp_path / "00000002-0000" / name).unlink()
    found = states.load()
    assert_is(found, 1)
    assert found is not None
    assert found.damaged == [f"{tmp_path / '00000002-0000' / name}: No such file or directory"]


def test_all_damaged_is_an_error_that_names_all(tmp_path: Path) -> None:
    states = written(tmp_path, 1, 2)
    for number in (1, 2):
        (tmp_path / f"{number:08d}-0000" / "weights.safetensors").write_bytes(b"")
    with pytest.raises(TrainingError) as caught:
        states.load()
    assert "no state of this run can be used" in str(caught.value)
    for number in (1, 2):
        assert f"{number:08d}-0000/weights.safetensors has 0 bytes instead of" in str(caught.value)


def test_a_run_that_went_on_before_a_damaged_state_keeps_its_own(tmp_path: Path) -> None:
    """10 is whole, 20 and 30 are not: what is saved at 12 and 14 is kept, with the one before."""
    written(tmp_path, 10, 20, 30, keep=3)
    for number in (20, 30):
        (tmp_path / f"{number:08d}-0000" / FACTS).unlink()
    states = States(tmp_path, 2)
    assert_is(states.load(), 10)
    states.save("00000012-0000", *content(12))
    assert states.names() == ["00000010-0000", "00000012-0000"]
    states.save("00000014-0000", *content(14))
    assert states.names() == ["00000012-0000", "00000014-0000"]


@pytest.mark.parametrize("nth", range(4))
def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    """The nth file finds no room: the last state is still there, nothing else is, and the message says so."""
    states = written(tmp_path, 1, 2)
    true, seen = module.write_flushed, []

    def write(path: Path, data: bytes) -> None:
        seen.append(path)
        if len(seen) == nth + 1:
            path.write_bytes(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        true(path, data)

    monkeypatch.setattr(module, "write_flushed", write)
    with pytest.raises(TrainingError, match=r"No space left on device; the last state is 00000002-0000"):
        states.save("00000003-0000", *content(3))
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000001-0000", "00000002-0000"]
    assert_is(states.load(), 2)
    states.save("00000003-0000", *content(3))  # with room again
    assert_is(states.load(), 3)


def test_a_disk_that_lies_is_found_out_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = written(tmp_path, 1)
    true = module.write_flushed
    monkeypatch.setattr(module, "write_flushed", lambda path, data: true(path, data[:-1] + b"?"))
    with pytest.raises(TrainingError, match="right after it was written; the disk cannot be trusted"):
        states.save("00000002-0000", *content(2))
    monkeypatch.undo()
    assert_is(states.load(), 1)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model"
    replace_file(path, b"old")
    true = module.write_flushed

    def write(path: Path, data: bytes) -> None:
        true(path, data[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_flushed", write)
    with pytest.raises(TrainingError, match=f"cannot write {path}: No space left on device"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"


def test_what_unfinished_saves_left_is_cleared_and_never_read(tmp_path: Path) -> None:
    states = written(tmp_path, 1)
    shutil.copytree(tmp_path / "00000001-0000", tmp_path / ".00000009-0000.partial")
    assert_is(states.load(), 1)
    states.save("00000002-0000", *content(2))
    assert not (tmp_path / ".00000009-0000.partial").exists()


KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from clearformer.training.state import States

torch.set_num_threads(1)
folder, kills, draw = Path(sys.argv[1]), int(sys.argv[2]), random.Random(5)

def save(number):
    tensors = {name: {"w": torch.full((40, 40), float(number))} for name in ("weights", "average")}
    States(folder).save(f"{number:08d}-0000", tensors, {"step": number})

def read():
    found = States(folder).load()
    if found is None:
        return 0
    number = found.facts["step"]
    assert not found.damaged, found.damaged
    for name in ("weights", "average"):
        assert bool((found.tensors[name]["w"] == number).all()), name
    return number

inside = 0
for kill in range(kills):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        for number in range(read() + 1, 10**8):
            save(number)
            os.write(writer, number.to_bytes(8, "little"))
    os.close(writer)
    before = read()
    told = os.read(reader, 8) if kill % 2 else b""  # every second one is at work for certain, however busy the machine
    time.sleep(draw.random() * 0.03)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while part := os.read(reader, 65536):
        told += part
    os.close(reader)
    last = int.from_bytes(told[-8:], "little") if told else before
    found = read()
    assert found in (last, last + 1), (found, last)  # all that was saved is there, and perhaps one that was not told
    inside += any(folder.glob(".*.partial"))
print(kills, inside)
"""


def test_a_process_that_does_nothing_but_save_may_be_killed_at_any_time(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "states"), "40"],
        capture_output=True,
        text=True,
        env=ONE_THREAD,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    kills, inside = map(int, done.stdout.split())
    assert kills == 40
    assert inside > 3  # that many left a save half done
