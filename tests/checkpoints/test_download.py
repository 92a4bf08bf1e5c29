"""Downloads, against a hub of our own on this machine that answers as huggingface.co does."""

import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import pytest
import torch
from safetensors.torch import save
from typer.testing import CliRunner

from clearformer.checkpoints.hub import COMMIT, Wanted, choose, download
from clearformer.checkpoints.safe import open_tensors
from clearformer.cli import app
from clearformer.errors import CheckpointError

OLD, NEW = "0" * 39 + "1", "f" * 40
WEIGHTS = save({"x": torch.arange(5000.0)})
FILES = {
    "model.safetensors": WEIGHTS,
    "config.json": b'{"model_type": "bert"}',
    "tokenizer.json": b"{}",
    "vocab.txt": b"[PAD]\n",
    "spiece.model": b"\x0a\x00",
    "chat_template.jinja": b"{{ messages }}",
    "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
    "README.md": b"# A model\n",
    "LICENSE": b"Apache-2.0\n",
    "pytorch_model.bin": b"\x80\x04cos\nsystem\n",
    "modeling.py": b"import os\n",
    "run.sh": b"rm\n",
    "onnx/model.onnx": b"onnx",
    "onnx/config.json": b"{}",
    ".gitattributes": b"",
    "source.json": b'{"repository": "another"}',
}
TAKEN = set(list(FILES)[:9])


class Hub(BaseHTTPRequestHandler):
    """The few addresses of a hub that a download asks for."""

    files: ClassVar[dict[str, bytes]] = FILES
    asked: ClassVar[list[tuple[str, str, str | None]]] = []
    fault: ClassVar[str] = ""

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.asked.append((self.command, path, self.headers.get("Authorization")))
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"] and len(parts) in (4, 6):
            self.info("/".join(parts[2:4]), parts[5] if len(parts) == 6 else "main")
        elif parts[0] == "storage":
            self.content(parts[1], FILES["model.safetensors"], body)
        elif len(parts) >= 5 and parts[2] == "resolve":
            self.resolve(parts[3], "/".join(parts[4:]), body)
        else:
            self.send(404, {}, b"", body)

    def info(self, name: str, revision: str) -> None:
        if self.fault == "500":
            return self.send(500, {}, b"oops")
        if self.fault == "html":
            return self.send(200, {"Content-Type": "text/html"}, b"<html>a captive portal</html>")
        if name != "org/name":
            return self.send(401, {"X-Error-Message": "Invalid username or password."}, b"{}")
        if (commit := {"main": NEW, "v1": OLD, OLD: OLD, NEW: NEW}.get(revision)) is None:
            return self.send(404, {"X-Error-Code": "RevisionNotFound"}, b"{}")
        siblings = [self.sibling(name, content) for name, content in self.files.items()]
        told = "not a commit" if self.fault == "commit" else commit
        self.send(
            200, {"Content-Type": "application/json"}, json.dumps({"id": name, "sha": told, "siblings": siblings})
        )

    def sibling(self, name: str, content: bytes) -> dict[str, Any]:
        said: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": git_blob(content)}
        if name.endswith(".safetensors"):
            digest = hashlib.sha256(content).hexdigest()
            said["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 130}
        return said

    def resolve(self, revision: str, name: str, body: bool) -> None:
        if self.fault == "gated":
            return self.send(403, {"X-Error-Code": "GatedRepo"}, b"", body)
        if revision not in (OLD, NEW) or name not in self.files:
            return self.send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": NEW}, b"", body)
        content, headers = self.files[name], {"X-Repo-Commit": revision}
        if name.endswith(".safetensors"):  # large files lie elsewhere
            digest, port = hashlib.sha256(content).hexdigest(), self.server.server_address[1]
            linked = {
                "X-Linked-Etag": f'"{digest}"',
                "X-Linked-Size": str(len(content)),
                "Location": f"http://localhost:{port}/storage/{digest}",
            }
            return self.send(302, {**headers, **linked}, b"", body)
        self.content(git_blob(content), content, body, headers)

    def content(self, tag: str, content: bytes, body: bool, headers: dict[str, str] | None = None) -> None:
        if self.fault == "damaged":
            content = content[:-1] + bytes([content[-1] ^ 1])
        if self.fault == "cut" and body:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
            return
        self.send(200, {**(headers or {}), "ETag": f'"{tag}"'}, content, body)

    def send(self, status: int, headers: dict[str, str], content: bytes | str, body: bool = True) -> None:
        raw = content.encode() if isinstance(content, str) else content
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(raw))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(raw)


def git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(Hub, "asked", [])
    monkeypatch.setattr(Hub, "fault", "")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_model_is_fetched_pinned_and_noted(hub: str, tmp_path: Path) -> None:
    out = tmp_path / "models" / "mine"
    done = download("org/name", out, endpoint=hub)
    assert done.folder == out
    assert done.revision == NEW
    found = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    note = json.loads(found.pop("source.json"))
    assert found == {name: FILES[name] for name in TAKEN}
    assert note["files"] == done.files == {n: hashlib.sha256(FILES[n]).hexdigest() for n in TAKEN}
    assert (note["repository"], note["revision"], note["asked"]) == ("org/name", NEW, None)
    assert left(out.parent) == {"mine"}
    assert open_tensors(out)["x"][7] == 7


def test_what_is_asked_of_the_hub(hub: str, tmp_path: Path) -> None:
    download("org/name", tmp_path / "mine", revision="v1", endpoint=hub)
    assert json.loads((tmp_path / "mine" / "source.json").read_text())["revision"] == OLD
    paths = [path for _, path, _ in Hub.asked]
    assert paths[0] == "/api/models/org/name/revision/v1"
    resolved = [path for path in paths if "/resolve/" in path]
    assert {path.split("/resolve/")[1] for path in resolved} == {f"{OLD}/{name}" for name in TAKEN}  # never a branch
    assert all(token is None for _, _, token in Hub.asked)  # another hub is not shown the token of the usual one


REFUSED = {
    "no such repository": ({"repository": "org/other"}, "", "there is no org/other at"),
    "no such revision": ({"revision": "v9"}, "", "org/name at .* has no revision 'v9'"),
    "a gated repository": ({}, "gated", "agreed to its terms"),
    "a hub that fails": ({}, "500", "answered 500 for org/name"),
    "no hub but a page": ({}, "html", "does not answer as a hub does"),
    "no commit": ({}, "commit", "does not say which commit"),
    "damaged files": ({}, "damaged", "arrived damaged: .*, and the hub promised"),
    "a name that is none": ({"repository": "../../etc"}, "", "names no repository; expected ORG/NAME"),
    "an address as a name": ({"repository": "https://huggingface.co/org/name"}, "", "names no repository"),
    "no address": ({"endpoint": "huggingface.co"}, "", "is no address"),
    "nobody there": ({"endpoint": "http://127.0.0.1:9"}, "", "http://127.0.0.1:9 cannot be reached"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_fails_leaves_nothing(what: str, hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, fault, message = REFUSED[what]
    monkeypatch.setattr(Hub, "fault", fault)
    (place := tmp_path / "place").mkdir()
    options = {"repository": "org/name", "endpoint": hub, **given}
    with pytest.raises(CheckpointError, match=message) as caught:
        download(folder=place / "mine", **options)
    assert left(place) == set()
    assert "\n" not in str(caught.value)


def test_a_transfer_that_breaks_off_leaves_nothing(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hub, "fault", "cut")
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the client waits before it tries again
    (place := tmp_path / "place").mkdir()
    with pytest.raises(CheckpointError, match="nothing was kept"):
        download("org/name", place / "mine", endpoint=hub)
    assert left(place) == set()


def test_an_interrupted_download_leaves_nothing(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("clearformer.checkpoints.hub._check", stop)
    (place := tmp_path / "place").mkdir()
    with pytest.raises(KeyboardInterrupt):
        download("org/name", place / "mine", endpoint=hub)
    assert left(place) == set()


def test_what_is_there_already_is_left_alone(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "name").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="name exists already; give a new folder with --out"):
        download("org/name", endpoint=hub)
    assert Hub.asked == []


def test_a_full_disk_is_found_before_anything_is_fetched(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("", (), {"free": 10}))
    with pytest.raises(CheckpointError, match="has 10 bytes free and the model takes 20,"):
        download("org/name", tmp_path / "mine", endpoint=hub)
    assert len(Hub.asked) == 1


def test_a_folder_that_cannot_be_made(hub: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write to"):
        download("org/name", tmp_path / "file" / "mine", endpoint=hub)


def test_a_repository_of_pickles(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {name: FILES[name] for name in ("config.json", "pytorch_model.bin")}
    monkeypatch.setattr(Hub, "files", kept)
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors .*; it has pytorch_model\.bin"):
        download("org/name", tmp_path / "mine", endpoint=hub)
    assert len(Hub.asked) == 1


def test_without_the_client_library_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match=r"pip install 'clearformer\[download\]'"):
        download("org/name", tmp_path / "mine")


def test_offline_is_said(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import errors

    def offline(*_: Any, **__: Any) -> None:
        raise errors.OfflineModeIsEnabled("offline")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", offline)
    with pytest.raises(CheckpointError, match="unset HF_HUB_OFFLINE"):
        download("org/name", tmp_path / "mine", endpoint=hub)


def chosen(*names: str) -> list[str]:
    return [file.name for file in choose([Wanted(name, 1, None, None) for name in names], "org/name")]


def test_which_files_are_taken() -> None:
    whole, one, two = "model.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    assert chosen(one, two, "model.safetensors.index.json") == [one, two, "model.safetensors.index.json"]
    assert chosen(whole, one, two) == [whole]  # the same weights twice
    assert chosen(whole, "consolidated.safetensors", "model.fp16.safetensors") == [whole]
    assert chosen("weights.safetensors", "spec.json", "task.json") == ["weights.safetensors", "spec.json", "task.json"]
    assert chosen(whole, "2_Dense/model.safetensors", "2_Dense/pytorch_model.bin") == [
        whole,
        "2_Dense/model.safetensors",
    ]
    for hostile in ("../x.json", "/etc/x.json", "a/../../x.json", "..\\x.json", "C:x.json", ".ssh/x.json", "a\0.json"):
        assert chosen(whole, hostile) == [whole]
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors"):
        chosen("2_Dense/model.safetensors", "config.json")


def test_the_command(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["download", "org/name", "--endpoint", hub, "--revision", "v1"])
    assert result.exit_code == 0, result.output
    assert f"name: 9 files, 0.0 MB, of commit {OLD}" in result.stdout
    assert "clearformer inspect name" in result.stderr
    assert COMMIT.fullmatch(OLD)
    assert (tmp_path / "name" / "config.json").read_bytes() == FILES["config.json"]


def test_the_command_s_errors_are_one_line(hub: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from clearformer.cli import main

    monkeypatch.setattr(sys, "argv", ["clearformer", "download", "org/other", "--endpoint", hub])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("clearformer: there is no org/other at http://127.0.0.1")
    assert said.err.count("\n") == 1
