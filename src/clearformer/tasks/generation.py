"""How a model writes if nobody says otherwise: what its checkpoint says, and what a person asks instead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from clearformer.checkpoints.metadata import Metadata
from clearformer.errors import CheckpointError, DataError
from clearformer.generate.beams import Early
from clearformer.generate.logits_rules import Controls

USUAL = 100  # tokens, where nobody says how many


@dataclass(frozen=True)
class Generation:
    """The entry "generation" of a model's metadata."""

    start: int | None = None
    ends: tuple[int, ...] = ()
    pad: int | None = None
    beams: int = 1
    length_penalty: float = 1.0
    early: Early = False
    no_repeat: int = 0
    longest: int | None = None  # tokens in all, the prompt included
    new: int | None = None
    shortest: int = 0  # as `longest`, before an end
    least: int | None = None  # new tokens before an end; said, it counts instead of `shortest`
    sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition: float = 1.0
    forbidden: tuple[int, ...] = ()
    forbidden_words: tuple[tuple[int, ...], ...] = ()
    stop: tuple[str, ...] = ()
    forced_first: int | None = None
    forced_last: int | None = None

    @classmethod
    def of(cls, metadata: Metadata | Mapping[str, Any]) -> "Generation":
        given = Metadata.of(metadata).generation or {}
        try:
            known = {field.name for field in fields(cls)}
            if odd := sorted(given.keys() - known):
                raise ValueError(f"it has {', '.join(odd)}, which mean nothing here")
            lists = {name: tuple(given[name]) for name in ("ends", "forbidden", "stop") if given.get(name) is not None}
            lists["forbidden_words"] = tuple(tuple(word) for word in given.get("forbidden_words") or ())
            found = cls(**{name: value for name, value in given.items() if value is not None} | lists)
            found._check()
            found.controls(1)
        except (TypeError, ValueError, AttributeError, DataError) as error:
            raise CheckpointError(f"what the model says about generation cannot be used: {error}") from None
        return found

    def _check(self) -> None:
        for name in ("start", "pad", "longest", "new", "least", "top_k", "forced_first", "forced_last"):
            value = getattr(self, name)
            if value is not None and type(value) is not int:
                raise ValueError(f"{name} must be a whole number or null, not {value!r}")
        if self.early not in (True, False, "never"):
            raise ValueError(f"early must be true, false or never, not {self.early!r}")
        if type(self.beams) is not int or self.beams < 1:
            raise ValueError(f"beams must be a whole number from 1, not {self.beams!r}")
        for token in (*self.ends, *self.forbidden, *(token for word in self.forbidden_words for token in word)):
            if type(token) is not int:
                raise ValueError(f"ends and what is forbidden must be ids, not {token!r}")
        if not all(isinstance(text, str) and text for text in self.stop):
            raise ValueError(f"stop must be texts with characters, not {self.stop!r}")

    def controls(self, prompt: int) -> Controls:
        """The rules for texts that go on from so many tokens."""
        shortest = max(0, self.shortest - prompt + 1) if self.shortest else 0
        return Controls(
            repetition=self.repetition,
            no_repeat=self.no_repeat,
            shortest=shortest if self.least is None else self.least + 1,
            forbidden=self.forbidden,
            forbidden_words=self.forbidden_words,
            forced_first=self.forced_first,
            forced_last=self.forced_last,
            whole=True,
        )

    def limit(self, prompt: int, usual: int = USUAL) -> int:
        """How many tokens to add to so many."""
        if self.new is not None:
            return max(1, self.new)
        return self.longest - prompt if self.longest is not None and self.longest > prompt else usual


@dataclass(frozen=True)
class Asked:
    """What a person asks of a continuation; None leaves it to the checkpoint. A temperature of 0 is greedy, any other
    draws; so does top_k, top_p or min_p without one."""

    new: int | None = None
    least: int | None = None  # tokens before an end
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int = 0
    stop: Sequence[str] | None = None
    repetition: float | None = None
    no_repeat: int | None = None
    beams: int | None = None
    length_penalty: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        if "" in (self.stop or ()):
            raise DataError("an empty text cannot stop another; give one with characters, or none")
        for name, lowest in (("new", 1), ("least", 0), ("beams", 1), ("temperature", 0), ("top_k", 0)):
            value = getattr(self, name)
            if value is not None and not value >= lowest:
                raise DataError(f"{name} must be at least {lowest}, given {value}")
        if not 0 <= self.seed < 2**63:
            raise DataError(f"seed must be from 0 to 2^63 − 1, given {self.seed}")
        if self.beams is not None and self.beams > 1 and self._draws():
            raise DataError("beams search for the likeliest text and a temperature draws; give one of them")

    def _draws(self) -> bool:
        return bool(self.temperature) or (
            self.temperature is None and any(value for value in (self.top_k, self.top_p, self.min_p))
        )

    def sampling(self, own: Generation) -> dict[str, Any] | None:
        """What `decode.search.sample` is to be given, or None where nothing is drawn."""
        if not self._draws() and (self.temperature is not None or self.beams is not None or not own.sample):
            return None
        top_k = own.top_k if self.top_k is None else self.top_k
        return {
            "temperature": self.temperature or own.temperature,
            "top_k": top_k or None,  # 0 keeps all
            "top_p": own.top_p if self.top_p is None else self.top_p,
            "min_p": own.min_p if self.min_p is None else self.min_p,
        }

    def stops(self, own: Generation) -> Sequence[str]:
        """The texts to stop before."""
        return own.stop if self.stop is None else self.stop

    def size(self, own: Generation) -> int:
        """How many beams; 1 where something is drawn, or the likeliest token taken, which a temperature of 0 asks."""
        if self.beams is not None:
            return self.beams
        return own.beams if self.temperature is None and self.sampling(own) is None else 1

    def controls(self, own: Controls) -> Controls:
        given: dict[str, Any] = {"repetition": self.repetition, "no_repeat": self.no_repeat}
        given["shortest"] = None if self.least is None else self.least + 1
        return replace(own, **{name: value for name, value in given.items() if value is not None})
