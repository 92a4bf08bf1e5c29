"""A run that begins with another model, ours or a public one: its specification, its weights, its tokenizer."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clearformer.assemble import Model
from clearformer.checkpoints.huggingface import is_public, unused
from clearformer.checkpoints.metadata import Metadata
from clearformer.errors import CheckpointError
from clearformer.kernels.pack import float_weights
from clearformer.tasks.load import Opened, find, open_model

DESCRIBED = ("spec.json", "config.json", "task.json", "tokenizer.json")


@dataclass(frozen=True)
class Start:
    opened: Opened

    @classmethod
    def read(cls, folder: Path, ignore: Collection[str] = ()) -> "Start":
        return cls(open_model(find(folder), ignore=ignore))

    @property
    def spec(self) -> Any:
        return self.opened.model.spec

    @property
    def metadata(self) -> Metadata:
        return self.opened.metadata

    @property
    def words(self) -> Any:
        return self.opened.words

    def files(self) -> list[Path]:
        """What it was read from: a run that goes on must find the same."""
        inside = sorted(path for path in self.opened.folder.iterdir() if path.is_file())
        return [path for path in inside if path.suffix == ".safetensors" or path.name in DESCRIBED]

    def tokenizer_file(self) -> Path:
        return self.opened.folder / "tokenizer.json"

    @torch.no_grad()
    def fill(self, model: Model) -> list[str]:
        """Copy every weight that both have, dequantised where it is kept as int8; the names of those that stay fresh,
        such as a new head's."""
        given = float_weights(self.opened.model)
        fresh = []
        for name, parameter in model.named_parameters():
            if name not in given:
                fresh.append(name)
            elif given[name].shape == parameter.shape:
                parameter.copy_(given[name])
            elif name.startswith("head."):  # other labels than before
                fresh.append(name)
            else:
                shapes = f"{tuple(given[name].shape)} there, {tuple(parameter.shape)} here"
                raise CheckpointError(f"{self.opened.folder}: {name} does not fit: {shapes}")
        there = unused(self.opened.folder, model, fresh) if is_public(self.opened.folder) else {}
        for name, weight in there.items():
            model.get_parameter(name).copy_(weight)
        return [name for name in fresh if name not in there]
