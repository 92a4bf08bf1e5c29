"""How requests that write are worked off: together and alike, bounded, given up with their clients, and told."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from clearformer.errors import CancelledError
from clearformer.generate.requests import Handle
from clearformer.serve.bell import Bell
from clearformer.serve.responses import ResponseBody
from tests.generate.engines import check_whole
from tests.serve.asking import Answer, Asking
from tests.serve.models import completer, served, usual
from tests.serve.running import PATIENCE, until
from tests.serve.test_openai import CHAT, PLAIN

ENDLESS = {"suppress_tokens": [0, 1, 2, 3]}  # no end: a text goes on to its limit


def texts(answer: Answer) -> list[str]:
    return [choice.get("text") or choice["message"]["content"] for choice in answer.json()["choices"]]


def test_the_same_request_gives_the_same_alone_and_in_company() -> None:
    bodies: list[tuple[str, dict[str, Any]]] = []
    for n in range(6):
        bodies.append(("/v1/completions", {**PLAIN, "prompt": f"one {'two ' * n}", "max_tokens": 10 + 3 * n}))
        bodies.append(("/v1/completions", {**PLAIN, "prompt": "Do you", "temperature": 1.0, "seed": n, "n": 1 + n % 3}))
        bodies.append(("/v1/chat/completions", {**CHAT, "max_tokens": 5 + n}))
    alone = [usual().post(path, body) for path, body in bodies]

    async def together() -> list[Answer]:
        head = {"content-type": "application/json"}
        asked = (usual().ask("POST", path, json.dumps(body).encode(), {}, head) for path, body in bodies)
        return list(await asyncio.gather(*asked))

    assert [texts(answer) for answer in asyncio.run(together())] == [texts(answer) for answer in alone]
    for engine in (usual().task("chat").engine, usual().task("plain").engine):
        settled(engine)


def settled(engine: Any) -> None:
    """Nothing is left of any request, soon."""
    until(lambda: not any(lane.active for lane in engine.lanes))
    check_whole(engine)


class Leaving:
    """A client that goes away after so many parts of an answer, or once something has happened."""

    def __init__(self, asking: Asking, body: dict[str, Any], parts: int, until: Callable[[], bool]):
        self.asking, self.left, self.parts, self.until = asking, False, parts, until
        self.waiting = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
        self.sent: list[Any] = []

    async def receive(self) -> Any:
        if self.waiting:
            return self.waiting.pop()
        while not self.left and not self.until():
            await asyncio.sleep(0.005)
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if len(self.sent) >= self.parts:
            self.left = True

    async def ask(self, path: str) -> None:
        head = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"content-length", b"9")]
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": head}
        await self.asking.application(scope, self.receive, self.send)


@pytest.mark.parametrize("stream", [True, False])
def test_work_for_a_client_that_has_gone_ends(stream: bool) -> None:
    asking = Asking(registry=served(long=completer(**ENDLESS)))
    task, written = asking.task("long"), []
    engine = task.engine
    submit = engine.submit

    def watched(*given: Any) -> Handle:
        written.append(submit(*given))
        return written[-1]

    def unhurried(step: Callable[[], Any]) -> Any:
        """A step that takes a while for as long as the client is there, so that it always leaves before the end."""
        end = time.monotonic() + 0.2
        while not any(each.cancelled for each in written) and time.monotonic() < end:
            time.sleep(0.005)
        return step()

    for lane in engine.lanes:
        lane.batch.step = partial(unhurried, lane.batch.step)
    engine.submit = watched
    body = {"prompt": "one two", "max_tokens": 600, "stream": stream}
    client = Leaving(asking, body, 4, lambda: not stream and any(each.first is not None for each in written))
    asyncio.run(client.ask("/v1/completions"))
    (handle,) = written
    assert handle.cancelled
    with pytest.raises(CancelledError):
        handle.result(timeout=60)
    settled(engine)
    assert len(handle.search.texts[0]) < 600
    assert (asking.server.admission.tokens, asking.server.admission.requests) == (0, 0)
    assert not asking.server.calls
    asking.server.close()


def test_a_full_queue_is_told_at_once() -> None:
    asking = Asking(registry=served(long=completer(**ENDLESS)), queue_tokens=700)
    body = json.dumps({"prompt": "one two", "max_tokens": 400}).encode()
    others_know = threading.Event()

    def waits(step: Callable[[], Any]) -> Any:
        """Who was let in is not done before the others know that they are not."""
        assert others_know.wait(PATIENCE)
        return step()

    for lane in asking.task("long").engine.lanes:
        lane.batch.step = partial(waits, lane.batch.step)

    async def all_three() -> list[Answer]:
        head, found = {"content-type": "application/json"}, []
        for each in asyncio.as_completed([asking.ask("POST", "/v1/completions", body, {}, head) for _ in range(3)]):
            found.append(await each)
            if len(found) == 2:
                others_know.set()
        return found

    found = asyncio.run(all_three())
    assert [answer.status for answer in found] == [429, 429, 200]
    for answer in found[:2]:
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["code"] == "rate_limit_exceeded"
    assert asking.server.admission.tokens == 0
    asking.server.close()


def test_a_stream_that_cannot_begin_has_a_status() -> None:
    found = usual().post("/v1/chat/completions", {**CHAT, "stream": True, "logit_bias": {"99999": 1}})
    assert found.status == 400
    assert found.json()["error"]["param"] == "logit_bias"


def test_an_error_in_the_middle_of_a_stream_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from clearformer.serve import writing

    more, calls = writing.Text.more, []

    def breaks(self: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("broken on purpose")
        return more(self)

    monkeypatch.setattr(writing.Text, "more", breaks)
    asking = Asking(registry=served(long=completer(**ENDLESS)))
    found = asking.post("/v1/completions", {"prompt": "one two", "max_tokens": 600, "stream": True})
    last = found.content.decode().strip().split("\n\n")[-1]
    error = json.loads(last.removeprefix("data: "))["error"]
    assert error["type"] == "server_error"
    assert "broken" not in error["message"]
    settled(asking.task("long").engine)
    asking.server.close()


def test_what_a_request_came_to_is_told_and_kept() -> None:
    asking = Asking(registry=served(only=completer()))
    told: list[dict[str, Any]] = []
    ended = asking.server.metrics.ended
    asking.server.metrics.ended = lambda endpoint, call, *rest: (
        told.append(dict(call.told)),
        ended(endpoint, call, *rest),
    )  # type: ignore[method-assign]
    found = asking.post("/v1/completions", {"prompt": "one two", "max_tokens": 5}).json()
    assert told[0]["model"] == "only"
    used = found["usage"]
    assert (told[0]["prompt_tokens"], told[0]["completion_tokens"]) == (
        used["prompt_tokens"],
        used["completion_tokens"],
    )
    assert 0 <= told[0]["queue_seconds"] <= told[0]["first_token_seconds"]
    assert all(isinstance(value, int | float) for name, value in told[0].items() if name != "model")
    run = asking.server.runs.find(found["id"])
    (part,) = run.parts()
    task = asking.task("only")
    assert list(part.source) == task.prompt_ids("one two", 1)
    assert task.tokenizer.decode([5, *part.written])[len(task.tokenizer.decode([5])) :] == found["choices"][0]["text"]
    asking.server.close()


def test_a_bell_wakes_once_for_many() -> None:
    async def heard() -> int:
        wakes = []
        loop = asyncio.get_running_loop()
        bell = Bell(loop)
        call, heard = loop.call_soon_threadsafe, bell._heard
        loop.call_soon_threadsafe = lambda *given: (wakes.append(1), call(*given))[1]  # type: ignore[assignment, method-assign]
        some = [asyncio.Event() for _ in range(50)]
        ringing = threading.Thread(target=lambda: [bell.ring(event) for event in some])
        ringing.start()
        ringing.join()  # meanwhile the loop hears nothing
        await asyncio.gather(*(asyncio.wait_for(event.wait(), PATIENCE) for event in some))
        assert heard is not None
        bell.ring(some[0])
        assert bell.rung
        return len(wakes)

    assert asyncio.run(heard()) == 2
    loop = asyncio.new_event_loop()
    loop.close()
    Bell(loop).ring(asyncio.Event())  # nobody waits any more


# --- /v1/responses ------------------------------------------------------------------------------------------------


def test_a_response_is_a_chat() -> None:
    expected = usual().post("/v1/chat/completions", CHAT).json()
    body = {"model": "chat", "input": "one two", "max_output_tokens": 12}
    found = usual().post("/v1/responses", body).json()
    assert found["output"][0]["content"][0]["text"] == expected["choices"][0]["message"]["content"]
    assert found["usage"]["output_tokens"] == expected["usage"]["completion_tokens"]
    assert (found["status"], found["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    listed = [{"role": "user", "content": [{"type": "input_text", "text": "one two"}]}]
    again = usual().post("/v1/responses", {**body, "input": listed}).json()
    assert again["output"][0]["content"] == found["output"][0]["content"]
    told = usual().post("/v1/responses", {**body, "instructions": "Do"}).json()["usage"]["input_tokens"]
    assert told > found["usage"]["input_tokens"]


def test_a_response_as_events() -> None:
    body = {"model": "chat", "input": "one two", "max_output_tokens": 12}
    whole = usual().post("/v1/responses", body).json()
    found = usual().post("/v1/responses", {**body, "stream": True}).content.decode()
    parts = [part.split("\ndata: ") for part in found.strip().split("\n\n")]
    told = [json.loads(data) for _, data in parts]
    assert [name.removeprefix("event: ") for name, _ in parts] == [each["type"] for each in told]
    assert [each["sequence_number"] for each in told] == list(range(len(told)))
    deltas = "".join(each["delta"] for each in told if each["type"] == "response.output_text.delta")
    assert deltas == whole["output"][0]["content"][0]["text"]
    assert told[0]["type"] == "response.created"
    assert told[-1]["response"]["output"][0]["content"] == whole["output"][0]["content"]


def test_a_response_may_have_a_schema() -> None:
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
    form = {"type": "json_schema", "name": "it", "schema": schema}
    body = {"model": "chat", "input": "one two", "text": {"format": form}, "max_output_tokens": 60}
    found = usual().post("/v1/responses", body).json()
    assert set(json.loads(found["output"][0]["content"][0]["text"])) == {"sure"}
    assert found["status"] == "completed"
    assert "previous_response_id" not in ResponseBody.model_fields
    for wrong in ({"previous_response_id": "x"}, {"tools": []}, {"input": []}):
        assert usual().post("/v1/responses", {**body, **wrong}).status == 400


def test_a_stream_comes_in_parts() -> None:
    """Of a text that takes many steps, something is told before its end."""
    asking = Asking(registry=served(long=completer(**ENDLESS)))
    client = Leaving(asking, {"prompt": "one two", "max_tokens": 600, "stream": True}, 10_000, lambda: False)
    steps = [0]

    def waits(step: Callable[[], Any]) -> Any:
        """Half of it is written only when some of it has been told."""
        steps[0] += 1
        if steps[0] == 300:
            until(lambda: len(client.sent) > 3)
        return step()

    for lane in asking.task("long").engine.lanes:
        lane.batch.step = partial(waits, lane.batch.step)
    asyncio.run(client.ask("/v1/completions"))
    content = b"".join(message.get("body", b"") for message in client.sent).decode()
    assert content.endswith("data: [DONE]\n\n")
    assert "error" not in content
    assert steps[0] > 500
    asking.server.close()
