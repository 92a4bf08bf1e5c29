"""Counts and times at /metrics, as Prometheus reads them, under the names that dashboards for such servers know.

Labels are few and bounded: an endpoint's path as it is in the list of endpoints, the name of a model that is served, a
status. What engines know is asked when somebody looks; the rest is counted when a request ends.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from clearformer.serve.endpoint import Call, Endpoint, Reply
from clearformer.serve.errors import plain_shape

if TYPE_CHECKING:
    from clearformer.serve.app import Server

PREFIX = "clearformer:"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    def __init__(self, server: "Server"):
        disable_created_metrics()
        self.server, self.registry = server, CollectorRegistry()

        def count(name: str, said: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, said, labels, registry=self.registry)

        def times(name: str, said: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(PREFIX + name, said, labels, buckets=buckets, registry=self.registry)

        self.requests = count("http_requests", "Requests that were answered.", "endpoint", "model", "status")
        self.prompt = count("prompt_tokens", "Tokens that were read.", "model_name")
        self.generated = count("generation_tokens", "Tokens that were written.", "model_name")
        self.first = times("time_to_first_token_seconds", "From arrival to the first token.", SECONDS,
                           "model_name")  # fmt: skip
        self.between = times("inter_token_latency_seconds", "Between two tokens, the mean of a request.", TOKEN_SECONDS,
                             "model_name")  # fmt: skip
        self.whole = times("e2e_request_latency_seconds", "From arrival to the end of the answer.", SECONDS,
                           "endpoint", "model_name")  # fmt: skip
        self.registry.register(_Engines(server))

    def _model(self, call: Call) -> str:
        """A name that is served; others are not told apart, or a client could make as many as it likes."""
        name = str(call.told.get("model", ""))
        return name if name in self.server.registry.models else ""

    def ended(self, endpoint: Endpoint, call: Call, status: int, seconds: float) -> None:
        model = self._model(call)
        self.requests.labels(endpoint.path, model, str(status)).inc()
        self.whole.labels(endpoint.path, model).observe(seconds)
        for counter, name in ((self.prompt, "prompt_tokens"), (self.generated, "completion_tokens")):
            if count := call.told.get(name):
                counter.labels(model).inc(count)
        if (first := call.told.get("first_token_seconds")) is not None:
            self.first.labels(model).observe(first)
            if (count := call.told.get("completion_tokens", 0)) > 1:
                self.between.labels(model).observe(max(0.0, seconds - first) / (count - 1))

    def refused(self, path: str, model: str) -> None:
        """One that was not even parsed."""
        self.requests.labels(path, model if model in self.server.registry.models else "", "429").inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Engines(Collector):
    """What is known at the moment of asking."""

    def __init__(self, server: "Server"):
        self.server = server

    def collect(self) -> Iterator[Metric]:
        def gauge(name: str, said: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(PREFIX + name, said, labels=["model_name"])

        running = gauge("num_requests_running", "Requests that are being computed.")
        waiting = gauge("num_requests_waiting", "Requests that wait for an engine or an encoder.")
        usage = gauge("kv_cache_usage_perc", "The share of the KV cache in use, from 0 to 1.")
        queries = CounterMetricFamily(PREFIX + "prefix_cache_queries", "Tokens looked for.", labels=["model_name"])
        hits = CounterMetricFamily(PREFIX + "prefix_cache_hits", "Tokens found.", labels=["model_name"])
        for name, model in self.server.registry.models.items():
            batcher = self.server.work.batchers.get(name)
            engines = model.task.__dict__.get("_engine", [])
            batches = [lane.batch for engine in engines for lane in engine.lanes]
            active = sum(len(lane.active) for engine in engines for lane in engine.lanes)
            queued = sum(len(engine.waiting) for engine in engines)
            jobs = 0 if batcher is None else len(batcher.jobs)
            at_work = 0 if batcher is None else min(jobs, batcher.running)
            running.add_metric([name], active + at_work)
            waiting.add_metric([name], queued + jobs - at_work)
            pools = [batch.pool for batch in batches if hasattr(batch, "pool")]
            size = sum(pool.size for pool in pools)
            usage.add_metric([name], 1 - sum(pool.left for pool in pools) / size if size else 0.0)
            caches = [found for batch in batches if (found := getattr(batch, "prefixes", None)) is not None]
            queries.add_metric([name], sum(cache.queries for cache in caches))
            hits.add_metric([name], sum(cache.hits for cache in caches))
        yield from (running, waiting, usage, queries, hits)
        admission = self.server.admission
        for name, said, value in (
            ("queue_tokens", "Tokens of all requests that were let in and are not done.", admission.tokens),
            ("queue_tokens_limit", "Beyond it requests are refused with 429.", admission.most),
            ("http_requests_running", "Requests that have come and are not answered.", len(self.server.calls)),
            ("http_connections", "Connections that are open.", self.server.connections()),
        ):
            yield GaugeMetricFamily(PREFIX + name, said, value=value)


async def metrics(call: Call, body: Any) -> Reply:
    return Reply(call.server.metrics.text(), CONTENT_TYPE_LATEST)


def endpoints() -> list[Endpoint]:
    return [Endpoint("GET", "/metrics", metrics, shape=plain_shape, media=("text/plain",),
                     summary="Counts and times, for Prometheus.")]  # fmt: skip
