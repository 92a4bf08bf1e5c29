"""The models that come with the package: what each is for, under which licence, how large and how good it is.

A model is a folder of models/ like any other of ours. Its card, README.md, begins with what a program wants to know, as
model cards of the Hugging Face hub do:

---
license: CC-BY 2.0 FR
verbs: embed, search
scores:
  STS-B test, Spearman: 0.7
---
# name: what it is
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from clearformer.checkpoints.metadata import FILE as TASK
from clearformer.checkpoints.metadata import read_metadata
from clearformer.errors import CheckpointError, DataError, nearest

BUNDLED = Path(str(files("clearformer") / "models"))
CARD = "README.md"
FENCE = "---"
PREFERRED = ("en-de",)  # where several models serve a verb
VERBS = ("translate", "summarize", "answer", "complete", "classify", "embed", "search", "fill", "tag", "see")
PUBLIC = {  # a small public model for each verb, with safetensors and of a family that is read here
    "translate": "google-t5/t5-small",
    "summarize": "google/flan-t5-small",
    "answer": "distilbert/distilbert-base-cased-distilled-squad",
    "complete": "openai-community/gpt2",
    "classify": "distilbert/distilbert-base-uncased-finetuned-sst-2-english",
    "embed": "sentence-transformers/all-MiniLM-L6-v2",
    "search": "sentence-transformers/all-MiniLM-L6-v2",
    "fill": "google-bert/bert-base-uncased",
    "tag": "dslim/bert-base-NER",
    "see": "google/vit-base-patch16-224",
}


@dataclass(frozen=True)
class Bundled:
    """One model of the package."""

    name: str
    folder: Path
    verbs: tuple[str, ...]
    title: str  # the first line of its card
    licence: str | None
    scores: dict[str, float]
    languages: tuple[str, ...]  # that it translates to
    bytes: int
    card: str  # the text of the card, without what it begins with

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "folder": str(self.folder),
            "verbs": list(self.verbs),
            "title": self.title,
            "licence": self.licence,
            "bytes": self.bytes,
            "scores": self.scores,
        }


def bundled() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(path.parent.name for path in BUNDLED.glob(f"*/{TASK}"))


def bundled_models() -> list[Bundled]:
    return [bundled_model(name) for name in bundled()]


@cache
def bundled_model(name: str) -> Bundled:
    """What there is to know of a bundled model, by its name."""
    if name not in bundled():
        raise CheckpointError(f"there is no bundled model {name!r}{nearest(name, bundled())}")
    folder = BUNDLED / name
    metadata = read_metadata(folder)
    path = folder / CARD
    said, card = read_card(path.read_text(encoding="utf-8") if path.is_file() else "")
    verbs = said.get("verbs") or str(metadata.task)
    return Bundled(
        name=name,
        folder=folder,
        verbs=tuple(verb.strip() for verb in verbs.split(",")),
        title=next((line.lstrip("# ") for line in card.splitlines() if line.strip()), name).removeprefix(f"{name}: "),
        licence=said.get("license"),
        scores=said.get("scores") or {},
        languages=metadata.to or (),
        bytes=sum(file.stat().st_size for file in folder.iterdir()),
        card=card,
    )


def read_card(text: str) -> tuple[dict[str, Any], str]:
    """What a card begins with, between two lines of `---`, and its text. Indented lines are numbers of the key above
    them."""
    head, fence, rest = text.removeprefix(FENCE + "\n").partition(f"\n{FENCE}\n")
    if not text.startswith(FENCE + "\n") or not fence:
        return {}, text
    said: dict[str, Any] = {}
    key = ""
    for line in head.splitlines():
        name, _, value = line.rpartition(": ") if line[:1].isspace() else line.partition(":")
        if line[:1].isspace() and isinstance(said.get(key), dict):
            said[key][name.strip()] = float(value)
        elif line.strip():
            key = name.strip()
            said[key] = value.strip() or {}
    return said, rest.lstrip("\n")


def serving(verb: str) -> str | None:
    """The name of the bundled model that a verb takes where none is named."""
    able = [model.name for model in bundled_models() if verb in model.verbs]
    return next((name for name in PREFERRED if name in able), able[0] if able else None)


def bundled_for(to: str) -> str:
    """The bundled model that translates to a language."""
    languages = {language: model.name for model in bundled_models() for language in model.languages}
    if to not in languages:
        raise DataError(
            f"no bundled model translates to {to!r}; there is {', '.join(sorted(languages))}."
            " Train one of your own with: clearformer train",
            param="to",
        )
    return languages[to]


def without_model(verb: str) -> str:
    """What to say where a verb has no bundled model: which public one will do, and how to get it."""
    public = PUBLIC[verb]
    called = "search index" if verb == "search" else verb
    return (
        f"no bundled model can {verb}; fetch a public one with: clearformer download {public},"
        f" then: clearformer {called} --model {public.rpartition('/')[2]} …"
    )


def model_for(verb: str) -> str:
    """The bundled model of a verb, or the error that says how to get a public one."""
    found = serving(verb)
    if found is None:
        raise CheckpointError(without_model(verb), param="model", hint=f"clearformer download {PUBLIC[verb]}")
    return found
