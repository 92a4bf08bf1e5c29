"""Clearformer: the Transformer, whole and see-through.

    import clearformer as cf

    cf.load("en-de").translate(["How are you?"])
    cf.train(source="train.en", target="train.de", out="models/mine")

    model = cf.build(cf.presets.original("base"))
    trace = cf.trace(model, source, target)
    trace["decoder.2.cross.h3.weights"]

    cf.static.Word2Vec.train("text.txt").neighbours("king")

Names are loaded when first used, so that importing the package does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Spec": "spec",
    "build": "assemble",
    "kernels_of": "assemble",
    "count_parameters": "assemble",
    "greedy": "generate.search",
    "beam": "generate.search",
    "sample": "generate.search",
    "stream": "generate.search",
    "Completion": "tasks.complete",
    "Classification": "tasks.classify",
    "Index": "tasks.index",
    "GenerationOptions": "generate.options",
    "Engine": "generate.engine",
    "Request": "generate.requests",
    "Handle": "generate.requests",
    "Token": "generate.requests",
    "Written": "generate.requests",
    "save_model": "checkpoints.model_folder",
    "load_model": "checkpoints.model_folder",
    "load": "tasks.load",
    "Translation": "tasks.translate",
    "train": "training.api",
    "Trained": "training.session",
    "score": "tasks.score",
    "trace": "explain.trace",
    "ClearformerError": "errors",
    "SpecError": "errors",
    "DataError": "errors",
    "KernelError": "errors",
    "CheckpointError": "errors",
    "TraceError": "errors",
    "TrainingError": "errors",
    "Task": "tasks.base",
    "Translator": "tasks.translate",
    "Writer": "tasks.text_to_text",
    "Completer": "tasks.complete",
    "Classifier": "tasks.classify",
    "Embedder": "tasks.embed",
    "Filler": "tasks.fill",
    "Answerer": "tasks.answer",
    "Tagger": "tasks.tag",
    "Seer": "tasks.see",
    "Captioner": "tasks.see",
    "Answer": "tasks.answer",
    "Tagged": "tasks.tag",
    "Filled": "tasks.fill",
    "Seen": "tasks.see",
    "Caption": "tasks.see",
    "Scored": "tasks.complete",
    "Hit": "tasks.index",
    "Score": "tasks.score",
    "Explanation": "tasks.explain",
    "Trace": "explain.trace",
    "Stopped": "training.session",
    "Metadata": "checkpoints.metadata",
    "Tokenizer": "text.protocol",
    "Encoded": "text.protocol",
    "LearnedTokenizer": "text.learn",
    "PublicTokenizer": "text.tokenizer",
    "VerbError": "errors",
}
_MODULES = ("spec", "presets", "errors", "static")

__all__ = [
    "Answer",
    "Answerer",
    "Caption",
    "Captioner",
    "CheckpointError",
    "Classification",
    "Classifier",
    "ClearformerError",
    "Completer",
    "Completion",
    "DataError",
    "Embedder",
    "Encoded",
    "Engine",
    "Explanation",
    "Filled",
    "Filler",
    "GenerationOptions",
    "Handle",
    "Hit",
    "Index",
    "KernelError",
    "LearnedTokenizer",
    "Metadata",
    "PublicTokenizer",
    "Request",
    "Score",
    "Scored",
    "Seen",
    "Seer",
    "Spec",
    "SpecError",
    "Stopped",
    "Tagged",
    "Tagger",
    "Task",
    "Token",
    "Tokenizer",
    "Trace",
    "TraceError",
    "Trained",
    "TrainingError",
    "Translation",
    "Translator",
    "VerbError",
    "Writer",
    "Written",
    "__version__",
    "beam",
    "build",
    "count_parameters",
    "errors",
    "greedy",
    "kernels_of",
    "load",
    "load_model",
    "presets",
    "sample",
    "save_model",
    "score",
    "spec",
    "static",
    "stream",
    "trace",
    "train",
]

if TYPE_CHECKING:
    from clearformer import errors, presets, spec, static
    from clearformer.assemble import build, count_parameters, kernels_of
    from clearformer.checkpoints.metadata import Metadata
    from clearformer.checkpoints.model_folder import load_model, save_model
    from clearformer.errors import (
        CheckpointError,
        ClearformerError,
        DataError,
        KernelError,
        SpecError,
        TraceError,
        TrainingError,
        VerbError,
    )
    from clearformer.explain.trace import Trace, trace
    from clearformer.generate.engine import Engine
    from clearformer.generate.options import GenerationOptions
    from clearformer.generate.requests import Handle, Request, Token, Written
    from clearformer.generate.search import beam, greedy, sample, stream
    from clearformer.spec import Spec
    from clearformer.tasks.answer import Answer, Answerer
    from clearformer.tasks.base import Task
    from clearformer.tasks.classify import Classification, Classifier
    from clearformer.tasks.complete import Completer, Completion, Scored
    from clearformer.tasks.embed import Embedder
    from clearformer.tasks.explain import Explanation
    from clearformer.tasks.fill import Filled, Filler
    from clearformer.tasks.index import Hit, Index
    from clearformer.tasks.load import load
    from clearformer.tasks.score import Score, score
    from clearformer.tasks.see import Caption, Captioner, Seen, Seer
    from clearformer.tasks.tag import Tagged, Tagger
    from clearformer.tasks.text_to_text import Writer
    from clearformer.tasks.translate import Translation, Translator
    from clearformer.text.learn import LearnedTokenizer
    from clearformer.text.protocol import Encoded, Tokenizer
    from clearformer.text.tokenizer import PublicTokenizer
    from clearformer.training.api import train
    from clearformer.training.session import Stopped, Trained


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"clearformer.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"clearformer.{name}")
    else:
        raise AttributeError(f"module 'clearformer' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
