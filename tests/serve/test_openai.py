"""OpenAI's protocol: what is served is what the model says when it is asked directly."""

import base64
import json
from typing import Any

import numpy as np
import pytest
import torch

from tests.serve.asking import Answer, Asking
from tests.serve.models import CREATED, POSITIONS, completer, embedder, served, usual

MESSAGES = [{"role": "user", "content": "one two"}]
PLAIN: dict[str, Any] = {"model": "plain", "prompt": "one two", "max_tokens": 12}
CHAT: dict[str, Any] = {"model": "chat", "messages": MESSAGES, "max_tokens": 12}


def post(path: str, body: dict[str, Any], **more: Any) -> Any:
    found = usual().post(path, {**body, **more})
    assert found.status == 200, found.content
    return found.json()


def chat(**more: Any) -> Any:
    return post("/v1/chat/completions", CHAT, **more)


def completion(**more: Any) -> Any:
    return post("/v1/completions", PLAIN, **more)


def events(answer: Answer) -> list[Any]:
    """The chunks of a stream, which ends as it should."""
    assert answer.status == 200, answer.content
    assert answer.headers["content-type"] == "text/event-stream"
    *parts, last, nothing = answer.content.decode().split("\n\n")
    assert (last, nothing) == ("data: [DONE]", "")
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def streamed(path: str, body: dict[str, Any], **more: Any) -> list[Any]:
    return events(usual().post(path, {**body, **more, "stream": True}))


def refused(path: str, body: Any, status: int = 400) -> Any:
    found = usual().post(path, body)
    assert found.status == status, found.content
    error = found.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


def direct(prompt: str = "one two", **options: Any) -> Any:
    return usual().task("plain").complete(prompt, **{"max_new_tokens": 12, **options})[0]


# --- models -------------------------------------------------------------------------------------------------------


def test_models_are_listed_and_found() -> None:
    found = usual().get("/v1/models").json()
    assert [each["id"] for each in found["data"]] == ["chat", "plain", "spelt", "vectors"]
    one = usual().get("/v1/models/plain").json()
    assert one == {"id": "plain", "object": "model", "created": CREATED, "owned_by": "clearformer"}
    missing = usual().get("/v1/models/none")
    assert missing.status == 404
    assert "chat, plain, spelt, vectors" in missing.json()["error"]["message"]


# --- what is written ----------------------------------------------------------------------------------------------


WAYS = [
    {},
    {"temperature": 0.8},
    {"temperature": 1.2, "seed": 7, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 5, "seed": 3},
    {"frequency_penalty": 1.5},
    {"presence_penalty": -1.0, "temperature": 0.5},
    {"repetition_penalty": 1.3},
]


@pytest.mark.parametrize("ways", WAYS)
def test_a_completion_is_the_models_own(ways: dict[str, Any]) -> None:
    expected = direct(**ways)
    found = completion(**ways)
    choice = found["choices"][0]
    assert choice["text"] == expected.text
    assert choice["finish_reason"] == {"end": "stop", "limit": "length"}[expected.finish]
    prompt = usual().task("plain").prompt_ids("one two", 1)
    written = len(expected.tokens) + (expected.finish == "end")
    used = found["usage"]
    assert (used["prompt_tokens"], used["completion_tokens"]) == (len(prompt), written)
    assert used["total_tokens"] == len(prompt) + written
    assert completion(**ways)["choices"] == found["choices"]


@pytest.mark.parametrize("ways", WAYS)
def test_a_stream_is_what_is_not_streamed(ways: dict[str, Any]) -> None:
    whole = completion(**ways)["choices"][0]
    parts = streamed("/v1/completions", PLAIN, **ways)
    assert "".join(part["choices"][0]["text"] for part in parts) == whole["text"]
    assert [part["choices"][0]["finish_reason"] for part in parts][-1] == whole["finish_reason"]
    whole = chat(**ways)["choices"][0]
    parts = streamed("/v1/chat/completions", CHAT, **ways)
    assert parts[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert "".join(part["choices"][0]["delta"].get("content", "") for part in parts) == whole["message"]["content"]
    assert [part["choices"][0]["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + [
        whole["finish_reason"]
    ]


def test_a_chat_is_the_models_own() -> None:
    messages = [{"role": "system", "content": "Do"}, *MESSAGES]
    expected = usual().task("chat").chat(messages, max_new_tokens=12)[0]
    found = chat(messages=messages)
    assert found["object"] == "chat.completion"
    message = found["choices"][0]["message"]
    assert (message["role"], message["content"]) == ("assistant", expected.text)
    ids = usual().task("chat").tokenizer.encode(expected.prompt, special=False).ids
    assert found["usage"]["prompt_tokens"] == len(ids)


def test_a_content_of_parts_is_their_text() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    found = chat(messages=[{"role": "user", "content": parts}])
    assert found["choices"] == chat()["choices"]
    assert (
        chat(messages=[{"role": "developer", "content": "Do"}, *MESSAGES])["choices"]
        == (chat(messages=[{"role": "system", "content": "Do"}, *MESSAGES])["choices"])
    )


def test_half_a_character_is_never_streamed() -> None:
    for seed in range(6):
        ways = {"temperature": 3.0, "seed": seed, "max_tokens": 40}
        whole = completion(**ways)["choices"][0]["text"]
        pieces = [part["choices"][0]["text"] for part in streamed("/v1/completions", PLAIN, **ways)]
        assert "".join(pieces) == whole
        assert not any("\ufffd" in piece for piece in pieces) or "\ufffd" in whole


def test_several_choices_are_several_draws() -> None:
    ways: dict[str, Any] = {"temperature": 1.5, "seed": 5}
    expected = direct(num_return_sequences=3, **ways)
    texts = [expected.text, *(other.text for other in expected.others)]
    assert len(set(texts)) > 1
    found = completion(n=3, **ways)
    assert [choice["text"] for choice in found["choices"]] == texts
    told = ["", "", ""]
    for part in streamed("/v1/completions", PLAIN, n=3, **ways):
        for choice in part["choices"]:
            told[choice["index"]] += choice["text"]
    assert told == texts
    alike = chat(n=3)
    assert [choice["index"] for choice in alike["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in alike["choices"]}) == 1
    assert alike["usage"]["completion_tokens"] == 3 * chat()["usage"]["completion_tokens"]


def test_several_prompts_as_texts_and_as_ids() -> None:
    ids = usual().task("plain").prompt_ids("Do you", 1)
    found = completion(prompt=["one two", "Do you"], n=2)
    texts = [choice["text"] for choice in found["choices"]]
    assert texts == [direct().text] * 2 + [direct("Do you").text] * 2
    assert completion(prompt=ids)["choices"][0]["text"] == direct("Do you").text
    assert completion(prompt=[ids, ids])["choices"][1]["text"] == direct("Do you").text


def test_a_text_stops_before_a_stop() -> None:
    free = direct(max_new_tokens=30).text
    stop = free[8:11]
    for ways in ({"stop": stop}, {"stop": [stop, "never said"]}):
        choice = completion(max_tokens=30, **ways)["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == (free[: free.index(stop)], "stop")
        parts = streamed("/v1/completions", PLAIN, max_tokens=30, **ways)
        assert "".join(part["choices"][0]["text"] for part in parts) == choice["text"]


def test_both_names_of_the_limit() -> None:
    assert chat(max_tokens=None, max_completion_tokens=5)["usage"]["completion_tokens"] == 5
    assert chat(max_tokens=7, max_completion_tokens=5)["usage"]["completion_tokens"] == 5
    assert completion(max_tokens=None)["usage"]["completion_tokens"] == 16


def test_a_bias_forces_and_forbids() -> None:
    token = usual().task("plain").tokenizer.encode("two", special=False).ids[-1]
    found = completion(logit_bias={str(token): 100}, max_tokens=3)
    expected = usual().task("plain").tokenizer.decode([5, token, token, token])
    assert found["choices"][0]["text"] == expected[len(usual().task("plain").tokenizer.decode([5])) :]
    assert completion(logit_bias={str(token): -100})["choices"][0]["text"] == (
        direct(suppress_tokens=[0, 1, 3, token]).text
    )


def test_usage_in_a_stream_comes_last_and_alone() -> None:
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", PLAIN)):
        *parts, last = streamed(path, body, stream_options={"include_usage": True})
        assert all(part["usage"] is None and part["choices"] for part in parts)
        assert last["choices"] == []
        used = post(path, body)["usage"]
        assert {**last["usage"], "prompt_tokens_details": None} == {**used, "prompt_tokens_details": None}
        assert all("usage" not in part for part in streamed(path, body))


def test_tokens_that_were_read_before_are_told() -> None:
    asking = Asking(registry=served(only=completer()))
    body = {"prompt": "Do you know him? I see three of them.", "max_tokens": 2}
    first, second = (asking.post("/v1/completions", body).json() for _ in range(2))
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == second["usage"]["prompt_tokens"] - 1  # the last is read, for what follows it
    assert first["choices"] == second["choices"]
    asking.server.close()


# --- log-probabilities --------------------------------------------------------------------------------------------


def chances(ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return usual().task("spelt").model(torch.tensor([ids]))[0].log_softmax(-1)


def test_logprobs_of_a_completion_are_the_models() -> None:
    task = usual().task("spelt")
    prompt = task.prompt_ids("one two", 1)
    choice = completion(model="spelt", logprobs=3, temperature=0)["choices"][0]
    told = choice["logprobs"]
    written = task.complete("one two", max_new_tokens=12)[0]
    ids = [task.tokenizer.engine.token_to_id(piece) for piece in written.tokens]
    assert len(told["tokens"]) == len(ids)
    assert "".join(told["tokens"]) == choice["text"]
    rows = chances([*prompt, *ids])[len(prompt) - 1 :]
    for n, token in enumerate(ids):
        assert told["token_logprobs"][n] == pytest.approx(float(rows[n, token]), abs=1e-3)
        best = sorted(told["top_logprobs"][n].values(), reverse=True)[:3]
        assert best == pytest.approx(rows[n].topk(3).values.tolist(), abs=1e-3)
        assert choice["text"][told["text_offset"][n] :].startswith(told["tokens"][n])


def test_logprobs_of_a_chat() -> None:
    choice = chat(model="spelt", logprobs=True, top_logprobs=2)["choices"][0]
    content = choice["logprobs"]["content"]
    assert bytes(byte for each in content for byte in each["bytes"]).decode() == choice["message"]["content"]
    for each in content:
        assert set(each) == {"token", "logprob", "bytes", "top_logprobs"}
        assert len(each["top_logprobs"]) == 2
        assert each["top_logprobs"][0]["logprob"] >= each["top_logprobs"][1]["logprob"]
    assert all(each["top_logprobs"] == [] for each in chat(logprobs=True)["choices"][0]["logprobs"]["content"])
    parts = streamed("/v1/chat/completions", CHAT, model="spelt", logprobs=True, top_logprobs=2)
    told = [part["choices"][0]["logprobs"] for part in parts]
    assert [one for each in told if each for one in each["content"]] == content


def test_tokens_of_a_stop_are_not_told() -> None:
    ways: dict[str, Any] = {"model": "spelt", "logprobs": 0, "max_tokens": 30, "temperature": 1.0}
    free = completion(**ways)["choices"][0]["logprobs"]["tokens"]
    stop = free[5] + free[6] + free[7][:1]
    assert stop not in "".join(free[:7])
    choice = completion(**ways, stop=stop)["choices"][0]
    assert choice["logprobs"]["tokens"] == free[:5]
    assert choice["text"] == "".join(free[:5])
    told: list[str] = []
    for part in streamed("/v1/completions", PLAIN, **ways, stop=stop):
        told += (part["choices"][0]["logprobs"] or {"tokens": []})["tokens"]
    assert told == free[:5]


def test_an_end_that_is_a_word_is_not_told() -> None:
    free = usual().task("spelt").complete("one two", max_new_tokens=12)[0]
    place = next(n for n, token in enumerate(free.tokens) if n > 2 and token not in free.tokens[:n])
    end = usual().task("spelt").tokenizer.engine.token_to_id(free.tokens[place])
    task = completer(suppress_tokens=[0, 1, *range(3, 260)], eos_token_id=[2, end])
    expected = task.complete("one two", max_new_tokens=12)[0]
    assert (expected.finish, len(expected.tokens)) == ("end", place)
    asking = Asking(registry=served(only=task))
    body = {"prompt": "one two", "max_tokens": 12, "logprobs": 1}
    found = asking.post("/v1/completions", body).json()
    assert (found["choices"][0]["text"], found["choices"][0]["finish_reason"]) == (expected.text, "stop")
    assert len(found["choices"][0]["logprobs"]["tokens"]) == place
    assert found["usage"]["completion_tokens"] == place + 1
    parts = events(asking.post("/v1/completions", {**body, "stream": True}))
    assert "".join(part["choices"][0]["text"] for part in parts) == expected.text
    asking.server.close()


def test_an_echo_has_the_prompt_and_its_logprobs() -> None:
    assert completion(echo=True)["choices"][0]["text"] == "one two" + direct().text
    choice = completion(echo=True, logprobs=2, max_tokens=0)["choices"][0]
    assert choice["text"] == "one two"
    ids = usual().task("plain").prompt_ids("one two", 1)
    rows = chances(ids)
    told = choice["logprobs"]["token_logprobs"]
    assert told[0] is None
    assert told[1:] == pytest.approx([float(rows[n, token]) for n, token in enumerate(ids[1:])], abs=1e-3)
    both = completion(echo=True, logprobs=2)["choices"][0]
    assert both["logprobs"]["token_logprobs"][: len(told)] == told
    parts = streamed("/v1/completions", PLAIN, echo=True)
    assert "".join(part["choices"][0]["text"] for part in parts) == "one two" + direct().text


# --- embeddings ---------------------------------------------------------------------------------------------------


def test_embeddings_as_numbers_and_as_base64() -> None:
    texts = ["one two three", "Do you know him?"]
    expected = embedder().embed(texts)
    body = {"model": "vectors", "input": texts}
    found = post("/v1/embeddings", body)
    assert np.array([each["embedding"] for each in found["data"]]) == pytest.approx(expected, abs=1e-5)
    coded = post("/v1/embeddings", body, encoding_format="base64", dimensions=expected.shape[1])
    for each, row in zip(coded["data"], expected, strict=True):
        assert np.frombuffer(base64.b64decode(each["embedding"]), dtype="<f4") == pytest.approx(row, abs=1e-5)
    tokens = sum(len(usual().task("vectors").tokenizer.encode(text).ids) for text in texts)
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


def test_what_cannot_be_embedded_is_refused() -> None:
    body = {"model": "vectors", "input": "one"}
    assert refused("/v1/embeddings", {**body, "dimensions": 3})["param"] == "dimensions"
    for ids in ([1, 2], [[1, 2], [3]]):
        assert "check_embedding_ctx_length=False" in refused("/v1/embeddings", {**body, "input": ids})["message"]
    refused("/v1/embeddings", {**body, "input": []})
    refused("/v1/embeddings", {**body, "input": ""})
    assert usual().post("/v1/embeddings", {**body, "input": "one " * 200}).status in (400, 413)
    assert "vectors can" in refused("/v1/embeddings", {**body, "model": "chat"})["message"]


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 10**7}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"stop": ["a"] * 50}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "image_url"),
        ({"frequency_penalty": 5}, "frequency_penalty"),
        ({"store": True}, "store"),
        ({"nonsense": 1}, "nonsense"),
        ({"functions": []}, "functions"),
        ({"tool_choice": "required"}, "tools"),
        ({"messages": [{"role": "user", "content": "one " * 1000}]}, str(POSITIONS)),
    ],
)
def test_wrong_requests_are_named(changed: dict[str, Any], said: str) -> None:
    error = refused("/v1/chat/completions", {**CHAT, **changed})
    assert said in f"{error['param']} {error['message']}"


def test_models_that_cannot_are_named() -> None:
    assert "/v1/completions" in refused("/v1/chat/completions", {**CHAT, "model": "plain"})["message"]
    error = refused("/v1/chat/completions", {**CHAT, "model": "none"}, 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "cannot chat" in refused("/v1/chat/completions", {**CHAT, "model": "vectors"})["message"]
    assert refused("/v1/completions", {**PLAIN, "suffix": "x"})["param"] == "suffix"
    assert refused("/v1/completions", {**PLAIN, "best_of": 4})["param"] == "best_of"
    assert refused("/v1/completions", {**PLAIN, "prompt": []})["param"] == "prompt"
    assert "id 9999" in refused("/v1/completions", {**PLAIN, "prompt": [9999]})["message"]


def test_a_prompt_that_the_model_has_no_room_for_is_told_as_clients_know_it() -> None:
    long = [5] * POSITIONS
    answer = usual().post("/v1/completions", {"model": "chat", "prompt": long, "max_tokens": 1})
    said = {"model": "chat", "messages": [{"role": "user", "content": "word " * POSITIONS}]}
    for refused in (answer, usual().post("/v1/chat/completions", said)):
        assert refused.status == 400
        assert refused.json()["error"]["code"] == "context_length_exceeded"
        assert f"{POSITIONS} positions" in refused.json()["error"]["message"]


def test_a_role_that_the_template_passes_over_is_refused() -> None:
    silent = "{% for m in messages if m.role in ('user', 'assistant') %}{{ m.content }}\n{% endfor %}"
    asking = Asking(registry=served(silent=completer(silent)))
    body = {"messages": [{"role": "system", "content": "Do"}, *MESSAGES], "max_tokens": 2}
    found = asking.post("/v1/chat/completions", body)
    assert found.status == 400
    assert "'system'" in found.json()["error"]["message"]
    assert asking.post("/v1/chat/completions", {**body, "messages": MESSAGES}).status == 200
    asking.server.close()
