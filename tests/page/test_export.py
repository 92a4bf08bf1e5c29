"""An exported file holds exactly the numbers of the trace, and says what it does not hold."""

import json
import re
import zlib
from base64 import b64decode
from html import unescape
from typing import Any

import numpy as np
import pytest
import torch

import clearformer as cf
from clearformer import presets
from clearformer.page import files
from clearformer.page.export import to_html
from tests.laws.cases import loud
from tests.serve.bundled import bundled

TEXT = "The animal didn't cross the street because it was tired and it had begun to rain."
IMPORTED = re.compile(r"""\b(?:(?:import|export)\b[^;"']*?\bfrom\s*|import\s*\(?\s*)["']([^"'\n]+)["']""")
NEEDED = ("weights", "scores", "q", "k", "v", "mixed", "merged", "out", "sum", "before", "final", "tokens", "placed")


def embedded(page: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="clearformer-data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found)


class Unpacked:
    """The reverse of `packing`, written from its description and in single steps: sums are taken in order."""

    def __init__(self, data: dict[str, Any]):
        self.data, self.blob = data, b64decode(data["blob"])
        self.answers = json.loads(zlib.decompress(self.blob[slice(*data["answers"])]))

    def words(self, where: list[int], kind: str) -> Any:
        planes = np.frombuffer(zlib.decompress(self.blob[slice(*where)]), np.uint8)
        return planes.reshape(4, -1).T.copy().view(kind).ravel()

    def __getitem__(self, name: str) -> Any:
        how = self.data["tensors"][name]
        shape = how["shape"]
        if "at" in how:
            return self.words(how["at"], "<f4").reshape(shape)
        if "same" in how:
            return self[how["same"]].reshape(shape)
        if "sum" in how:
            return self[how["sum"][0]] + self[how["sum"][1]]
        if "turned" in how:
            return np.stack([np.concatenate(list(row)) for row in self[how["turned"]].transpose(1, 0, 2)])
        if "relu" in how:
            return np.where(self[how["relu"]] > 0, self[how["relu"]], np.float32(0))
        near = self._near(how).astype(np.float32).reshape(-1)
        if "by" in how:
            bits = [int(each) for each in near.view(np.int32)]
            order = [bit if bit >= 0 else -(bit + 2**31) - 1 for bit in bits]
            order = [place + int(step) for place, step in zip(order, self.words(how["by"], "<i4"), strict=True)]
            bits = [place if place >= 0 else -(place + 1) - 2**31 for place in order]
            near = np.array(bits, np.int32).view(np.float32)
        return near.reshape(shape)

    def _near(self, how: dict[str, Any]) -> Any:
        names = how.get("norm") or how.get("scores") or how.get("mixed")
        a, b, c = (*(None if name is None else self[name].astype(float) for name in names), None, None)[:3]
        if "norm" in how:
            rows = []
            for row in a.tolist():
                mean = _sum(row) / len(row) if how["centred"] else 0.0
                root = np.sqrt(_sum([(x - mean) * (x - mean) for x in row]) / len(row) + how["eps"])
                rows.append([(x - mean) / root for x in row])
            found = np.array(rows)
            found = found if b is None else found * b
            return found if c is None else found + c
        group = len(a) // len(b)
        found = np.zeros((len(a), a.shape[1], b.shape[1] if "scores" in how else b.shape[2]))
        for h, t, x in np.ndindex(found.shape):
            other = b[h // group, x] if "scores" in how else b[h // group, :, x]
            found[h, t, x] = _sum([p * q for p, q in zip(a[h, t].tolist(), other.tolist(), strict=True)])
        found = found * how["scale"] if "scores" in how else found
        return found if c is None else found + c


def _sum(numbers: list[float]) -> float:
    total = 0.0
    for each in numbers:
        total += each
    return total


INPUTS: dict[str, tuple[torch.Tensor, ...]] = {
    "llama": (torch.tensor([[3, 17, 42, 5]]),),
    "t5": (torch.tensor([[3, 4, 5, 6]]), torch.tensor([[1, 9, 8]])),
    "original": (torch.tensor([[3, 4, 5, 6]]), torch.tensor([[1, 9, 8]])),
    "bert": (torch.tensor([[3, 17, 42, 5]]),),
    "linformer": (torch.tensor([[3, 17, 42, 5]]),),
}


@pytest.mark.parametrize("name", INPUTS)
def test_numbers_come_back_to_the_bit(name: str) -> None:
    trace = cf.trace(loud(cf.build(presets.FAMILIES[name]("tiny"), seed=3)).eval(), *INPUTS[name])
    found = Unpacked(embedded(to_html(trace)))
    assert found.data["left_out"] == []
    for each in trace:
        assert found[each].tobytes() == np.ascontiguousarray(trace[each].values.numpy()).tobytes(), each
    kinds = {next(iter(how)) for how in found.data["tensors"].values()}
    assert {"at", "norm", "scores", "mixed", "turned", "sum"} <= kinds


@pytest.fixture(scope="module")
def translated() -> Any:
    return bundled().task("en-de").trace(TEXT)


@pytest.fixture(scope="module")
def page(translated: Any) -> str:
    return to_html(translated, title="</title><script>alert(1)</script>", model="en-de", command="clearformer look '…'")


def test_a_translation_of_twenty_tokens_is_complete_in_three_megabytes(translated: Any, page: str) -> None:
    assert 18 <= len(translated.words["source"]) <= 24
    assert len(page.encode()) <= 3_000_000
    found = Unpacked(embedded(page))
    for name in translated:
        if name.rsplit(".", 1)[-1] in NEEDED:
            assert name in found.data["tensors"], name
    assert set(found.data["left_out"]) == set(translated) - set(found.data["tensors"])
    assert found.data["left_out"]
    assert found.data["command"].startswith("clearformer look")
    for name in ("decoder.1.cross.weights", "decoder.2.self.sum", "encoder.3.self.before", "decoder.0.self.scores"):
        assert found[name].tobytes() == np.ascontiguousarray(translated[name].values.numpy()).tobytes()
    said = found.answers
    assert said["trace"]["run"]["text"] == translated.run.text
    assert said["lens"]["layers"] == translated.lens().layers
    assert len(said["heads"]["heads"]) == len(translated.heads())
    assert said["top"]["rows"][0][0]["id"] == translated.run.ids[0]
    written = [key for key in said if key.startswith("attribution?")]
    assert written == [f"attribution?address=head.logits[{n},{i}]" for n, i in enumerate(translated.run.ids)]
    for key in written:
        assert said[key]["total"] == pytest.approx(said[key]["logit"], abs=1e-3)


def test_the_file_reaches_nothing_and_runs_nothing_else(page: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "connect-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    assert "<script>alert" not in page
    assert not re.search(r'(src|href)="(?!data:)', page.partition("<body")[0])
    imports = json.loads(re.findall(r'<script type="importmap">(.*?)</script>', page)[0])["imports"]
    assert all(url.startswith("data:text/javascript;base64,") for url in imports.values())
    assert not any(name.startswith("page/lessons/") for name in imports)


def test_a_small_budget_leaves_out_and_says_so(translated: Any) -> None:
    small = to_html(translated, budget=1_000_000)
    assert len(small.encode()) <= 1_050_000
    data = embedded(small)
    assert "decoder.1.cross.weights" in data["tensors"]
    assert len(data["left_out"]) > 20
    assert not set(data["left_out"]) & set(data["tensors"])


def test_words_do_not_end_the_script(tmp_path: Any) -> None:
    model = loud(cf.build(presets.llama("tiny"), seed=3)).eval()
    trace = cf.trace(model, torch.tensor([[3, 4]]), words=["</script><script>alert(1)</script>", "<!--"])
    page = trace.to_html(tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text(encoding="utf-8") == page
    assert "alert(1)" not in page  # deflated
    frame = trace.show(height=300)._repr_html_()
    assert 'sandbox="allow-scripts allow-downloads"' in frame
    inside = re.findall(r'srcdoc="([^"]*)"', frame)
    assert unescape(inside[0]) == to_html(trace)


# --- the files themselves -----------------------------------------------------------------------------------------


def test_the_page_is_served_with_its_files_and_a_policy() -> None:
    asking = bundled()
    for path in ("/", "/look"):
        found = asking.get(path)
        assert found.status == 200
        assert found.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'; script-src 'self' 'sha256-" in found.headers["content-security-policy"]
    text = asking.get("/").content.decode()
    imports = json.loads(re.findall(r'<script type="importmap">(.*?)</script>', text)[0])["imports"]
    assert {"preact", "htm", "@preact/signals", "page/app.js"} <= set(imports)
    kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    for name in files.names():
        answer = asking.get(f"/assets/{name}")
        assert answer.status == 200
        kind = kinds.get(name[name.rfind(".") :])
        assert kind is None or answer.headers["content-type"].startswith(kind)
        again = asking.get(f"/assets/{name}", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["../files.py", "..%2ffiles.py", "/etc/passwd", "nothing.js", "vendor", "", "%00"])
def test_no_other_file_is_served(name: str) -> None:
    assert bundled().get(f"/assets/{name}").status == 404


def test_modules_name_each_other_as_the_map_does() -> None:
    known = files.modules()
    for name in files.names():
        if name.endswith(".js"):
            found = files.read(name)
            assert found is not None
            text = found.content.decode()
            for imported in IMPORTED.findall(text):
                assert imported in known, f"{name} imports {imported}"
