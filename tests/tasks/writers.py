"""Small models with random weights that complete and write, with the words of a learned tokenizer; as folders too."""

from pathlib import Path
from typing import Any

import torch

import clearformer as cf
from clearformer import presets
from clearformer.tasks.complete import Completer
from clearformer.tasks.text_to_text import Writer
from clearformer.text.learn import learn
from clearformer.text.tokenizer import PublicTokenizer
from tests.laws.cases import loud

TEXTS = [
    "one two three. four five six.",
    "Do you know him? I see three of them.",
    "translate English to German: summarize: question: context:",
    "seven, eight, nine: ten 😀",
]
POSITIONS = 48
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
_words: dict[tuple[bool, str | None], PublicTokenizer] = {}


def words(start: bool = True, template: str | None = None) -> PublicTokenizer:
    key = (start, template)
    if key not in _words:
        found = PublicTokenizer.of(learn(TEXTS, "bpe", 380), start=start)
        found.chat_template = template
        _words[key] = found
    return _words[key]


def generation(**changed: Any) -> dict[str, Any]:
    return {"eos_token_id": [2], "pad_token_id": 0, "suppress_tokens": [0, 1, 3], **changed}


def completer(template: str | None = None, **changed: Any) -> Completer:
    found = words(template=template)
    model = loud(cf.build(presets.llama("tiny", vocabulary=len(found)), seed=4))  # one that does not repeat itself
    metadata = {"task": "complete", "longest": POSITIONS, "generation": generation(**{"bos_token_id": 1, **changed})}
    return Completer(model, found, metadata)  # type: ignore[arg-type]


def writer(
    family: str = "flan_t5", prompts: dict[str, Any] | None = None, to: tuple[str, ...] = (), **changed: Any
) -> Writer:
    found = words(start=False)
    model = cf.build(presets.FAMILIES[family]("tiny", vocabulary=len(found)), seed=1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = parameter.dim() == 1 and name.endswith("weight")
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.35 + norm)
    metadata = {"task": "write", "family": family, "longest": 60, "prompts": prompts or {}, "to": list(to)}
    return Writer(model, found, metadata | {"generation": generation(decoder_start_token_id=0, **changed)})  # type: ignore[arg-type]


def save(task: Completer | Writer, folder: Path) -> Path:
    cf.save_model(task.model, folder)
    task.tokenizer.save(folder)
    (folder / "task.json").write_text(task.metadata.to_json())
    return folder
