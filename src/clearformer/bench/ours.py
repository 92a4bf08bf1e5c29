"""Clearformer as a contender. A contender imports what it needs when it is made, and answers `load` with the runs to
time, by column."""

from collections.abc import Callable
from typing import Any

from clearformer.bench.workloads import (
    ADDED,
    ALONE,
    BATCH,
    BEAM,
    FIRST,
    LONG,
    PROMPT,
    SOURCE,
    STEP,
    TARGET,
    TOGETHER,
    Job,
)

Runs = dict[str, Callable[[], Any]]


class Clearformer:
    def __init__(self, job: Job):
        import torch

        from clearformer.generate import search
        from clearformer.tasks import load
        from clearformer.training import loss

        self.torch, self.search, self.tasks, self.loss = torch, search, load, loss
        torch.set_num_threads(job.threads)

    def load(self, job: Job) -> Runs:
        return getattr(self, f"_{job.work}")(job)

    def _model(self, job: Job) -> Any:
        return self.tasks.open_packed(job.folder, precision=job.precision).model

    def _translate(self, job: Job) -> Runs:
        model = self._model(job)
        source = self.torch.tensor(job.rows(BATCH, SOURCE))

        def greedy(rows: int, limit: int = TARGET) -> list[list[int]]:
            prompt = self.torch.full((rows, 1), job.start)
            return [row.tokens for row in self.search.greedy(model, prompt, limit=limit, source=source[:rows])]

        def beam(rows: int) -> list[list[int]]:
            prompt = self.torch.full((rows, 1), job.start)
            options: dict[str, Any] = {"limit": TARGET, "end": None, "size": BEAM, "early": False}
            return [best[0].tokens for best in self.search.beam(model, prompt, source=source[:rows], **options)]

        return {
            FIRST: lambda: greedy(1, 1),
            "batch 1 greedy": lambda: greedy(1),
            f"batch 1 beam {BEAM}": lambda: beam(1),
            f"batch {BATCH} greedy": lambda: greedy(BATCH),
            f"batch {BATCH} beam {BEAM}": lambda: beam(BATCH),
        }

    def _complete(self, job: Job) -> Runs:
        model = self._model(job)
        prompt = self.torch.tensor(job.rows(TOGETHER, PROMPT))
        long = self.torch.tensor(job.rows(1, LONG))

        def greedy(rows: Any, limit: int = ADDED) -> list[list[int]]:
            return [row.tokens for row in self.search.greedy(model, rows, limit=limit)]

        return {
            FIRST: lambda: greedy(prompt[:1], 1),
            "batch 1": lambda: greedy(prompt[:1]),
            "prompt": lambda: greedy(long, 1),
            f"batch {TOGETHER}": lambda: greedy(prompt),
        }

    def _embed(self, job: Job) -> Runs:
        embedder, texts = self.tasks.load(job.folder, precision=job.precision), list(job.texts)

        def embed(some: list[str]) -> list[list[float]]:
            return embedder.embed(some, on_long="truncate").tolist()

        return {
            FIRST: lambda: embed(texts[:1]),
            "all texts": lambda: embed(texts),
            "one by one": lambda: [embed([text]) for text in texts[:ALONE]],
        }

    def _train(self, job: Job) -> Runs:
        from clearformer.kernels.malloc import keep_freed_memory

        keep_freed_memory()
        model: Any = self.tasks.open_model(job.folder).model.train()
        for parameter in model.parameters():  # out of the file that they are mapped from
            parameter.data = parameter.data.clone()
            parameter.requires_grad_(True)
        optimizer = self.torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
        source, target, label = (self.torch.tensor(job.rows(*STEP)) for _ in range(3))

        def step() -> None:
            context = model.decoder.context(model.encode(source))
            states = model.decoder(target, model.decoder.places(target, None), context)
            loss, count = self.loss.next_token_loss(model.head, states, label, smoothing=0.1)
            (loss / count).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return {"step": step}
