"""Text ↔ token ids. The tokenizer is learned from the data and travels with the model as `tokenizer.json`.

Subwords (`bpe`, `unigram`) and characters (`char`) fall back to bytes, so nothing is unknown and every text comes
back as it went in, but for the chosen Unicode form (U+2581 `▁` stands for a space inside, and is read as one).
`word` splits at spaces, for small closed vocabularies: what it has not seen is `<unk>`.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from clearformer.errors import CheckpointError, DataError, nearest
from clearformer.text.limits import check
from clearformer.text.protocol import Encoded

Kind = Literal["bpe", "unigram", "word", "char"]
Form = Literal["NFC", "NFKC", "none"]
PAD, START, END, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
SPECIAL = (PAD, START, END, UNKNOWN)
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
ALPHABET = 0.25  # of the vocabulary at most are single characters; rarer ones are spelt in bytes
LARGEST = 64 * 2**20
TAG = re.compile(r"<tag:[A-Za-z0-9-]+>")  # in front of the sources of a set of training pairs


class LearnedTokenizer:
    """Raw text in, ids out, and back: the tokenizer of a translator that was trained here."""

    def __init__(self, engine: Engine):
        self.engine = engine
        engine.encode_special_tokens = True  # "</s>" in a text is five characters, not an end
        ids = engine.get_vocab()
        for token in SPECIAL:
            if token not in ids:
                raise CheckpointError(f"the tokenizer has no {token} token")
        if set(ids.values()) != set(range(len(ids))):
            raise CheckpointError("the ids of the tokenizer are not 0, 1, 2, …; it is damaged")
        self.pad, self.start, self.end, self.unknown = (ids[token] for token in SPECIAL)
        self.special = set(engine.get_added_tokens_decoder())
        names = (token.content for token in engine.get_added_tokens_decoder().values())
        self.languages = {name[2:-1]: ids[name] for name in names if name.startswith("<2")}
        self.tags = {name: ids[name] for name in ids if TAG.fullmatch(name) and ids[name] in self.special}

    def __len__(self) -> int:
        return self.engine.get_vocab_size()

    def encode(self, text: str, pair: str | None = None, *, special: bool = True) -> Encoded:
        """Ids of a text with its end, or of two, each with its own."""
        return self.encode_all([text], None if pair is None else [pair], special=special)[0]

    def encode_all(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, special: bool = True
    ) -> list[Encoded]:
        with _strings():
            sides = [self.engine.encode_batch(list(side), add_special_tokens=False) for side in (texts, pairs or ())]
        made = [Encoded([], [], [], [], []) for _ in texts]
        for number, side in enumerate(sides):
            for row, found in zip(made, side, strict=False):
                row.ids.extend(self._ids(found.ids))
                row.offsets.extend(found.offsets)
                row.sequence.extend([number] * len(found.ids))
                if special:
                    row.ids.append(self.end)
                    row.offsets.append((0, 0))
                    row.sequence.append(None)
                row.segments.extend([number] * (len(row.ids) - len(row.segments)))
        return [row._replace(special=[each is None for each in row.sequence]) for row in made]

    def ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, each with its end."""
        with _strings():
            found = self.engine.encode_batch_fast(list(texts), add_special_tokens=False)
        return [[*self._ids(encoding.ids), self.end] for encoding in found]

    def _ids(self, ids: list[int]) -> list[int]:
        if isinstance(self.engine.model, models.WordLevel):  # here "</s>" would be looked up like any other word
            return [self.unknown if i in self.special else i for i in ids]
        return ids

    def target(self) -> "LearnedTokenizer":
        return self

    def tag(self, language: str) -> int:
        if language not in self.languages:
            hint = nearest(language, self.languages) if self.languages else "; it was trained for one language only"
            raise DataError(f"the model does not translate to {language!r}{hint}")
        return self.languages[language]

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of ids; starts, ends, padding and tags are left out unless asked for."""
        return self.engine.decode(list(ids), skip_special_tokens=not special)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The tokens themselves, for people to look at: `▁` is a space."""
        table, size = self._pieces, len(self._pieces)
        return [table[i] if 0 <= i < size else f"<{i}>" for i in ids]

    @cached_property
    def _pieces(self) -> list[str]:
        return [self.engine.id_to_token(i) or f"<{i}>" for i in range(len(self))]

    def to_json(self) -> str:
        return self.engine.to_str(pretty=True)

    @classmethod
    def load(cls, path: Path) -> "LearnedTokenizer":
        try:
            if path.stat().st_size > LARGEST:
                raise CheckpointError(f"larger than {LARGEST:,} bytes; it is no tokenizer of ours")
            engine = Engine.from_file(str(path))
            check(engine)
            found = cls(engine)
            found.encode("a \U00010ffff")  # some damage shows only here
            return found
        except FileNotFoundError:
            raise CheckpointError(f"{path.parent} has no {path.name}, so text cannot be read for this model") from None
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises plain Exception, and its panics are not even that
            raise CheckpointError(f"{path} is no tokenizer: {str(error)[:200]}") from None


@contextmanager
def _strings() -> Iterator[None]:
    try:
        yield
    except TypeError:
        raise DataError("a text is no string, or holds a lone surrogate, which is half a character") from None


def learn(
    texts: Iterable[str],
    kind: Kind = "bpe",
    vocabulary: int = 8_000,
    form: Form = "NFC",
    languages: Sequence[str] = (),
    extra: Sequence[str] = (),
) -> LearnedTokenizer:
    """A tokenizer with at most `vocabulary` tokens, learned from texts: the same from the same ones.

    They are read twice; an iterator, which cannot be, is kept in memory. `extra` are more special tokens, as `<mask>`.
    """
    texts = list(texts) if iter(texts) is texts else texts
    special = [*SPECIAL, *(f"<2{language}>" for language in dict.fromkeys(languages)), *extra]
    fixed = special if kind == "word" else [*special, *BYTES]
    room = vocabulary - len(fixed)
    if room < 1:
        raise DataError(f"a vocabulary of {vocabulary} has no room for words: {len(fixed)} tokens are fixed; give more")
    model = {"bpe": _bpe, "unigram": _unigram, "word": _word, "char": _char}[kind](texts, fixed, room, form)
    engine = Engine(models.WordLevel({UNKNOWN: 0}, UNKNOWN))
    engine.normalizer = _form(form) if kind == "word" else _marked(form)
    engine.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ") if kind == "word" else _words()
    if kind != "word":  # words are joined by spaces without a decoder
        engine.decoder = _spelt()
    content = json.loads(engine.to_str())
    content["model"] = model
    content["added_tokens"] = [
        {"id": number, "content": token, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for number, token in enumerate(special)
        if token != UNKNOWN  # so that it is shown where a text is read back
    ]
    return LearnedTokenizer(Engine.from_str(json.dumps(content)))


def _form(form: Form) -> normalizers.Normalizer:
    return {"NFC": normalizers.NFC, "NFKC": normalizers.NFKC, "none": lambda: normalizers.Sequence([])}[form]()


def _marked(form: Form) -> normalizers.Normalizer:
    """The text's form, with every space, and one in front, made visible."""
    return normalizers.Sequence([_form(form), normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def _words() -> pre_tokenizers.PreTokenizer:
    """No token reaches over a space or from a word into punctuation, and each digit is one: numbers never seen are
    read, and copied, digit by digit."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(prepend_scheme="never"),
            pre_tokenizers.Punctuation("isolated"),
            pre_tokenizers.Digits(individual_digits=True),
        ]
    )


def _spelt() -> decoders.Decoder:
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    return decoders.Sequence(steps)


def _alphabet(texts: Iterable[str], size: float, form: Form) -> list[str]:
    """The space and the most frequent characters, `size` in all."""
    normal, counts = _marked(form), Counter[str]()
    for text in texts:
        counts.update(normal.normalize_str(text))
    if not counts:
        raise DataError("there is no text to learn a tokenizer from")
    counts.pop("▁", None)
    return ["▁", *sorted(counts, key=lambda c: (-counts[c], c))][: max(1, int(size))]


def _trained(texts: Iterable[str], model: models.Model, trainer: Any, form: Form) -> dict[str, Any]:
    engine = Engine(model)
    engine.normalizer, engine.pre_tokenizer = _marked(form), _words()
    engine.train_from_iterator(texts, trainer)
    return json.loads(engine.to_str())["model"]


def _bpe(texts: Iterable[str], fixed: list[str], room: int, form: Form) -> dict[str, Any]:
    alphabet = _alphabet(texts, room * ALPHABET, form)  # the trainer's own choice among equals changes
    trainer = trainers.BpeTrainer(
        vocab_size=room, initial_alphabet=alphabet, limit_alphabet=len(alphabet), show_progress=False
    )
    found = _trained(texts, models.BPE(), trainer, form)
    tokens = [*fixed, *sorted(found["vocab"], key=found["vocab"].get)]
    ids = {token: number for number, token in enumerate(tokens)}
    return {**found, "vocab": ids, "unk_token": UNKNOWN, "byte_fallback": True}


def _unigram(texts: Iterable[str], fixed: list[str], room: int, form: Form) -> dict[str, Any]:
    trainer = trainers.UnigramTrainer(
        vocab_size=room + 1, unk_token=UNKNOWN, special_tokens=[UNKNOWN], show_progress=False
    )
    normal, alphabet = _form(form), set(_alphabet(texts, room * ALPHABET, form))
    known = defaultdict(lambda: " ", {ord(character): character for character in alphabet})
    found = _trained((normal.normalize_str(text).translate(known) for text in texts), models.Unigram(), trainer, form)
    lowest = round(min(score for _, score in found["vocab"]), 6)
    fallback = [[token, lowest - 10.0] for token in fixed]
    # the trainer's sums, and its scores of single characters hardly used, depend on an order that changes
    hardly = lowest + 1e-4 * len(alphabet)
    scores = {
        token: round(lowest if len(token) == 1 and score <= hardly else score, 6) for token, score in found["vocab"]
    }
    learned = sorted(([t, s] for t, s in scores.items() if t not in fixed), key=lambda pair: (-pair[1], pair[0]))
    return {**found, "vocab": fallback + learned, "unk_id": SPECIAL.index(UNKNOWN), "byte_fallback": True}


def _char(texts: Iterable[str], fixed: list[str], room: int, form: Form) -> dict[str, Any]:
    tokens = [*fixed, *_alphabet(texts, room, form)]
    ids = {token: number for number, token in enumerate(tokens)}
    return {"type": "BPE", "vocab": ids, "merges": [], "unk_token": UNKNOWN, "byte_fallback": True}


def _word(texts: Iterable[str], fixed: list[str], room: int, form: Form) -> dict[str, Any]:
    normal = _form(form)
    counts = Counter(word for text in texts for word in normal.normalize_str(text).split(" ") if word)
    if not counts:
        raise DataError("there is no text to learn a tokenizer from")
    for token in fixed:  # a word of the data spelt like one of ours would be dropped when texts are read back
        counts.pop(token, None)
    tokens = [*fixed, *(word for word, _ in sorted(counts.items(), key=lambda c: (-c[1], c[0]))[:room])]
    return {"type": "WordLevel", "vocab": {t: n for n, t in enumerate(tokens)}, "unk_token": UNKNOWN}
