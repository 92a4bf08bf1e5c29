"""Clearformer: the Transformer, whole and see-through.

    import clearformer as cf

    cf.load("en-de").translate(["How are you?"])
    cf.train(source="train.en", target="train.de", out="models/mine")

    model = cf.build(cf.presets.original("base"))
    trace = cf.trace(model, source, target)
    trace["decoder.2.cross.h3.weights"]

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
}
_MODULES = ("spec", "presets", "errors")

__all__ = [
    "CheckpointError",
    "Classification",
    "ClearformerError",
    "Completion",
    "DataError",
    "Engine",
    "GenerationOptions",
    "Handle",
    "Index",
    "KernelError",
    "Request",
    "Spec",
    "SpecError",
    "Token",
    "TraceError",
    "Trained",
    "TrainingError",
    "Translation",
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
    "stream",
    "trace",
    "train",
]

if TYPE_CHECKING:
    from clearformer import errors, presets, spec
    from clearformer.assemble import build, count_parameters, kernels_of
    from clearformer.checkpoints.model_folder import load_model, save_model
    from clearformer.errors import (
        CheckpointError,
        ClearformerError,
        DataError,
        KernelError,
        SpecError,
        TraceError,
        TrainingError,
    )
    from clearformer.explain.trace import trace
    from clearformer.generate.engine import Engine
    from clearformer.generate.options import GenerationOptions
    from clearformer.generate.requests import Handle, Request, Token, Written
    from clearformer.generate.search import beam, greedy, sample, stream
    from clearformer.spec import Spec
    from clearformer.tasks.classify import Classification
    from clearformer.tasks.complete import Completion
    from clearformer.tasks.index import Index
    from clearformer.tasks.load import load
    from clearformer.tasks.score import score
    from clearformer.tasks.translate import Translation
    from clearformer.training.api import train
    from clearformer.training.session import Trained


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
