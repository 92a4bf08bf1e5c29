"""How a text is written: one set of options, named as the field names them, in Python, on the command line, in folders.

What is None was not said. `merge` puts the options of a checkpoint, of a task and of a caller together, later ones
first; `Plan` is what they come to for one request, with nothing left open.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from clearformer.errors import DataError, nearest

Early = bool | Literal["never"]
DEFAULT_NEW_TOKENS = 100  # where nobody says how many
OLD = {  # the words of folders that were written before these were the field's
    "ends": "eos_token_id",
    "pad": "pad_token_id",
    "beams": "num_beams",
    "early": "early_stopping",
    "no_repeat": "no_repeat_ngram_size",
    "longest": "max_length",
    "new": "max_new_tokens",
    "shortest": "min_length",
    "least": "min_new_tokens",
    "sample": "do_sample",
    "repetition": "repetition_penalty",
    "forbidden": "suppress_tokens",
    "forbidden_words": "bad_words_ids",
    "forced_first": "forced_bos_token_id",
    "forced_last": "forced_eos_token_id",
}
TOKEN_LISTS = ("eos_token_id", "suppress_tokens")
WHOLE = {  # whole numbers and the least they may be
    "max_new_tokens": 1, "max_length": 1, "min_new_tokens": 0, "min_length": 0, "top_k": 0, "num_beams": 1,
    "num_return_sequences": 1, "no_repeat_ngram_size": 0, "logprobs": 0, "seed": 0, "bos_token_id": 0,
    "pad_token_id": 0, "decoder_start_token_id": 0, "forced_bos_token_id": 0, "forced_eos_token_id": 0,
}  # fmt: skip
NUMBERS = (
    "temperature", "top_p", "min_p", "length_penalty", "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """Names and meanings are those of transformers' `GenerationConfig`; `stop`, `seed`, `logprobs`, `logit_bias` and
    the penalties of presence and frequency, which count what was written and not the prompt, those of HTTP APIs.

    A `temperature` of 0 takes the likeliest token; any other draws, and so does `top_k`, `top_p` or `min_p` without
    one. `max_length` and `min_length` count the prompt too, and `max_new_tokens` and `min_new_tokens` come before them.
    `logprobs` asks for so many of the likeliest tokens at every step.
    """

    max_new_tokens: int | None = None
    max_length: int | None = None
    min_new_tokens: int | None = None
    min_length: int | None = None
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    num_beams: int | None = None
    num_return_sequences: int | None = None
    length_penalty: float | None = None
    early_stopping: Early | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: tuple[tuple[int, float], ...] | None = None  # tokens, and what is added to their logits
    no_repeat_ngram_size: int | None = None
    suppress_tokens: tuple[int, ...] | None = None
    bad_words_ids: tuple[tuple[int, ...], ...] | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | None = None
    stop: tuple[str, ...] | None = None
    logprobs: int | None = None
    bos_token_id: int | None = None
    eos_token_id: tuple[int, ...] | None = None
    pad_token_id: int | None = None
    decoder_start_token_id: int | None = None

    def __post_init__(self) -> None:
        self._tuples()
        for name, least in WHOLE.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not least <= value < 2**63):
                raise DataError(f"{name} must be a whole number from {least}, given {value!r}", param=name)
        for name in NUMBERS:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise DataError(f"{name} must be a number, given {value!r}", param=name)
        self._ranges()
        if self.do_sample not in (None, True, False):
            raise DataError(f"do_sample must be true or false, given {self.do_sample!r}", param="do_sample")
        if self.early_stopping not in (None, True, False, "never"):
            raise DataError(f"early_stopping must be true, false or never, given {self.early_stopping!r}")
        self._agree()

    def _tuples(self) -> None:
        """Lists, single ids and single texts as tuples."""
        for name in (*TOKEN_LISTS, "stop"):
            value = getattr(self, name)
            if isinstance(value, int | str) and not isinstance(value, bool):
                value = (value,)
            if value is not None and not isinstance(value, list | tuple):
                raise DataError(f"{name} must be a list, given {value!r}", param=name)
            object.__setattr__(self, name, None if value is None else tuple(value))
        words = self.bad_words_ids
        if words is not None:
            lists = isinstance(words, list | tuple) and all(isinstance(word, list | tuple) for word in words)
            if not lists:
                raise DataError(f"bad_words_ids must be lists of token ids, given {words!r}", param="bad_words_ids")
            object.__setattr__(self, "bad_words_ids", tuple(tuple(word) for word in words))
        for name in TOKEN_LISTS:
            if any(type(each) is not int or each < 0 for each in getattr(self, name) or ()):
                raise DataError(f"{name} must be token ids, given {getattr(self, name)!r}", param=name)
        if any(
            not word or any(type(each) is not int or each < 0 for each in word) for word in self.bad_words_ids or ()
        ):
            raise DataError(f"bad_words_ids must be lists of token ids, given {self.bad_words_ids!r}")
        self._biases()
        if not all(isinstance(text, str) for text in self.stop or ()):
            raise DataError(f"stop must be texts, given {self.stop!r}", param="stop")
        if not all(self.stop or ()):
            raise DataError("an empty text cannot stop another; give one with characters, or none", param="stop")

    def _biases(self) -> None:
        """Pairs of a token and a number, given as such or as a dictionary."""
        given: Any = self.logit_bias
        if given is None:
            return
        try:
            pairs = tuple((token, float(bias)) for token, bias in (given.items() if isinstance(given, dict) else given))
        except (TypeError, ValueError):
            pairs = ((-1, 0.0),)
        if any(type(token) is not int or token < 0 or not math.isfinite(bias) for token, bias in pairs):
            raise DataError(
                f"logit_bias must be token ids and finite numbers, given {given!r:.200}", param="logit_bias"
            )
        object.__setattr__(self, "logit_bias", pairs)

    def _ranges(self) -> None:
        checks: dict[str, tuple[Any, str]] = {
            "temperature": (lambda x: 0 <= x < math.inf, "must be 0 or more"),
            "top_p": (lambda x: 0 < x <= 1, "must be above 0 and at most 1"),
            "min_p": (lambda x: 0 <= x <= 1, "must be from 0 to 1"),
            "repetition_penalty": (lambda x: 0 < x < math.inf, "must be above 0; 1 changes nothing"),
            "length_penalty": (math.isfinite, "must be a finite number"),
            "presence_penalty": (math.isfinite, "must be a finite number"),
            "frequency_penalty": (math.isfinite, "must be a finite number"),
        }
        for name, (fits, wanted) in checks.items():
            value = getattr(self, name)
            if value is not None and not fits(value):
                raise DataError(f"{name} {wanted}, given {value}", param=name)

    def _agree(self) -> None:
        """Refuse what contradicts itself."""
        beams = self.num_beams or 1
        if beams > 1 and self.draws:
            raise DataError("num_beams searches for the likeliest text and temperature draws; give one of them")
        if self.num_beams is not None and (self.num_return_sequences or 1) > beams and not self.draws:
            raise DataError(
                f"num_return_sequences {self.num_return_sequences} needs num_beams of at least as many, given {beams}"
            )
        if self.max_new_tokens is not None and (self.min_new_tokens or 0) > self.max_new_tokens:
            raise DataError(f"min_new_tokens {self.min_new_tokens} is above max_new_tokens {self.max_new_tokens}")

    @property
    def draws(self) -> bool:
        """Whether these options, as far as they are said, ask for random tokens."""
        if self.temperature is not None:
            return self.temperature > 0 and self.do_sample is not False
        return self.do_sample if self.do_sample is not None else bool(self.top_k or self.top_p or self.min_p)

    @property
    def start(self) -> int | None:
        """The token that a text begins with, where there is no other."""
        return self.bos_token_id if self.decoder_start_token_id is None else self.decoder_start_token_id

    def to_dict(self) -> dict[str, Any]:
        """For JSON: only what was said."""
        return {name: value for name in NAMES if (value := getattr(self, name)) is not None}

    @classmethod
    def of(cls, given: "Mapping[str, Any] | GenerationOptions | None" = None, **more: Any) -> "GenerationOptions":
        """Options from a dictionary and keywords; a name that is none is an error with the nearest ones."""
        values = {**(given.to_dict() if isinstance(given, GenerationOptions) else given or {}), **more}
        for name in values:
            if name not in NAMES:
                raise DataError(f"{name!r} is no option of generation{nearest(name, NAMES)}", param=name)
        return cls(**values)


NAMES = tuple(field.name for field in fields(GenerationOptions))


def modern(given: Mapping[str, Any], *, two_stacks: bool) -> dict[str, Any]:
    """What a folder says of generation, in the names of `GenerationOptions`."""
    start = "decoder_start_token_id" if two_stacks else "bos_token_id"
    found = {OLD.get(name, start if name == "start" else name): value for name, value in given.items()}
    return {name: value for name, value in found.items() if value is not None and value != []}


def merge(*layers: GenerationOptions | None) -> GenerationOptions:
    """One set of options: of each the last that was said. A caller who asks for one way of choosing tokens (beams,
    drawing, a temperature of 0) leaves aside what an earlier layer said of another."""
    values: dict[str, Any] = {}
    for layer in layers:
        if layer is None:
            continue
        said = layer.to_dict()
        if layer.draws or layer.temperature == 0:
            values.pop("num_beams", None)
            values.pop("do_sample", None)
        if layer.temperature == 0 or (layer.num_beams is not None and not layer.draws):
            values.pop("do_sample", None)
            values = {
                name: value for name, value in values.items() if name not in ("temperature", "top_k", "top_p", "min_p")
            }
        if "max_new_tokens" in said:
            values.pop("max_length", None)
        if "min_new_tokens" in said:
            values.pop("min_length", None)
        if "num_beams" in values and "num_beams" not in said:
            values["num_beams"] = max(values["num_beams"], said.get("num_return_sequences", 1))
        for name in ("suppress_tokens", "bad_words_ids"):  # what one layer forbids, no other allows
            if name in said:
                said[name] = (*values.get(name, ()), *said[name])
        values |= said
    return GenerationOptions(**values)


def translating(
    *, start: int, end: int, pad: int, tags: Iterable[int] = (), length_penalty: float = 1.0
) -> GenerationOptions:
    """How a translator writes: a beam, and padding, starts and language tags are never said."""
    return GenerationOptions(
        num_beams=4,
        early_stopping=True,
        length_penalty=length_penalty,
        suppress_tokens=(pad, start, *tags),
        eos_token_id=(end,),
    )


def translation_limit(source_tokens: int, growth: float) -> int:
    """How many tokens a translation of so many may have; `growth` is target tokens a source token."""
    return int(max(growth, 2.0) * source_tokens) + 20


@dataclass(frozen=True)
class Plan:
    """What options come to for a prompt of so many tokens."""

    limit: int  # tokens to write at most
    least: int  # an end is token number `least` + 1 at the earliest
    beams: int
    sequences: int  # results
    draws: bool
    temperature: float
    top_k: int  # 0 is all
    top_p: float
    min_p: float
    seed: int
    length_penalty: float
    early_stopping: Early
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: tuple[tuple[int, float], ...]
    no_repeat_ngram_size: int
    suppress: tuple[int, ...]
    bad_words: tuple[tuple[int, ...], ...]
    forced_first: int | None
    forced_last: int | None
    ends: tuple[int, ...]
    logprobs: int

    @property
    def keep(self) -> int:
        """How many extensions of a beam may matter: each hypothesis can end in as many ways as there are ends."""
        return max(2, 1 + len(self.ends)) * self.beams

    @property
    def rows(self) -> int:
        """Texts that are written side by side."""
        return self.beams if self.beams > 1 else self.sequences


def plan(options: GenerationOptions, prompt: int, default: int = DEFAULT_NEW_TOKENS, room: int | None = None) -> Plan:
    """For a prompt of so many tokens; `default` new tokens where nothing is said, and `room` for no more."""
    limit = options.max_new_tokens
    if limit is None:
        fits = options.max_length is not None and options.max_length > prompt
        limit = options.max_length - prompt if fits and options.max_length is not None else default
    limit = limit if room is None else min(limit, room)
    least = options.min_new_tokens
    if least is None:
        least = max(0, (options.min_length or 0) - prompt)
    draws, sequences = options.draws, options.num_return_sequences or 1
    beams = 1 if draws else max(options.num_beams or 1, sequences)
    words = options.bad_words_ids or ()
    ends = options.eos_token_id or ()
    alone = tuple(word[0] for word in words if len(word) == 1 and word[0] not in ends)
    return Plan(
        limit=limit,
        least=least,
        beams=beams,
        sequences=sequences,
        draws=draws,
        temperature=options.temperature if draws and options.temperature else 1.0,
        top_k=options.top_k or 0,
        top_p=1.0 if options.top_p is None else options.top_p,
        min_p=options.min_p or 0.0,
        seed=options.seed or 0,
        length_penalty=1.0 if options.length_penalty is None else options.length_penalty,
        early_stopping=False if options.early_stopping is None else options.early_stopping,
        repetition_penalty=options.repetition_penalty or 1.0,
        presence_penalty=options.presence_penalty or 0.0,
        frequency_penalty=options.frequency_penalty or 0.0,
        logit_bias=options.logit_bias or (),
        no_repeat_ngram_size=options.no_repeat_ngram_size or 0,
        suppress=tuple(dict.fromkeys((*(options.suppress_tokens or ()), *alone))),
        bad_words=tuple(word for word in words if len(word) > 1),
        forced_first=options.forced_bos_token_id,
        forced_last=options.forced_eos_token_id,
        ends=ends,
        logprobs=options.logprobs or 0,
    )


def check_tokens(options: Plan, vocabulary: int) -> None:
    """Refuse tokens that are not in a vocabulary of so many."""
    given: dict[str, Iterable[int | None]] = {
        "eos_token_id": options.ends,
        "suppress_tokens": options.suppress,
        "logit_bias": (token for token, _ in options.logit_bias),
        "bad_words_ids": (token for word in options.bad_words for token in word),
        "forced_bos_token_id": (options.forced_first,),
        "forced_eos_token_id": (options.forced_last,),
    }
    for name, tokens in given.items():
        for token in tokens:
            check_token(name, token, vocabulary)


def check_token(name: str, token: int | None, vocabulary: int) -> None:
    if token is not None and not 0 <= token < vocabulary:
        raise DataError(f"{name} must be of the vocabulary, 0 to {vocabulary - 1}, given {token}", param=name)
