"""Other libraries with the same weights, one small class each: what it can do, how to get it, and what it runs.

`prepare` turns the model into what the library loads and is not timed. Text is read and written by the model's own
tokenizer within the time, as a user of the library would. `ways` are the configurations that its users choose from.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from clearformer.bench.inputs import Given
from clearformer.bench.ours import Reader, completing, embedding, translating
from clearformer.bench.workloads import ADDED, MANY_BEAM, MANY_GREEDY, STEP, TOGETHER, Job, Runs, Said
from clearformer.errors import DataError, nearest

AT_ONCE = 32  # texts together, sorted by length where the library does not batch itself
BATCHES = (16, 32, 64)  # CTranslate2's max_batch_size
MANY = (MANY_GREEDY, MANY_BEAM)


class Peer:
    name: ClassVar[str]
    modules: ClassVar[tuple[str, ...]]  # to be imported
    packages: ClassVar[tuple[str, ...]]  # to be installed; the first one's version is shown
    works: ClassVar[tuple[str, ...]]
    precisions: ClassVar[tuple[str, ...]] = ("float32",)

    def __init__(self, job: Job):
        raise NotImplementedError

    @classmethod
    def ways(cls, job: Job) -> list[str]:
        """The configurations to try, by the names that the table shows."""
        return [""]

    def load(self, job: Job, way: str) -> Runs:
        """The runs of the columns that this configuration has."""
        return getattr(self, f"_{job.work}")(job)

    @classmethod
    def prepare(cls, given: Given, precision: str, to: Path) -> Path:
        """The folder or file that `load` is given."""
        if given.public is None:
            raise DataError(given.why)
        return given.public

    @classmethod
    def missing(cls) -> str | None:
        """None, or how to get it."""
        if all(find_spec(module) for module in cls.modules):
            return None
        return f"not installed; pip install {' '.join(cls.packages)}"


class Transformers(Peer):
    name, modules, packages = "transformers", ("transformers",), ("transformers",)
    works = ("translate", "complete", "embed", "train")

    def __init__(self, job: Job):
        import torch
        import transformers

        self.torch, self.library = torch, transformers
        torch.set_num_threads(job.threads)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        kinds = {"complete": "AutoModelForCausalLM", "embed": "AutoModel"}
        self.kind: Any = getattr(transformers, kinds.get(job.work, "AutoModelForSeq2SeqLM"))

    def _model(self, job: Job) -> Any:
        return self.kind.from_pretrained(job.folder, dtype=self.torch.float32).eval()

    def _written(self, model: Any, rows: list[list[int]], pad: int, left: bool, **options: Any) -> list[list[int]]:
        """The new tokens of some rows, which are sorted by length and batched."""
        order = sorted(range(len(rows)), key=lambda row: -len(rows[row]))
        found: list[list[int]] = [[] for _ in rows]
        for first in range(0, len(rows), AT_ONCE):
            some = order[first : first + AT_ONCE]
            wide = len(rows[some[0]])
            gaps = [[pad] * (wide - len(rows[row])) for row in some]
            filled = [gap + rows[row] if left else rows[row] + gap for gap, row in zip(gaps, some, strict=True)]
            there = [[0] * len(gap) + [1] * (wide - len(gap)) for gap in gaps]
            mask = self.torch.tensor(there if left else [each[::-1] for each in there])
            with self.torch.inference_mode():
                made = model.generate(self.torch.tensor(filled), attention_mask=mask, pad_token_id=pad, **options)
            for row, tokens in zip(some, made[:, wide if left else 1 :].tolist(), strict=True):
                found[row] = tokens
        return found

    def _translate(self, job: Job) -> Runs:
        model, reader = self._model(job), Reader(job.reader, job.work, job.ends)
        pad = model.generation_config.pad_token_id or 0

        def run(texts: Sequence[str], beams: int, limit: int | None) -> Said:
            options = {"num_beams": beams, "do_sample": False, "max_new_tokens": limit or job.most}
            rows = self._written(model, reader.encode(texts), pad, False, **options)
            return reader.said([_until(row, job.ends) for row in rows])

        return translating(job, run)

    def _complete(self, job: Job) -> Runs:
        model, reader = self._model(job), Reader(job.reader, job.work, job.ends)
        model.generation_config.eos_token_id = list(job.ends) or None

        def run(prompts: Sequence[str], new: int, top_p: float | None) -> Said:
            drawing = {"do_sample": True, "top_p": top_p, "top_k": 0, "temperature": 1.0}
            options = {"max_new_tokens": new, **({"do_sample": False} if top_p is None else drawing)}
            rows = self._written(model, reader.encode(prompts), 0, True, **options)
            return reader.said([_until(row, job.ends) for row in rows])

        return completing(job, run)

    def _embed(self, job: Job) -> Runs:
        model = self._model(job)
        read = self.library.AutoTokenizer.from_pretrained(job.folder)

        def embed(some: list[str]) -> list[list[float]]:
            found: list[list[float]] = []
            for first in range(0, len(some), AT_ONCE):
                batch = read(some[first : first + AT_ONCE], padding=True, truncation=True, return_tensors="pt")
                with self.torch.inference_mode():
                    states = model(**batch).last_hidden_state
                there = batch["attention_mask"][:, :, None].float()
                pooled = (states * there).sum(1) / there.sum(1)
                found += self.torch.nn.functional.normalize(pooled).tolist()
            return found

        return embedding(job, embed)

    def _train(self, job: Job) -> Runs:
        model = self._model(job).train()
        optimizer = self.torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
        source, target, label = (self.torch.tensor(job.rows(*STEP)) for _ in range(3))
        loss = self.torch.nn.CrossEntropyLoss(label_smoothing=0.1)

        def step() -> None:
            logits = model(input_ids=source, decoder_input_ids=target).logits
            loss(logits.flatten(0, 1), label.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return {"step": step}


def _until(row: list[int], ends: Sequence[int]) -> list[int]:
    """What stands before the end and the padding behind it, and the end itself."""
    return row[: next((n + 1 for n, token in enumerate(row) if token in ends), len(row))]


class SentenceTransformers(Peer):
    name, modules, packages = "sentence-transformers", ("sentence_transformers",), ("sentence-transformers",)
    works = ("embed",)

    def __init__(self, job: Job):
        import torch

        torch.set_num_threads(job.threads)
        self.kind: Any = import_module("sentence_transformers").SentenceTransformer

    def _embed(self, job: Job) -> Runs:
        model = self.kind(job.folder, device="cpu")

        def embed(some: list[str]) -> list[list[float]]:
            options = {"batch_size": AT_ONCE, "show_progress_bar": False, "normalize_embeddings": True}
            return model.encode(some, **options).tolist()

        return embedding(job, embed)


class CTranslate2(Peer):
    name, modules, packages = "ctranslate2", ("ctranslate2",), ("ctranslate2",)
    works, precisions = ("translate",), ("float32", "int8")

    def __init__(self, job: Job):
        self.library: Any = import_module("ctranslate2")
        self.models: dict[tuple[int, int], Any] = {}
        self.reader = Reader(job.reader, job.work, job.ends)

    @classmethod
    def prepare(cls, given: Given, precision: str, to: Path) -> Path:
        from clearformer.bench.ctranslate2 import write
        from clearformer.tasks.load import open_model

        model = open_model(given.folder).model.eval()
        if len(given.ends) != 1:
            raise DataError(f"it needs one token that ends a text, this model has {len(given.ends)}")
        quantization = None if precision == "float32" else precision
        tokens: dict[str, Any] = {"start": given.start, "end": given.ends[0], "never": given.never}
        return write(model, to, **tokens, quantization=quantization)

    @classmethod
    def _layouts(cls, job: Job) -> dict[str, tuple[int, int, int]]:
        """Workers, threads of each, and the texts of a batch; one text has but one worker."""
        pairs = list(dict.fromkeys([(job.threads, 1), (1, job.threads), (1, 1)]))
        one = {f"{workers}×{threads}": (workers, threads, 0) for workers, threads in pairs if workers == 1}
        return one | {f"{w}×{t}, batch {size}": (w, t, size) for w, t in pairs for size in BATCHES}

    @classmethod
    def ways(cls, job: Job) -> list[str]:
        return list(cls._layouts(job))

    def load(self, job: Job, way: str) -> Runs:
        workers, threads, size = self._layouts(job)[way]
        if (workers, threads) not in self.models:
            options = {"inter_threads": workers, "intra_threads": threads, "compute_type": job.precision}
            self.models[workers, threads] = self.library.Translator(job.folder, device="cpu", **options)
        model, reader = self.models[workers, threads], self.reader
        names = [f"<{token}>" for token in range(job.vocabulary)]
        numbers = {name: number for number, name in enumerate(names)}

        def run(texts: Sequence[str], beams: int, limit: int | None) -> Said:
            sources = [[names[token] for token in ids] for ids in reader.encode(texts)]
            options = {"beam_size": beams, "max_batch_size": size, "length_penalty": 1.0}
            found = model.translate_batch(sources, max_decoding_length=limit or job.most, **options)
            return reader.said([[numbers[token] for token in each.hypotheses[0]] for each in found])

        runs = translating(job, run)
        return {name: run for name, run in runs.items() if (name in MANY) == bool(size)}


class LlamaCpp(Peer):
    name, modules, packages = "llama.cpp", ("llama_cpp", "gguf"), ("llama-cpp-python", "gguf")
    works, precisions = ("complete",), ("float32", "Q8_0")

    def __init__(self, job: Job):
        from clearformer.bench import llama_cpp

        self.runner = llama_cpp
        self.reader = Reader(job.reader, job.work, job.ends)
        self.model: Any = None

    @classmethod
    def prepare(cls, given: Given, precision: str, to: Path) -> Path:
        from clearformer.bench.gguf import write

        folder = super().prepare(given, precision, to)
        return write(folder, to.with_name(f"{to.name}.gguf"), precision)

    @classmethod
    def _threads(cls, job: Job) -> dict[str, int]:
        return {f"{count} thread{'s' if count > 1 else ''}": count for count in dict.fromkeys((job.threads, 1))}

    @classmethod
    def ways(cls, job: Job) -> list[str]:
        return list(cls._threads(job))

    def load(self, job: Job, way: str) -> Runs:
        reader, threads = self.reader, self._threads(job)[way]
        if self.model is None:
            prompts = [len(ids) for ids in reader.encode([*job.texts[:TOGETHER], job.long])]
            tokens = sum(prompts) + TOGETHER * ADDED + 32
            self.model = self.runner.Model(job.folder, job.threads, TOGETHER, tokens)
        model = self.model

        def run(prompts: Sequence[str], new: int, top_p: float | None) -> Said:
            model.use(threads)
            return reader.said(model.complete(reader.encode(prompts), new, ends=job.ends, top_p=top_p))

        return completing(job, run)


PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Transformers, CTranslate2, LlamaCpp, SentenceTransformers)}


def peers_of(work: str, asked: list[str] | None) -> list[type[Peer]]:
    """Those named, in that order, or all that can do the work and are installed."""
    able = {name: peer for name, peer in PEERS.items() if work in peer.works}
    if asked is None:
        return [peer for peer in able.values() if peer.missing() is None]
    for name in asked:
        if name not in PEERS:
            raise DataError(f"unknown peer {name!r}; known: {', '.join(PEERS)}{_near(name)}")
        if name not in able:
            raise DataError(f"{name} has no part in {work} here; peers that have: {', '.join(able)}")
    return [able[name] for name in dict.fromkeys(asked)]


def _near(name: str) -> str:
    near = nearest(name, PEERS)
    return near if "did you mean" in near else ""
