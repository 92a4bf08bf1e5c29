"""Model folders that are not trusted: what is read, what is refused, and that nothing is done before it is checked."""

import hashlib
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import clearformer as cf
from clearformer import presets
from clearformer.checkpoints.huggingface import save_public
from clearformer.checkpoints.safe import KINDS, finite, open_tensors, read_json, release
from clearformer.errors import CheckpointError

FUZZ = Path(__file__).parents[2] / "stress" / "fuzz_checkpoints.py"
WEIGHTS = {
    "a.weight": torch.arange(12.0).view(3, 4),
    "b": torch.tensor([1.5, -2.0]).half(),
    "c": torch.tensor([0.5]).bfloat16(),
    "d": torch.tensor(7.0),
    "e": torch.zeros(0, 4),
    "f": torch.tensor([True, False, True]),
    "g": torch.tensor([2**40, -1]),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file(WEIGHTS, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path


def written(folder: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    """A file with any header at all."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)
    return folder


def tensor(shape: Any, start: Any, end: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


# Tensors


def test_tensors_are_those_the_library_reads(folder: Path) -> None:
    found, truth = open_tensors(folder), load_file(folder / "model.safetensors")
    assert set(found) == set(truth) == set(WEIGHTS)
    for name, weight in truth.items():
        assert found[name].dtype == weight.dtype
        assert found.shape(name) == tuple(weight.shape) == tuple(found[name].shape)
        assert torch.equal(found[name], weight)
        assert KINDS[found.kind(name)] == weight.dtype
        assert found.where(name) == folder / "model.safetensors"
    assert found.size == sum(weight.nbytes for weight in truth.values())
    assert "a.weight" in found
    assert "z" not in found


def test_every_type_of_the_library_that_has_whole_bytes(tmp_path: Path) -> None:
    weights = {kind: torch.arange(4).to(dtype) for kind, dtype in KINDS.items()}
    save_file(weights, tmp_path / "model.safetensors")
    found = open_tensors(tmp_path)
    for kind, weight in weights.items():
        assert found.kind(kind) == kind
        assert torch.equal(found[kind].view(torch.uint8), weight.view(torch.uint8))


def test_writing_into_a_tensor_changes_no_file(folder: Path) -> None:
    before = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    found = open_tensors(folder)
    found["a.weight"].mul_(0)
    found["f"].fill_(True)
    assert hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest() == before
    assert torch.equal(open_tensors(folder)["a.weight"], WEIGHTS["a.weight"])
    assert not found["a.weight"].any()  # a view of one mapping, private to it


def test_a_tensor_outlives_the_mapping_and_the_file(folder: Path) -> None:
    weight = open_tensors(folder)["a.weight"]
    (folder / "model.safetensors").unlink()
    assert torch.equal(weight, WEIGHTS["a.weight"])


def test_values_that_lie_across_words_are_copied_to_where_they_do_not(tmp_path: Path) -> None:
    header = (
        b'{"odd":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}}'
    )
    header += b" " * (-len(header) % 8)
    weight = open_tensors(written(tmp_path, header, b"\x07" + struct.pack("<2f", 1.5, -3.0)))["x"]
    assert weight.tolist() == [1.5, -3.0]
    assert weight.data_ptr() % 4 == 0


def test_a_byte_that_is_no_truth_value_becomes_one(tmp_path: Path) -> None:
    found = open_tensors(written(tmp_path, {"x": tensor([3], 0, 3, "BOOL")}, b"\x00\x01\x80"))["x"]
    assert found.view(torch.uint8).tolist() == [0, 1, 1]


def test_a_mapped_file_takes_memory_only_as_it_is_read(tmp_path: Path) -> None:
    save_file({"x": torch.ones(16 * 2**20)}, tmp_path / "model.safetensors")
    code = f"""if True:
        from clearformer.checkpoints.safe import open_tensors
        def held():
            lines = open("/proc/self/smaps_rollup").read().splitlines()
            return int(next(line.split()[1] for line in lines if line.startswith("Rss:")))
        before = held()
        weight = open_tensors({str(tmp_path)!r})["x"]
        print(held() - before, weight.shape[0])
    """
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("no /proc here")
    grown, count = map(int, subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert count == 16 * 2**20
    assert grown < 8 * 1024  # of 64 MiB


def test_a_released_tensor_is_read_anew(tmp_path: Path) -> None:
    weights = {"x": torch.randn(100), "y": torch.randn(50_000).half(), "z": torch.randn(100)}
    save_file(weights, tmp_path / "model.safetensors")
    found = open_tensors(tmp_path)
    for name in ("x", "y", "z"):
        found[name].add_(1)
    for name in ("y", "z"):
        found.release(name)
    assert torch.equal(found["x"], weights["x"] + 1)  # its neighbours' pages are left
    inner = slice(5_000, -5_000)
    assert torch.equal(found["y"][inner], weights["y"][inner])
    assert torch.equal(found["z"], weights["z"] + 1)  # smaller than a page
    part = found["y"][10_000:40_000].add_(1)
    release(part)  # by the tensor itself
    assert torch.equal(part[5_000:-5_000], weights["y"][15_000:35_000])
    columns = found["y"].view(500, 100)[:, 20:40].add_(1)
    release(columns)  # and of the columns between its own
    assert torch.equal(columns[50:-50], weights["y"].view(500, 100)[50:-50, 20:40])
    own = torch.ones(50_000)
    release(own)  # which is no file's
    assert bool((own == 1).all())


def test_int8_made_while_loading_keeps_no_floats(tmp_path: Path) -> None:
    if not Path("/proc/self/smaps").exists():
        pytest.skip("no /proc here")
    what = presets.llama("tiny", vocabulary=65_536)
    save_public(cf.build(what, seed=0), tmp_path / "model")  # 17 MB
    code = f"""if True:
        import torch
        from clearformer.tasks.load import open_packed
        def mapped():
            here, total = False, 0
            for line in open("/proc/self/smaps"):
                here = line.rstrip().endswith("model.safetensors") if "-" in line.split()[0] else here
                total += int(line.split()[1]) if here and line.startswith("Rss:") else 0
            return total
        model = open_packed({str(tmp_path / "model")!r}, precision="int8").model
        with torch.no_grad():
            model(torch.arange(8)[None])
        print(mapped())
    """
    left = int(subprocess.check_output([sys.executable, "-c", code], text=True))
    assert left < 1024  # kB


DATA = b"\0" * 16
FILES: dict[str, tuple[Any, bytes, int | None, str]] = {
    "an empty header": (b"", b"", None, "no JSON object"),
    "a header of blanks": (b"        ", b"", None, "no JSON object"),
    "a header that is a list": (b"[]", b"", None, "no JSON object"),
    "a header that is cut": (b'{"x": {"dtype"', b"", None, "damaged or no safetensors"),
    "a header that is no UTF-8": (b'{"\xff": 1}', b"", None, "byte 2 is not UTF-8"),
    "a length beyond the file": ({}, b"", 3, r"promise a header of 3 bytes in a file of 10"),
    "a length of all ones": ({}, b"", 2**64 - 1, "promise a header of 18,446,744,073,709,551,615 bytes"),
    "a header of too many bytes": ({}, b"", 100_000_001, "promise a header of 100,000,001 bytes"),
    "a deep header": (b'{"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}", b"", None, "nest deeper than 4"),
    "a name twice": (
        b'{"x":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"x":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
        DATA,
        None,
        "the key 'x' is there twice",
    ),
    "a name without characters": ({"": tensor([4], 0, 16)}, DATA, None, "has 0 characters"),
    "an endless name": ({"x" * 5000: tensor([4], 0, 16)}, DATA, None, "has 5,000 characters"),
    "half a character": (
        b'{"\\ud800":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
        DATA,
        None,
        "half of a character",
    ),
    "a number for a tensor": ({"x": 3}, DATA, None, "does not say dtype, shape and data_offsets"),
    "a tensor without a type": ({"x": {"shape": [4], "data_offsets": [0, 16]}}, DATA, None, "does not say dtype"),
    "a tensor with more": ({"x": {**tensor([4], 0, 16), "run": "me"}}, DATA, None, "does not say dtype"),
    "a type there is not": ({"x": tensor([4], 0, 16, "F99")}, DATA, None, "of type 'F99'; known: BOOL"),
    "a type that is no text": ({"x": tensor([4], 0, 16, ["F32"])}, DATA, None, "of type"),
    "a negative axis": ({"x": tensor([-4], 0, 16)}, DATA, None, "has the shape"),
    "two negative axes": ({"x": tensor([-2, -2], 0, 16)}, DATA, None, "has the shape"),
    "an axis of a fraction": ({"x": tensor([4.0], 0, 16)}, DATA, None, "has the shape"),
    "an axis that is true": ({"x": tensor([True, 4], 0, 16)}, DATA, None, "has the shape"),
    "a shape that is a number": ({"x": tensor(4, 0, 16)}, DATA, None, "has the shape"),
    "too many axes": ({"x": tensor([1] * 8 + [4], 0, 16)}, DATA, None, "has the shape"),
    "a shape beyond the offsets": ({"x": tensor([5], 0, 16)}, DATA, None, "needs 20 bytes"),
    "a huge shape": ({"x": tensor([2**31, 2**31], 0, 16)}, DATA, None, "too large"),
    "a shape that wraps around": ({"x": tensor([2**62 + 4], 0, 16)}, DATA, None, "has the shape"),
    "a product that wraps around": ({"x": tensor([2**33, 2**31, 4], 0, 16)}, DATA, None, "too large"),
    "a huge shape beside nothing": ({"x": tensor([0, 2**50, 2**50], 0, 0)}, b"", None, "too large"),
    "offsets backwards": ({"x": tensor([4], 16, 0)}, DATA, None, "needs 16 bytes"),
    "negative offsets": ({"x": tensor([4], -16, 0)}, DATA, None, "has the offsets"),
    "three offsets": ({"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8, 16]}}, DATA, None, "the offsets"),
    "offsets beyond the file": ({"x": tensor([8], 0, 32)}, DATA, None, "its tensors take bytes"),
    "data that is cut": ({"x": tensor([4], 0, 16)}, DATA[:-1], None, "its tensors take bytes"),
    "data after the last tensor": ({"x": tensor([4], 0, 16)}, DATA + b"hidden", None, "its tensors take bytes"),
    "data before the first": ({"x": tensor([3], 4, 16)}, DATA, None, "its tensors take bytes"),
    "data without tensors": ({}, DATA, None, "its tensors take bytes"),
    "a gap": ({"x": tensor([1], 0, 4), "y": tensor([2], 8, 16)}, DATA, None, "'x' and 'y' have a gap"),
    "an overlap": ({"x": tensor([3], 0, 12), "y": tensor([2], 8, 16)}, DATA, None, "'x' and 'y' overlap"),
    "one tensor inside another": (
        {"x": tensor([4], 0, 16), "y": tensor([1], 4, 8)},
        DATA,
        None,
        "its tensors take bytes|overlap",
    ),
    "twice the same bytes": ({"x": tensor([4], 0, 16), "y": tensor([4], 0, 16)}, DATA, None, "'x' and 'y' overlap"),
    "notes that are numbers": ({"__metadata__": {"n": 1}}, b"", None, "__metadata__"),
    "notes that are a list": ({"__metadata__": []}, b"", None, "__metadata__"),
    "infinity": (b'{"x": Infinity}', b"", None, "no number of JSON"),
    "a number of 9,999 digits": (b'{"x": ' + b"9" * 9_999 + b"}", b"", None, "damaged or no safetensors"),
}


@pytest.mark.parametrize("what", FILES)
def test_files_that_are_not_what_they_say(what: str, tmp_path: Path) -> None:
    header, data, length, message = FILES[what]
    with pytest.raises(CheckpointError, match=message) as caught:
        open_tensors(written(tmp_path, header, data, length))
    assert "model.safetensors cannot be read: " in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("size", range(9))
def test_files_too_short_for_a_header(size: int, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x01\0\0\0\0\0\0\0"[:size])
    with pytest.raises(CheckpointError, match="damaged or no safetensors"):
        open_tensors(tmp_path)


def test_more_tensors_than_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.checkpoints.safe.MOST_TENSORS", 3)
    save_file({str(n): torch.zeros(1) for n in range(4)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="holds 4 tensors; more than 3"):
        open_tensors(tmp_path)


@given(st.sampled_from(sorted(KINDS)), st.lists(st.integers(0, 4), max_size=4))
def test_sizes_are_those_of_torch(kind: str, shape: list[int]) -> None:
    from clearformer.checkpoints.safe import _entry

    needed = torch.empty(shape, dtype=KINDS[kind]).nbytes
    assert _entry("x", tensor(shape, 0, needed, kind), 0, Path("x")).end == needed
    with pytest.raises(ValueError, match="needs"):
        _entry("x", tensor(shape, 0, needed + 1, kind), 0, Path("x"))


@settings(max_examples=60)
@given(st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]), st.integers(0, 999), st.data())
def test_one_value_that_is_not_finite_is_found(dtype: torch.dtype, place: int, data: st.DataObject) -> None:
    values = torch.randn(1000).to(dtype)
    assert finite(values)
    values[place] = data.draw(st.sampled_from([float("nan"), float("inf"), -float("inf")]))
    assert not finite(values)
    assert finite(torch.empty(0, dtype=dtype))
    assert finite(torch.zeros(3, dtype=torch.int64))


# Shards


def sharded(folder: Path, weight_map: Any = None) -> Path:
    one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    save_file({"a": torch.ones(2)}, folder / one)
    save_file({"b": torch.zeros(3), "c": torch.zeros(1)}, folder / two)
    usual = {"a": one, "b": two, "c": two}
    index = {"metadata": {"total_size": 24}, "weight_map": usual if weight_map is None else weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_shards_are_one(tmp_path: Path) -> None:
    found = open_tensors(sharded(tmp_path))
    assert sorted(found) == ["a", "b", "c"]
    assert found["b"].tolist() == [0, 0, 0]
    assert found.where("a").name == "model-00001-of-00002.safetensors"
    assert found.size == 24


def test_a_file_under_the_usual_name_comes_before_shards(tmp_path: Path) -> None:
    save_file({"x": torch.ones(1)}, sharded(tmp_path) / "model.safetensors")
    assert list(open_tensors(tmp_path)) == ["x"]


BAD_NAMES = [
    "../model.safetensors",
    "/etc/passwd.safetensors",
    "sub/model.safetensors",
    "sub\\model.safetensors",
    "C:model.safetensors",
    "..",
    ".safetensors",
    ".hidden.safetensors",
    "model.bin",
    "model\0.safetensors",
    "model\n.safetensors",
    "x" * 300 + ".safetensors",
    "",
    None,
    3,
    ["model.safetensors"],
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_a_shard_is_a_plain_name(name: Any, tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    (inner := tmp_path / "inner").mkdir()
    with pytest.raises(CheckpointError, match=r"expected the plain name of a \.safetensors file"):
        open_tensors(sharded(inner, {"a": name}))


ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def test_an_index_that_does_not_fit_its_shards(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"lists gone\.safetensors, which is not there"):
        open_tensors(sharded(tmp_path, {"a": "gone.safetensors"}))
    with pytest.raises(CheckpointError, match=f"puts 'z' into {ONE}, which does not hold it"):
        open_tensors(sharded(tmp_path, {"a": ONE, "z": ONE}))
    with pytest.raises(CheckpointError, match=f"puts 'a' into {TWO}, which does not hold it"):
        open_tensors(sharded(tmp_path, {"a": TWO, "b": ONE}))
    for empty in ({}, [], 3):
        with pytest.raises(CheckpointError, match="has no weight_map"):
            open_tensors(sharded(tmp_path, empty))
    sharded(tmp_path)
    save_file({"a": torch.ones(2), "b": torch.ones(3)}, tmp_path / ONE)
    with pytest.raises(CheckpointError, match=f"holds 'b', which {ONE} holds too"):
        open_tensors(tmp_path)


# Which file it is


def test_links_out_of_the_folder_are_not_followed(folder: Path) -> None:
    (inner := folder / "inner").mkdir()
    (inner / "model.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="is a link out of its folder"):
        open_tensors(inner)
    (inner / "config.json").symlink_to("../config.json")
    (folder / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="is a link out of its folder"):
        read_json(inner / "config.json")


def test_links_inside_the_folder_and_to_it_are_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (folder / "model.safetensors").rename(folder / "real")
    (folder / "model.safetensors").symlink_to("real")
    (other := tmp_path_factory.mktemp("links") / "model").symlink_to(folder)
    assert set(open_tensors(folder)) == set(open_tensors(other)) == set(WEIGHTS)


def test_links_of_the_hub_s_cache_are_followed(folder: Path) -> None:
    repository = folder / "models--org--name"
    (snapshot := repository / "snapshots" / "0123abcd" / "1_Pooling").mkdir(parents=True)
    (repository / "blobs").mkdir()
    (folder / "model.safetensors").rename(repository / "blobs" / "feed")
    (repository / "blobs" / "beef").write_text("{}")
    (snapshot.parent / "model.safetensors").symlink_to("../../blobs/feed")
    (snapshot / "config.json").symlink_to("../../../blobs/beef")
    assert set(open_tensors(snapshot.parent)) == set(WEIGHTS)
    assert read_json(snapshot / "config.json") == {}
    (snapshot.parent / "config.json").symlink_to("../../secret")
    (repository / "secret").write_text("{}")
    with pytest.raises(CheckpointError, match="is a link out of its folder"):
        read_json(snapshot.parent / "config.json")


def test_a_folder_inside_that_is_a_link_out(folder: Path) -> None:
    (outside := folder / "outside").mkdir()
    (outside / "config.json").write_text("{}")
    (inner := folder / "inner").mkdir()
    (inner / "1_Pooling").symlink_to(outside)
    with pytest.raises(CheckpointError, match="is a link out of its folder"):
        read_json(inner / "1_Pooling" / "config.json", within=inner)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    (tmp_path / "model.safetensors").mkdir()
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "device.json").symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match="is no regular file"):
        read_json(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match=r"is no regular file|Is a directory"):
        open_tensors(tmp_path)
    with pytest.raises(CheckpointError, match="is a link out of its folder"):
        read_json(tmp_path / "device.json")
    with pytest.raises(CheckpointError, match=r"cannot be read|has no"):
        read_json(tmp_path / "loop.json")
    with pytest.raises(CheckpointError, match=r"has no other\.json"):
        read_json(tmp_path / "other.json")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_json(tmp_path / "a\0b.json")


def test_pickle_files_are_named_and_not_read(tmp_path: Path) -> None:
    for name in ("pytorch_model.bin", "model.pt", "old.ckpt", "tf_model.h5", "flax_model.msgpack", "x.pth"):
        (tmp_path / name).write_bytes(b"\x80\x04cos\nsystem\n")
        (tmp_path / name).chmod(0)
    with pytest.raises(CheckpointError) as caught:
        open_tensors(tmp_path)
    for part in ("flax_model.msgpack, model.pt, old.ckpt, pytorch_model.bin, tf_model.h5", "can run code", "convert"):
        assert part.lower() in str(caught.value).lower()
    assert "save_pretrained(new, safe_serialization=True)" in str(caught.value)


def test_folders_without_weights(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors$"):
        open_tensors(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors; it has 'adapter_model\.safetensors'"):
        open_tensors(tmp_path)
    with pytest.raises(CheckpointError, match="there is no folder"):
        open_tensors(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="is a file; a model is a folder"):
        open_tensors(tmp_path / "adapter_model.safetensors")


# JSON


def read(folder: Path, raw: bytes, **options: Any) -> Any:
    (folder / "config.json").write_bytes(raw)
    return read_json(folder / "config.json", **options)


@settings(max_examples=200)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    ),
    st.booleans(),
)
def test_json_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, value: Any, escaped: bool) -> None:
    folder = tmp_path_factory.getbasetemp()
    raw = json.dumps({"it": value}, ensure_ascii=escaped).encode()
    assert read(folder, raw) == {"it": value}


JSONS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is no JSON"),
    "half of it": (b'{"a": [1, 2', "is no JSON"),
    "a list": (b"[1]", "holds a list, expected an object"),
    "a number": (b"3", "holds a bare value, expected an object"),
    "NaN": (b'{"a": NaN}', "NaN is no number of JSON"),
    "minus infinity": (b'{"a": -Infinity}', "-Infinity is no number"),
    "a number beyond all": (b'{"a": 1e999}', "'1e999' is too large"),
    "a key twice": (b'{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' is there twice"),
    "bytes that are no text": (b'{"a": "\xc3\x28"}', "byte 7 is not UTF-8"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "byte 0 is not UTF-8"),
    "half a character": (b'{"a": ["\\uDC00"]}', "half of a character"),
    "a deep list": (b'{"a": ' + b"[" * 100_000, "nest deeper than 64"),
    "a deep object": (b'{"a": ' * 65 + b"1" + b"}" * 65, "nest deeper than 64"),
    "a number of 9,999 digits": (b'{"a": ' + b"9" * 9_999 + b"}", "is no JSON"),
}


@pytest.mark.parametrize("what", JSONS)
def test_json_that_is_not(what: str, tmp_path: Path) -> None:
    raw, message = JSONS[what]
    with pytest.raises(CheckpointError, match=message) as caught:
        read(tmp_path, raw)
    assert "config.json" in str(caught.value)


def test_json_within_its_limits(tmp_path: Path) -> None:
    assert read(tmp_path, b'{"a": ' * 64 + b"1" + b"}" * 64)
    assert read(tmp_path, b'{"a": "' + b"[" * 1000 + b'\\"[["}')  # brackets in texts nest nothing
    assert read(tmp_path, b'{"a": "\\ud83d\\ude00"}') == {"a": "😀"}
    assert read(tmp_path, b"[1]", kind=list) == [1]
    with pytest.raises(CheckpointError, match="has 9 bytes; more than 8 are not read"):
        read(tmp_path, b'{"a": 10}', largest=8)


def test_json_of_too_many_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.untrusted_files.MOST_VALUES", 100)
    with pytest.raises(CheckpointError, match="more than 100 values"):
        read(tmp_path, json.dumps({"a": [[]] * 200}).encode())


# Models


def test_a_loaded_model_is_mapped_and_tied(tmp_path: Path) -> None:
    folder = cf.save_model(cf.build(presets.gpt2("tiny"), seed=0), tmp_path / "model")
    before = (folder / "weights.safetensors").read_bytes()
    model = cf.load_model(folder)
    assert model.head.weight is model.stack.embed.table
    assert len({parameter.data_ptr() for parameter in model.parameters()}) == len(list(model.parameters()))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert (folder / "weights.safetensors").read_bytes() == before


def test_computed_tables_are_there_after_loading(tmp_path: Path) -> None:
    what = presets.gpt2("tiny").replace({"stack.blocks.*.self.positions": cf.spec.ALiBi()})
    model = cf.build(what, seed=0)
    loaded = cf.load_model(cf.save_model(model, tmp_path / "model"))
    ids = torch.tensor([[1, 2, 3]])
    assert not any(buffer.is_meta for buffer in loaded.buffers())
    torch.testing.assert_close(loaded(ids), model(ids))


def test_a_spec_of_more_blocks_than_there_are_tensors_is_not_built(tmp_path: Path) -> None:
    model = cf.build(presets.gpt2("tiny"), seed=0)
    folder = cf.save_model(model, tmp_path / "model")
    many = json.loads(model.spec.to_json())
    many["stack"]["blocks"] *= 500
    (folder / "spec.json").write_text(json.dumps(many))
    with pytest.raises(CheckpointError, match=r"asks for 1,000 blocks, and the weights are \d+ tensors"):
        cf.load_model(folder)


def test_two_thousand_damaged_files_load_whole_or_are_refused() -> None:
    """In a process of its own, with limits on memory and time; stress/fuzz_checkpoints.py says what is done."""
    done = subprocess.run([sys.executable, str(FUZZ), "--files", "2040"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "2,040 files, 0 faults" in done.stdout
    for target in ("ours", "tensors", "shards", "words", "translator", "bert", "llama", "t5", "vit"):
        assert f"{target}: refused" in done.stdout  # the damage is seen
        assert f"{target}: loaded" in done.stdout  # and some of it does no harm, so the files were near to valid
