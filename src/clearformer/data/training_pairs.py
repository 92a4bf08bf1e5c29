"""A set of pairs to train on, and how it is used: how often, how much of it, cleaned and noised how."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from clearformer.data.pairs import Pairs
from clearformer.spec.base import Fraction, Part

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Script = Literal[
    "Latin",
    "Cyrillic",
    "Greek",
    "Armenian",
    "Georgian",
    "Hebrew",
    "Arabic",
    "Devanagari",
    "Bengali",
    "Gurmukhi",
    "Gujarati",
    "Tamil",
    "Telugu",
    "Kannada",
    "Malayalam",
    "Sinhala",
    "Thai",
    "Lao",
    "Tibetan",
    "Myanmar",
    "Khmer",
    "Ethiopic",
    "Hangul",
    "Han",
    "Japanese",
]


class Noise(Part):
    """Sources as people type them; targets stay as they are.

    `case` is the probability that a whole source is in one case: three times in four lower, else capitals.
    `punctuation` is the probability that it loses its final punctuation, and, drawn apart, that its quotes change from
    curly to straight or back. `subwords` is that of BPE-dropout (each merge of a word is left out with it), and with a
    unigram vocabulary the share of words whose pieces are sampled. `versions` of every source are drawn when the data
    is prepared, and training goes round them.
    """

    case: Probability = 0.0
    punctuation: Probability = 0.0
    subwords: Fraction = 0.0
    versions: Annotated[int, Field(gt=0, le=64)] = 4

    @property
    def any(self) -> bool:
        return bool(self.case or self.punctuation or self.subwords)


class Scripts(Part):
    """The script that more than half of the letters of a side must be in; a text without letters passes."""

    source: Script | None = None
    target: Script | None = None


class TrainingPairs(Pairs):
    """Pairs, and how a run uses them.

    `weight` is how many times an epoch has each pair of the set, on average: 3 upsamples a small set, 0.25 takes
    another quarter of a large one in every epoch. `cap` is how many pairs of it are used at most, chosen by the seed.
    `tag` puts a token of its own in front of every source, for text that is unlike what the model will be given, such
    as back-translations; whoever uses the model never gives it.
    """

    weight: Annotated[float, Field(gt=0.0, le=1000.0)] = 1.0
    cap: Annotated[int, Field(gt=0, le=2**31)] | None = None
    tag: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,20}$")] | None = None
    script: Scripts | None = None
    noise: Noise | None = None

    @model_validator(mode="after")
    def _worth_saying(self) -> Self:
        if self.noise is not None and not self.noise.any:
            raise ValueError("noise: give case, punctuation or subwords a probability above 0, or leave it out")
        return self

    @property
    def told(self) -> list[str]:
        """The names of what is said of its use."""
        names = [name for name in ("cap", "tag", "script", "noise") if getattr(self, name) is not None]
        return ["weight"] * (self.weight != 1.0) + names

    @property
    def sampled(self) -> bool:
        """Whether the subwords of its sources are."""
        return self.noise is not None and self.noise.subwords > 0


def names_of(parts: tuple[Pairs, ...]) -> list[str]:
    """A short name for every set, all different: its own, or that of its file, with its folder where need be."""
    files = [part.files()[0] for part in parts]
    short = [part.name or _stem(file) for part, file in zip(parts, files, strict=True)]
    longer = [
        f"{file.resolve().parent.name}/{_stem(file)}" if part.name is None and short.count(name) > 1 else name
        for part, file, name in zip(parts, files, short, strict=True)
    ]
    return [
        f"{name} {longer[: n + 1].count(name)}" if longer.count(name) > 1 else name for n, name in enumerate(longer)
    ]


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").split(".")[0] or path.name
