"""What /metrics says is what happened, under bounded labels."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from clearformer.serve.endpoint import Call, Endpoint
from clearformer.serve.registry import ServedModel
from tests.serve.running import ENDPOINTS, Running, Said, running, until
from tests.tasks.writers import completer

NAMES = (
    "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prefix_cache_queries_total",
    "prefix_cache_hits_total", "prompt_tokens_total", "generation_tokens_total", "time_to_first_token_seconds_count",
    "inter_token_latency_seconds_count", "e2e_request_latency_seconds_count", "http_requests_total", "queue_tokens",
)  # fmt: skip


async def told(call: Call, body: Said) -> dict[str, str]:
    call.told |= {"model": body.text, "prompt_tokens": 7, "completion_tokens": 5, "first_token_seconds": 0.001}
    return {}


async def complete(call: Call, body: Said) -> dict[str, str]:
    call.told["model"] = "tiny"
    task = call.server.registry.models["tiny"].task
    return {"text": (await call.run(20, lambda: task.complete(body.text, max_new_tokens=5)))[0].text}


def values(up: Running) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    until(lambda: not up.server.calls)  # each is counted a moment after its answer
    answer = up.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(answer.body.decode())
        for one in family.samples
    }


def test_counts_and_times() -> None:
    own = [*ENDPOINTS, Endpoint("POST", "/told", told, Said), Endpoint("POST", "/complete", complete, Said)]
    with running(own, [ServedModel("tiny", completer(), Path(), 0)]) as up:
        for _ in range(3):
            assert up.ask("POST", "/told", {"text": "tiny"}).status == 200
        for n in range(30):  # names of models that there are not, and of routes
            up.ask("POST", "/told", {"text": f"unknown-{n}"})
            up.ask("GET", f"/nowhere/{n}")
        for _ in range(2):
            assert up.ask("POST", "/complete", {"text": "one two three four"}).status == 200
        found = values(up)
        names = {name for name, _ in found}
        assert {f"clearformer:{name}" for name in NAMES} <= names
        tiny = (("model_name", "tiny"),)
        assert found["clearformer:prompt_tokens_total", tiny] == 21
        assert found["clearformer:generation_tokens_total", tiny] == 15
        assert found["clearformer:time_to_first_token_seconds_count", tiny] == 3
        assert found["clearformer:inter_token_latency_seconds_count", tiny] == 3
        requests = {
            labels: value for (name, labels), value in found.items() if name == "clearformer:http_requests_total"
        }
        assert requests[("endpoint", "/told"), ("model", "tiny"), ("status", "200")] == 3
        assert requests[("endpoint", "/told"), ("model", ""), ("status", "200")] == 30
        assert requests[("endpoint", "other"), ("model", ""), ("status", "404")] == 30
        assert len(requests) == 4
        assert found["clearformer:num_requests_running", tiny] == 0
        assert found["clearformer:queue_tokens", ()] == 0
        assert 0 <= found["clearformer:kv_cache_usage_perc", tiny] < 1
        assert found["clearformer:http_connections", ()] >= 1
