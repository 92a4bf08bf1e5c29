"""The law of the server: the same request gives the same bytes, apart from its id and its time — alone, among others,
streamed or not, and after a restart.

The reference is each request alone on a fresh server; the truth beside it is what the task objects say in this process.
"""

import json
import random
import threading
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearformer as cf
from clearformer import presets
from clearformer.tasks.embed import Embedder
from tests.laws.cases import loud
from tests.serve.processes import Served, served, tiny_translator
from tests.tasks.writers import TEMPLATE, completer, save, words

PASSING = ("id", "created", "time")  # fields that are of the moment
TEXTS = ["one two three", "four five, six.", "Do you know him?", "seven eight nine ten", "I see three of them."]
OTHERS, ROUNDS = 8, 3  # clients that ask for other things meanwhile, and how often each request is asked then


def requests() -> list[tuple[str, dict[str, Any]]]:
    texts = [{"model": "chat", "prompt": text, "max_tokens": 12} for text in TEXTS]
    talks = [{"model": "chat", "messages": [{"role": "user", "content": text}], "max_tokens": 10} for text in TEXTS[:2]]
    return [
        *[("/v1/completions", each) for each in texts],
        ("/v1/completions", {**texts[0], "temperature": 1.3, "seed": 7, "n": 3}),
        ("/v1/completions", {**texts[1], "temperature": 0.7, "top_p": 0.9, "seed": 11, "logprobs": 3}),
        ("/v1/completions", {**texts[2], "frequency_penalty": 0.5, "stop": ["e"]}),
        *[("/v1/chat/completions", each) for each in talks],
        ("/v1/chat/completions", {**talks[0], "temperature": 1.0, "seed": 3, "logprobs": True, "top_logprobs": 2}),
        ("/v1/embeddings", {"model": "vectors", "input": TEXTS, "encoding_format": "base64"}),
        ("/v1/embeddings", {"model": "vectors", "input": TEXTS[3]}),
        ("/embed", {"inputs": TEXTS[1:4]}),
        ("/translate", {"q": TEXTS, "source": "en", "target": "xx"}),
        ("/translate", {"q": TEXTS[0], "source": "en", "target": "xx"}),
    ]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    home = tmp_path_factory.mktemp("served")
    found = words()
    encoder = loud(cf.build(presets.bert("tiny", vocabulary=len(found)), seed=2)).eval()
    vectors = Embedder(encoder, found, {"task": "embed", "longest": 40, "normalise": True})  # type: ignore[arg-type]
    save(completer(TEMPLATE), home / "chat")
    save(vectors, home / "vectors")  # type: ignore[arg-type]
    tiny_translator(home / "tiny")
    return [word for name in ("chat", "vectors", "tiny") for word in ("--model", str(home / name))]


def still(content: Any) -> Any:
    """An answer without what is of the moment."""
    if isinstance(content, dict):
        return {name: still(value) for name, value in content.items() if name not in PASSING}
    return [still(each) for each in content] if isinstance(content, list) else content


def asked(up: Served, path: str, body: dict[str, Any]) -> bytes:
    status, _, content = up.ask("POST", path, body)
    assert status == 200, content
    found = json.loads(content)
    if isinstance(found, dict) and "usage" in found:
        found["usage"].pop("prompt_tokens_details", None)  # how much of it was read before
    return json.dumps(still(found)).encode()


@pytest.fixture(scope="module")
def alone(folders: list[str]) -> Iterator[dict[int, bytes]]:
    with served(*folders) as up:
        yield {n: asked(up, path, body) for n, (path, body) in enumerate(requests())}


@pytest.fixture(scope="module")
def again(alone: dict[int, bytes], folders: list[str]) -> Iterator[Served]:
    """Another process, after the first has been asked."""
    with served(*folders) as up:
        yield up


def test_a_restart_changes_no_byte(alone: dict[int, bytes], again: Served) -> None:
    order = list(enumerate(requests()))
    random.Random(1).shuffle(order)  # nor does what was asked before
    for n, (path, body) in order:
        assert asked(again, path, body) == alone[n], path


def test_company_changes_no_byte(alone: dict[int, bytes], again: Served) -> None:
    stop, wrong, count = threading.Event(), [], [0]

    def others(number: int) -> None:
        chance = random.Random(number)
        while not stop.is_set():
            n, (path, body) = chance.choice(list(enumerate(requests())))
            if chance.random() < 0.5 and "prompt" in body:  # others' words, lengths and draws
                again.ask(
                    "POST", path, {**body, "prompt": chance.choice(TEXTS) * 2, "max_tokens": chance.randint(1, 12)}
                )
            elif asked(again, path, body) != alone[n]:
                wrong.append(path)
            count[0] += 1

    several = [threading.Thread(target=others, args=(n,)) for n in range(OTHERS)]
    for each in several:
        each.start()
    try:
        for _ in range(ROUNDS):
            for n, (path, body) in enumerate(requests()):
                assert asked(again, path, body) == alone[n], path
    finally:
        stop.set()
        for each in several:
            each.join()
    assert wrong == []
    assert count[0] >= OTHERS


def test_a_stream_says_what_the_whole_says(alone: dict[int, bytes], again: Served) -> None:
    for n, (path, body) in enumerate(requests()):
        if not path.endswith("completions"):
            continue
        status, _, content = again.ask("POST", path, {**body, "stream": True})
        assert status == 200
        events = [json.loads(line[6:]) for line in content.decode().splitlines() if line.startswith("data: {")]
        told: dict[int, str] = {}
        finish: dict[int, str] = {}
        for choice in (choice for each in events for choice in each["choices"]):
            told.setdefault(choice["index"], "")
            told[choice["index"]] += choice.get("text") or choice.get("delta", {}).get("content") or ""
            finish |= {choice["index"]: choice["finish_reason"]} if choice.get("finish_reason") else {}
        for choice in json.loads(alone[n])["choices"]:
            whole = choice["text"] if "text" in choice else choice["message"]["content"]
            assert told[choice["index"]] == whole
            assert finish[choice["index"]] == choice["finish_reason"]


def test_answers_are_those_of_the_task_objects(alone: dict[int, bytes], folders: list[str]) -> None:
    chat, vectors, tiny = (cf.load(Path(folder)) for folder in folders[1::2])
    found = [json.loads(alone[n]) for n in range(len(alone))]
    for n, (path, body) in enumerate(requests()):
        if path == "/v1/completions" and set(body) == {"model", "prompt", "max_tokens"}:
            assert found[n]["choices"][0]["text"] == chat.complete(body["prompt"], max_new_tokens=12)[0].text
        if path == "/translate":
            wanted = [one.text for one in tiny.translate([body["q"]] if isinstance(body["q"], str) else body["q"])]
            said = found[n]["translatedText"]
            assert ([said] if isinstance(said, str) else said) == wanted
        if body.get("encoding_format") == "base64":
            rows = np.stack([np.frombuffer(b64decode(one["embedding"]), np.float32) for one in found[n]["data"]])
            np.testing.assert_allclose(rows, np.asarray(vectors.embed(TEXTS)), atol=1e-6)
