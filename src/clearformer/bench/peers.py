"""Other libraries with the same weights, one small class each: what it can do, how to get it, and what it runs.

`prepare` turns a public folder into what the library loads and is not timed.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from clearformer.bench.ours import Runs
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
from clearformer.errors import DataError, nearest

AT_ONCE = 32  # texts embedded together, the libraries' own choice


class Peer:
    name: ClassVar[str]
    modules: ClassVar[tuple[str, ...]]  # to be imported
    packages: ClassVar[tuple[str, ...]]  # to be installed; the first one's version is shown
    works: ClassVar[tuple[str, ...]]
    precisions: ClassVar[tuple[str, ...]] = ("float32",)

    def __init__(self, job: Job):
        raise NotImplementedError

    def load(self, job: Job) -> Runs:
        return getattr(self, f"_{job.work}")(job)

    @classmethod
    def prepare(cls, folder: Path, precision: str, to: Path) -> Path:
        """The folder or file that `load` is given."""
        return folder

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

    def _written(self, model: Any, ids: Any, count: int, beams: int = 1) -> list[list[int]]:
        with self.torch.inference_mode():
            mask = self.torch.ones_like(ids)
            found = model.generate(ids, attention_mask=mask, max_new_tokens=count, num_beams=beams, do_sample=False)
        return found[:, -count:].tolist()

    def _endless(self, model: Any) -> None:
        """No token ends a text, as with every contender."""
        model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None

    def _translate(self, job: Job) -> Runs:
        model, source = self._model(job), self.torch.tensor(job.rows(BATCH, SOURCE))
        self._endless(model)
        return {
            FIRST: lambda: self._written(model, source[:1], 1),
            "batch 1 greedy": lambda: self._written(model, source[:1], TARGET),
            f"batch 1 beam {BEAM}": lambda: self._written(model, source[:1], TARGET, BEAM),
            f"batch {BATCH} greedy": lambda: self._written(model, source, TARGET),
            f"batch {BATCH} beam {BEAM}": lambda: self._written(model, source, TARGET, BEAM),
        }

    def _complete(self, job: Job) -> Runs:
        model = self._model(job)
        self._endless(model)
        prompt, long = self.torch.tensor(job.rows(TOGETHER, PROMPT)), self.torch.tensor(job.rows(1, LONG))
        return {
            FIRST: lambda: self._written(model, prompt[:1], 1),
            "batch 1": lambda: self._written(model, prompt[:1], ADDED),
            "prompt": lambda: self._written(model, long, 1),
            f"batch {TOGETHER}": lambda: self._written(model, prompt, ADDED),
        }

    def _embed(self, job: Job) -> Runs:
        model, texts = self._model(job), list(job.texts)
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

        return _embedding(embed, texts)

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

        return _embedding(embed, list(job.texts))


def _embedding(embed: Any, texts: list[str]) -> Runs:
    return {
        FIRST: lambda: embed(texts[:1]),
        "all texts": lambda: embed(texts),
        "one by one": lambda: [embed([text]) for text in texts[:ALONE]],
    }


class CTranslate2(Peer):
    name, modules, packages = "ctranslate2", ("ctranslate2", "transformers"), ("ctranslate2", "transformers")
    works, precisions = ("translate",), ("float32", "int8")

    def __init__(self, job: Job):
        self.library: Any = import_module("ctranslate2")

    @classmethod
    def prepare(cls, folder: Path, precision: str, to: Path) -> Path:
        from transformers import AutoModelForSeq2SeqLM, logging

        loaders = import_module("ctranslate2.converters.transformers")._MODEL_LOADERS
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        kind = type(model.config).__name__
        if kind not in loaders:
            raise DataError(f"it does not read {kind}")
        made = loaders[kind](model, _Numbers(model.config))
        made.validate()
        made.optimize(quantization=None if precision == "float32" else precision)
        to.mkdir(parents=True)
        made.save(str(to))
        return to

    def _translate(self, job: Job) -> Runs:
        options = {"intra_threads": job.threads, "inter_threads": 1, "compute_type": job.precision}
        model = self.library.Translator(job.folder, device="cpu", **options)
        numbers = {f"<{number}>": number for number in range(job.vocabulary)}
        source = [[f"<{token}>" for token in row] for row in job.rows(BATCH, SOURCE)]

        def written(rows: int, count: int = TARGET, beams: int = 1) -> list[list[int]]:
            lengths = {"max_decoding_length": count, "min_decoding_length": count}
            found = model.translate_batch(source[:rows], beam_size=beams, **lengths)
            return [[numbers.get(token, -1) for token in each.hypotheses[0]] for each in found]

        return {
            FIRST: lambda: written(1, 1),
            "batch 1 greedy": lambda: written(1),
            f"batch 1 beam {BEAM}": lambda: written(1, beams=BEAM),
            f"batch {BATCH} greedy": lambda: written(BATCH),
            f"batch {BATCH} beam {BEAM}": lambda: written(BATCH, beams=BEAM),
        }


class _Numbers:
    """A tokenizer as the converter asks for one, whose tokens are their numbers; Marian's last is taken for padding."""

    def __init__(self, config: Any):
        ends = config.eos_token_id
        self.count, self.pad_token = config.vocab_size, "<pad>"
        self.eos_token = self.bos_token = self.unk_token = f"<{(ends[0] if isinstance(ends, list) else ends) or 0}>"

    def get_vocab(self) -> Mapping[str, int]:
        names = [f"<{number}>" for number in range(self.count - 1)]
        return {name: number for number, name in enumerate([*names, self.pad_token])}


class LlamaCpp(Peer):
    name, modules, packages = "llama.cpp", ("llama_cpp", "gguf"), ("llama-cpp-python", "gguf")
    works, precisions = ("complete",), ("float32", "Q8_0")

    def __init__(self, job: Job):
        from clearformer.bench import llama_cpp

        self.runner = llama_cpp

    @classmethod
    def prepare(cls, folder: Path, precision: str, to: Path) -> Path:
        from clearformer.bench.gguf import write

        return write(folder, to.with_name(f"{to.name}.gguf"), precision)

    def _complete(self, job: Job) -> Runs:
        prompt, long = job.rows(TOGETHER, PROMPT), job.rows(1, LONG)
        model = self.runner.Model(job.folder, job.threads, TOGETHER, TOGETHER * (PROMPT + ADDED) + LONG)
        return {
            FIRST: lambda: model.greedy(prompt[:1], 1),
            "batch 1": lambda: model.greedy(prompt[:1], ADDED),
            "prompt": lambda: model.greedy(long, 1),
            f"batch {TOGETHER}": lambda: model.greedy(prompt, ADDED),
        }


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
