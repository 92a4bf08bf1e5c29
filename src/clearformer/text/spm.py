"""`PublicTokenizer` over sentencepiece models: which ids the pieces have, and what stands around texts, by family."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from clearformer.errors import DataError, nearest
from clearformer.text.proto import BPE, CONTROL, UNKNOWN, parse
from clearformer.text.protocol import Encoded
from clearformer.text.sentencepiece import Cut, Cutter, splitter
from clearformer.text.special_tokens import Said
from clearformer.text.tokenizer import FAST, PublicTokenizer, working
from clearformer.untrusted_files import parse_json

SINGLE = ("spiece.model", "tokenizer.model")
MARIAN = ("source.spm", "target.spm", "vocab.json")
SECOND = "target_vocab.json"
MOST = 2_000_000
SETTINGS = (  # that travel with the files
    "tokenizer_class",
    "legacy",
    "add_bos_token",
    "add_eos_token",
    "add_prefix_space",
    "extra_ids",
    "separate_vocabs",
    "source_lang",
    "target_lang",
)
NAMES = {"pad": "<pad>", "end": "</s>", "unknown": "<unk>"}  # of Marian


class Frame(NamedTuple):
    """What stands before and after each text, by id; `joined` where two texts share one frame."""

    before: list[int]
    after: list[int]
    joined: bool = False
    segments: bool = False  # whether the second text is a segment of its own


class SentencePieceTokenizer(PublicTokenizer):
    """Raw text in, ids out, and back, by the files of a folder that were read."""

    def __init__(
        self,
        read: Mapping[str, bytes],
        said: Said,
        cutter: Cutter,
        ids: dict[str, int],
        special: set[str],
        frame: Frame,
        roles: Mapping[str, int | None],
    ):
        super().__init__(cutter.engine, roles, longest=said.longest, chat_template=said.chat_template, plain=True)
        self.plain, self.clean = False, said.flag("clean_up_tokenization_spaces", False) and cutter.model.model != BPE
        self.read, self.said, self.cutter, self.ids, self.frame = dict(read), said, cutter, ids, frame
        self.special = {ids[token] for token in special}
        self.codes = {token for token in ids if token.startswith(">>") and token.endswith("<<") and len(token) > 4}
        self._tokens = {number: token for token, number in ids.items()}
        self._size = 1 + max(self._tokens, default=-1)
        self._split = splitter([token for token in {*special, *said.added} if token in ids])
        self._always = cutter.model.model != BPE or said.flag("legacy", False)
        self.other: SentencePieceTokenizer | None = None

    def token(self, number: int) -> str | None:
        return self._tokens.get(number)

    def raw(self, ids: list[int]) -> str:
        with working():
            return self.engine.decoder.decode([self._tokens[i] for i in ids])

    def target(self) -> PublicTokenizer:
        return self.other or self

    def files(self) -> dict[str, str | bytes]:
        return {**self.read}

    def public_settings(self) -> dict[str, Any]:
        """With the class that reads these files, which is not the one of a `tokenizer.json`."""
        said, made = self.said, super().public_settings() | self._settings
        named = self._settings.get("tokenizer_class")
        if not isinstance(named, str) or named in FAST:
            single = "LlamaTokenizer" if self.cutter.model.model == BPE else "T5Tokenizer"
            made["tokenizer_class"] = "MarianTokenizer" if MARIAN[0] in self.read else single
        if said.added:
            made["added_tokens_decoder"] = {
                str(number): {"content": token, "special": token in said.special, **said.flags.get(token, {})}
                for token, number in sorted(said.added.items(), key=lambda item: item[1])
            }
        more = sorted(said.special - {*said.tokens.values(), *said.added})
        return made | ({"additional_special_tokens": more} if more else {})

    @property
    def _settings(self) -> dict[str, Any]:
        return {key: self.said.settings[key] for key in SETTINGS if key in self.said.settings}

    def kept(self) -> dict[str, Any]:
        said, settings = self.said, self._settings
        added = {"tokens": said.tokens, "added": said.added, "special": sorted(said.special)}
        return super().kept() | {"sentencepiece": {"family": said.family, "settings": settings, **added}}

    def encode_all(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, special: bool = True
    ) -> list[Encoded]:
        for text in (*texts, *(pairs or ())):
            if not isinstance(text, str) or not _is_whole(text):
                raise DataError("a text is no string, or holds a lone surrogate, which is half a character")
        cuts = self._cut([*texts, *(pairs or ())])
        if pairs is None:
            return [self._framed([each], special) for each in cuts]
        return [self._framed([a, b], special) for a, b in zip(cuts[: len(texts)], cuts[len(texts) :], strict=True)]

    def _cut(self, texts: Sequence[str]) -> list[list[Cut]]:
        """The pieces of texts, where special tokens in them are pieces of their own."""
        parts = [self._parts(text) for text in texts]
        plain = [(text, self._always or start == 0) for row in parts for start, text, known in row if not known]
        cuts = iter(self.cutter.cut_all(plain))
        made = []
        for row in parts:
            found: list[Cut] = []
            for start, text, known in row:
                pieces = [Cut(text, 0, len(text))] if known else next(cuts)
                found += [Cut(piece, start + a, start + b) for piece, a, b in pieces]
            made.append(found)
        return made

    def _parts(self, text: str) -> list[tuple[int, str, bool]]:
        """Where each part begins, the part, and whether it is a special token."""
        place, parts = 0, []
        if code := self._code(text):
            place = len(code)
            parts.append((0, code, True))
        for match in self._split.finditer(text, place):
            parts += [(place, text[place : match.start()], False), (match.start(), match.group(), True)]
            place = match.end()
        return [part for part in [*parts, (place, text[place:], False)] if part[1]]

    def _code(self, text: str) -> str:
        """The language that a text for a model of several is to be translated to, `>>fr<<` in front of it."""
        if not self.codes or not text.startswith(">>") or (end := text.find("<<")) < 0:
            return ""
        code = text[: end + 2]
        if code not in self.codes:
            raise DataError(f"the model does not know the language {code[:40]}{nearest(code, self.codes)}")
        return code

    def _framed(self, texts: list[list[Cut]], special: bool) -> Encoded:
        made = Encoded([], [], [], [], [])
        for number, cuts in enumerate(texts):
            segment = int(self.frame.segments and number == 1)
            last = number == len(texts) - 1
            if special and (number == 0 or not self.frame.joined):
                self._extend(made, [(i, (0, 0)) for i in self.frame.before], segment, None)
            ids = [(self.ids.get(cut.piece, self.unknown or 0), (cut.start, cut.end)) for cut in cuts]
            self._extend(made, ids, segment, number)
            if special and (last or not self.frame.joined):
                self._extend(made, [(i, (0, 0)) for i in self.frame.after], segment, None)
        return made

    @staticmethod
    def _extend(made: Encoded, ids: list[tuple[int, tuple[int, int]]], segment: int, sequence: int | None) -> None:
        made.ids.extend(i for i, _ in ids)
        made.offsets.extend(span for _, span in ids)
        made.segments.extend([segment] * len(ids))
        made.special.extend([sequence is None] * len(ids))
        made.sequence.extend([sequence] * len(ids))


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def build(read: Mapping[str, bytes], said: Said) -> SentencePieceTokenizer:
    """The words of what was read. A ValueError says what is wrong, beginning with the file's name."""
    if "source.spm" in read:
        return _marian(read, said)
    name = next(name for name in SINGLE if name in read)
    cutter = _cutter(name, read)
    model = cutter.model
    tokens: dict[int, str] = dict(enumerate(model.pieces))
    extra = _extra(said) if model.model != BPE else []
    tokens |= {len(model.pieces) + number: token for number, token in enumerate(extra)}
    known = set(tokens.values())
    for token, number in said.added.items():
        if number >= MOST:
            raise ValueError(f"{name}: the added token {token[:40]!r} has the id {number:,}; {MOST:,} is too high")
        if token not in known:
            tokens[number] = token  # maybe in place of a piece that was kept for such
    ids = {token: number for number, token in tokens.items()}
    kinds = zip(model.pieces, model.kinds, strict=True)
    special = {p for p, kind in kinds if kind in (CONTROL, UNKNOWN)} | {*extra, *said.special, *said.tokens.values()}
    names = {"unknown": model.pieces[model.kinds.index(UNKNOWN)]}
    roles = said.roles(ids.get, len(ids), names)
    before = [roles["start"]] if model.model == BPE and said.flag("add_bos_token", True) else []
    after = [roles["end"]] if said.flag("add_eos_token", model.model != BPE) else []
    frame = Frame(
        [i for i in before if i is not None], [i for i in after if i is not None], segments=model.model == BPE
    )
    return SentencePieceTokenizer(read, said, cutter, ids, {token for token in special if token in ids}, frame, roles)


def _extra(said: Said) -> list[str]:
    """T5's markers of what is left out, numbered from the end."""
    count = said.settings.get("extra_ids", 100)
    return [f"<extra_id_{n}>" for n in reversed(range(count if type(count) is int and 0 <= count <= 10_000 else 100))]


def _marian(read: Mapping[str, bytes], said: Said) -> SentencePieceTokenizer:
    second = SECOND if SECOND in read and said.flag("separate_vocabs", False) else "vocab.json"
    both = []
    for name, vocabulary in (("source.spm", "vocab.json"), ("target.spm", second)):
        try:
            found = parse_json(read[vocabulary])
        except ValueError as error:
            raise ValueError(f"{vocabulary}: {error}") from None
        ids = {**found, **said.added}
        if not all(type(number) is int and 0 <= number < MOST for number in ids.values()):
            raise ValueError(f"{vocabulary}: it must give every piece a number below {MOST:,}")
        roles = replace(said, tokens={**NAMES, **said.tokens}).roles(ids.get, len(ids), {})
        if roles["unknown"] is None or roles["end"] is None:
            raise ValueError(f"{vocabulary}: it has no {'<unk>' if roles['unknown'] is None else '</s>'}")
        special = {token for token in {*NAMES.values(), *said.special, *said.tokens.values()} if token in ids}
        frame = Frame([], [roles["end"]], joined=True)
        both.append(SentencePieceTokenizer(read, said, _cutter(name, read), ids, special, frame, roles))
    both[0].trim = both[1].trim = True
    both[0].other = both[1]
    if said.longest is None:
        both[0].longest = both[1].longest = 512
    return both[0]


def _cutter(name: str, read: Mapping[str, bytes]) -> Cutter:
    try:
        return Cutter(parse(read[name]))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def spm_files(folder: Path) -> list[str]:
    """The names of the files of a folder that belong to a sentencepiece tokenizer; none where it has no such."""
    if all((folder / name).exists() for name in MARIAN):
        return [*MARIAN, *([SECOND] if (folder / SECOND).exists() else [])]
    return next(([name] for name in SINGLE if (folder / name).exists()), [])
