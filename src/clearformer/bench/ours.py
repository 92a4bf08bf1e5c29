"""Clearformer as a contender: the verbs as people call them, text in and text out.

A contender imports what it needs when it is made, and answers `load` with the runs to time, by column.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import sleep
from typing import Any

from clearformer.bench.workloads import (
    ADDED,
    ALL_TEXTS,
    ALONE,
    ARRIVALS,
    ARRIVING,
    AT_ONCE,
    BEAM,
    EIGHT,
    FIRST,
    MANY_BEAM,
    MANY_GREEDY,
    ONE,
    ONE_BEAM,
    ONE_BY_ONE,
    ONE_GREEDY,
    ONE_TEXT,
    PREFILL,
    SAMPLED,
    STEP,
    TOGETHER,
    TOP_P,
    Job,
    Runs,
    Said,
    waits,
)

GAP = 0.005  # seconds between requests that arrive, on average

# --- the only places that know the names of the verbs' options ---------------------------------------------


def translate(task: Any, texts: Sequence[str], beams: int, limit: int | None) -> Said:
    found = task.translate(list(texts), num_beams=beams, max_new_tokens=limit)
    return Said([one.text for one in found], sum(len(one.tokens) for one in found))


def complete(task: Any, prompts: Sequence[str], new: int, top_p: float | None = None) -> Said:
    task.engine.clear_prefix_cache()  # a prompt is read, not remembered
    options = {"temperature": 0} if top_p is None else {"temperature": 1.0, "top_p": top_p, "seed": 0}
    found = task.complete(list(prompts), max_new_tokens=new, **options)
    return Said([one.text for one in found], sum(len(one.tokens) + (one.finish == "end") for one in found))


def arriving(task: Any, prompts: Sequence[str], new: int) -> Said:
    """The same requests, but each submitted when it arrives, at random, while others are being written."""
    task.engine.clear_prefix_cache()
    handles = []
    for prompt, wait in zip(prompts, waits(len(prompts), GAP), strict=True):
        sleep(wait)
        handles.append(task.submit(prompt, max_new_tokens=new, temperature=0))
    found = [handle.result()[0] for handle in handles]
    return Said([task.tokenizer.decode(one.tokens) for one in found], sum(len(one.tokens) for one in found))


class Reader:
    """Text ↔ ids for the peers, with the model's own tokenizer and without our model."""

    def __init__(self, folder: str | Path, work: str, ends: Sequence[int] = ()):
        from clearformer.checkpoints.metadata import FILE, read_metadata

        self.completes, self.ends = work == "complete", frozenset(ends)
        folder = Path(folder)
        self.ours: Any = None
        self.words: Any = None
        if (folder / FILE).is_file() and read_metadata(folder).task == "translate":
            from clearformer.text.learn import LearnedTokenizer
            from clearformer.text.translation import TranslationCodec

            self.ours = TranslationCodec.of(LearnedTokenizer.load(folder / "tokenizer.json"))
        else:
            from clearformer.text.tokenizer import PublicTokenizer

            self.words = PublicTokenizer.load(folder)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if self.ours is not None:
            return self.ours.encode_all(texts, next(iter(self.ours.languages), None))
        found = self.words.encode_all(texts)
        if self.completes:  # a template's end would end what is to go on
            return [each.ids[:-1] if each.special[-1:] == [True] and len(each.ids) > 1 else each.ids for each in found]
        return [each.ids for each in found]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        if self.ours is not None:
            return self.ours.tokenizer.engine.decode_batch([list(row) for row in rows], skip_special_tokens=True)
        side = self.words if self.completes else self.words.target()
        return [side.decode(row) for row in rows]

    def said(self, rows: Sequence[Sequence[int]]) -> Said:
        """The texts of rows, of which an end is no part."""
        texts = self.decode([row[:-1] if row and row[-1] in self.ends else row for row in rows])
        return Said(texts, sum(map(len, rows)))


# --- the runs of a work, from one function that does it ----------------------------------------------------


def translating(job: Job, run: Callable[[Sequence[str], int, int | None], Said]) -> Runs:
    """`run(texts, beams, limit)`."""
    texts, limit = list(job.texts), job.limit

    def singly(beams: int) -> Said:
        found = [run([text], beams, limit) for text in texts[:ONE]]
        return Said([text for one in found for text in one.texts], sum(one.tokens for one in found))

    return {
        FIRST: lambda: run(texts[:1], 1, 1),
        MANY_GREEDY: lambda: run(texts, 1, limit),
        MANY_BEAM: lambda: run(texts, BEAM, limit),
        ONE_GREEDY: lambda: singly(1),
        ONE_BEAM: lambda: singly(BEAM),
    }


def completing(job: Job, run: Callable[[Sequence[str], int, float | None], Said]) -> Runs:
    """`run(prompts, new, top_p)`; no top_p is greedy."""
    prompts = list(job.texts)
    return {
        FIRST: lambda: run(prompts[:1], 1, None),
        ONE_TEXT: lambda: run(prompts[:1], ADDED, None),
        SAMPLED: lambda: run(prompts[:1], ADDED, TOP_P),
        PREFILL: lambda: run([job.long], 1, None),
        EIGHT: lambda: run(prompts[:TOGETHER], ADDED, None),
    }


def embedding(job: Job, run: Callable[[list[str]], list[list[float]]]) -> Runs:
    texts = list(job.texts)
    return {
        FIRST: lambda: run(texts[:1]),
        ALL_TEXTS: lambda: run(texts),
        ONE_BY_ONE: lambda: [run([text]) for text in texts[:ALONE]],
    }


class Clearformer:
    def __init__(self, job: Job):
        import torch

        from clearformer.tasks import load
        from clearformer.training import loss

        self.torch, self.tasks, self.loss = torch, load, loss
        torch.set_num_threads(job.threads)

    @classmethod
    def ways(cls, job: Job) -> list[str]:
        return [""]

    def load(self, job: Job, way: str) -> Runs:
        return getattr(self, f"_{job.work}")(job)

    def _task(self, job: Job) -> Any:
        return self.tasks.load(job.folder, precision=job.precision)

    def _translate(self, job: Job) -> Runs:
        task = self._task(job)
        return translating(job, lambda texts, beams, limit: translate(task, texts, beams, limit))

    def _complete(self, job: Job) -> Runs:
        task, all_prompts = self._task(job), list(job.texts)[:ARRIVALS]
        runs = completing(job, lambda prompts, new, top_p: complete(task, prompts, new, top_p))
        runs[AT_ONCE] = lambda: complete(task, all_prompts, ADDED)
        runs[ARRIVING] = lambda: arriving(task, all_prompts, ADDED)
        return runs

    def _embed(self, job: Job) -> Runs:
        embedder = self._task(job)
        return embedding(job, lambda texts: embedder.embed(texts, on_long="truncate").tolist())

    def _train(self, job: Job) -> Runs:
        from clearformer.kernels.linear import use_onednn
        from clearformer.kernels.malloc import keep_freed_memory
        from clearformer.training.machine import choose_gemm

        keep_freed_memory()
        use_onednn(choose_gemm("auto", self.torch.device("cpu"))[0] == "onednn")  # as a run of the trainer chooses
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
