"""Scoring translations: BLEU and chrF with the signatures that make them comparable, and the worst sentences."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from clearformer.errors import DataError, nearest


@dataclass(frozen=True)
class Worst:
    """A sentence and its own chrF; `line` counts from 1."""

    line: int
    chrf: float
    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class Score:
    bleu: float
    chrf: float
    exact: float  # the share of translations that are the reference, character for character
    signatures: tuple[str, str]
    length_ratio: float
    worst: list[Worst] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def score(
    translations: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str] = (),
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    worst: int = 0,
) -> Score:
    """Compare translations with one reference each, by sacreBLEU."""
    if len(translations) != len(references):
        raise DataError(f"{len(translations)} translations given for {len(references)} references")
    check_tokenizer(tokenize)
    if not references:
        raise DataError("there is nothing to score")
    bleu, chrf = BLEU(tokenize=tokenize, lowercase=lowercase), CHRF(lowercase=lowercase)
    found = bleu.corpus_score(list(translations), [list(references)])
    letters = chrf.corpus_score(list(translations), [list(references)])
    each = [chrf.sentence_score(t, [r]).score for t, r in zip(translations, references, strict=True)] if worst else []
    lowest = sorted(range(len(each)), key=lambda n: each[n])[:worst]
    return Score(
        bleu=found.score,
        chrf=letters.score,
        exact=sum(t == r for t, r in zip(translations, references, strict=True)) / len(references),
        signatures=(str(bleu.get_signature()), str(chrf.get_signature())),
        length_ratio=found.ratio,
        worst=[Worst(n + 1, each[n], sources[n] if sources else "", references[n], translations[n]) for n in lowest],
    )


def check_tokenizer(name: str) -> None:
    if name not in BLEU.TOKENIZERS:
        raise DataError(f"sacreBLEU has no tokenizer {name!r}{nearest(name, BLEU.TOKENIZERS)}")
