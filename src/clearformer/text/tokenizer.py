"""Text ↔ ids as a model's own checkpoint has it: public tokenizers of all kinds, and our learned one, behind one face.

Nothing is ever cut or padded here: what a file says about truncation is switched off. Special tokens that stand in
a text (`[MASK]`, `</s>`) are read as such in public tokenizers, as elsewhere, and as plain characters in ours.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Encoding, models, processors
from tokenizers import Tokenizer as Engine

from clearformer.errors import CheckpointError, DataError
from clearformer.text.learn import END, START, LearnedTokenizer
from clearformer.text.protocol import Encoded
from clearformer.text.special_tokens import KEYS

if TYPE_CHECKING:
    from clearformer.text.detokenize import Stream

OURS = "words.json"
MASK = "<mask>"
FAST = ("PreTrainedTokenizerFast", "TokenizersBackend")  # transformers' classes of a tokenizer.json of any kind
CLEANED = {" .": ".", " ?": "?", " !": "!", " ,": ",", " ' ": "'", " n't": "n't"} | {
    f" {tail}": tail for tail in ("'m", "'s", "'ve", "'re")
}


class PublicTokenizer:
    """Raw text in, ids out, and back, as public checkpoints have it; the ids of the roles are attributes."""

    pad: int | None
    start: int | None
    end: int | None
    unknown: int | None
    mask: int | None
    separator: int | None
    first: int | None

    def __init__(
        self,
        engine: Engine,
        roles: Mapping[str, int | None],
        *,
        longest: int | None = None,
        chat_template: str | None = None,
        clean: bool = False,
        plain: bool = False,
    ):
        engine.no_truncation()
        engine.no_padding()
        engine.encode_special_tokens = plain
        self.engine, self.longest, self.chat_template = engine, longest, chat_template
        self.clean, self.plain, self.trim = clean, plain, False
        for role in KEYS:
            setattr(self, role, roles.get(role))
        added = engine.get_added_tokens_decoder()
        self.special = {number for number, token in added.items() if token.special}
        # words that are looked up whole would find "</s>" in a text even where it is to be read as characters
        self._barred = set(added) if plain and isinstance(engine.model, models.WordLevel) else set()
        self._size = 1 + max(engine.get_vocab().values(), default=-1)

    @property
    def roles(self) -> dict[str, int | None]:
        return {role: getattr(self, role) for role in KEYS}

    def __len__(self) -> int:
        """One more than the highest id; some ids below may have no token."""
        return self._size

    def token(self, number: int) -> str | None:
        return self.engine.id_to_token(number) if 0 <= number < 2**32 else None

    def encode(self, text: str, pair: str | None = None, *, special: bool = True) -> Encoded:
        """Ids of a text, or of two, in the checkpoint's template; without its special tokens if `special` is off."""
        return self.encode_all([text], None if pair is None else [pair], special=special)[0]

    def encode_all(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, special: bool = True
    ) -> list[Encoded]:
        inputs: list[Any] = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        with working():
            if len(inputs) == 1:  # without the cost of sharing work out
                found = [self.engine.encode(texts[0], pairs and pairs[0], add_special_tokens=special)]
            else:
                found = self.engine.encode_batch(inputs, add_special_tokens=special)
        return [self._encoded(encoding) for encoding in found]

    def ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        return [each.ids for each in self.encode_all(texts)]

    def _encoded(self, found: Encoding) -> Encoded:
        ids, sequence = found.ids, found.sequence_ids
        if self._barred and self.unknown is not None:
            pairs = zip(ids, sequence, strict=True)
            ids = [self.unknown if i in self._barred and s is not None else i for i, s in pairs]
        return Encoded(ids, found.type_ids, found.offsets, [s is None for s in sequence], sequence)

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of ids; special tokens are left out unless asked for. Ids without a token say nothing."""
        text = self.cleaned(self.raw(self.spoken(ids, special=special)))
        return text.strip() if self.trim else text

    def spoken(self, ids: Iterable[int], *, special: bool = False) -> list[int]:
        """Those ids that `decode` gives text for."""
        known = [i for i in map(int, ids) if self.token(i) is not None]
        return known if special else [i for i in known if i not in self.special]

    def raw(self, ids: list[int]) -> str:
        with working():
            return self.engine.decode(ids, skip_special_tokens=False)

    def cleaned(self, text: str) -> str:
        """Spaces before punctuation taken out, where the checkpoint asks for that."""
        for written, wanted in CLEANED.items() if self.clean else ():
            text = text.replace(written, wanted)
        return text

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The tokens themselves, for people to look at."""
        return [self.token(i) or f"<{i}>" for i in map(int, ids)]

    def stream(self) -> "Stream":
        """Decoding one id at a time: the text as far as it is certain."""
        from clearformer.text.detokenize import Stream

        return Stream(self)

    def chat(
        self, messages: Sequence[Mapping[str, Any]], *, answer: bool = True, tools: Sequence[Any] | None = None
    ) -> str:
        """Messages (`role`, `content`) as the one text the model was taught; `answer` opens the model's turn, and
        `tools` are functions that it may call, for templates that tell of them."""
        from clearformer.text.chat import render

        if self.chat_template is None:
            raise DataError("this model has no chat template; give plain text instead")
        names = {key: self.pieces([i])[0] for role, key in KEYS.items() if (i := getattr(self, role)) is not None}
        return render(self.chat_template, messages, answer=answer, names=names, tools=tools)

    def target(self) -> "PublicTokenizer":
        """The vocabulary of what the model writes, where that differs from what it reads; itself elsewhere."""
        return self

    def check(self, rows: int, where: str | Path) -> None:
        """Raise unless every id has its row in the model's table of `rows` embeddings."""
        highest = max(len(self) - 1, *self.encode("", "").ids, -1)
        if highest >= rows:
            raise CheckpointError(
                f"{where}: the tokenizer gives ids up to {highest:,}, but the model has embeddings for {rows:,} tokens;"
                " the tokenizer is another model's"
            )

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and `words.json`, from which `load` gives the same again."""
        for name, content in {**self.files(), OURS: json.dumps(self.kept(), indent=1, ensure_ascii=False)}.items():
            write(Path(folder) / name, content)

    def save_public(self, folder: Path, **settings: Any) -> None:
        """Write the files that other libraries read: `tokenizer.json` (or those it came from) and its settings, to
        which `settings` are added."""
        text = json.dumps(self.public_settings() | settings, indent=1)
        for name, content in {**self.files(), "tokenizer_config.json": text}.items():
            write(Path(folder) / name, content)

    def public_settings(self) -> dict[str, Any]:
        """`tokenizer_config.json`, as transformers reads it."""
        made: dict[str, Any] = {"tokenizer_class": FAST[0]}
        made |= {key: self.pieces([i])[0] for role, key in KEYS.items() if (i := getattr(self, role)) is not None}
        made["clean_up_tokenization_spaces"] = self.clean
        made["split_special_tokens"] = self.plain
        inputs = ["input_ids", "attention_mask"]
        if self.first is not None and 1 in self.encode("a", "b").segments:
            inputs.append("token_type_ids")
        made["model_input_names"] = inputs
        made |= {} if self.longest is None else {"model_max_length": self.longest}
        return made | ({} if self.chat_template is None else {"chat_template": self.chat_template})

    def files(self) -> dict[str, str | bytes]:
        return {"tokenizer.json": self.engine.to_str(pretty=True)}

    def kept(self) -> dict[str, Any]:
        """What the tokenizer's own files do not hold."""
        kept = {"roles": self.roles, "longest": self.longest, "chat_template": self.chat_template}
        return kept | {"clean": self.clean, "plain": self.plain}

    @classmethod
    def load(cls, folder: Path) -> "PublicTokenizer":
        """The tokenizer of a model folder, ours or a public one."""
        from clearformer.text.load import load

        return load(Path(folder))

    @classmethod
    def of(
        cls, tokenizer: LearnedTokenizer, *, start: bool = True, longest: int | None = None, tags: bool = False
    ) -> "PublicTokenizer":
        """Our learned tokenizer, with the template `<s> text </s>`, or `text </s>` without a start. `tags`: the tokens
        of languages are written as others write them, `>>de<<`, and read in texts."""
        content = json.loads(tokenizer.to_json())
        tags = tags and bool(tokenizer.languages)
        if tags:
            _rename(content, {f"<2{language}>": f">>{language}<<" for language in tokenizer.languages})
        if any(token["content"] == MASK for token in content["added_tokens"]):
            _mask_words(content)
        engine = Engine.from_str(json.dumps(content))
        first = f"{START}:0 " if start else ""
        ids = [(START, tokenizer.start), (END, tokenizer.end)]
        engine.post_processor = processors.TemplateProcessing(
            single=f"{first}$A:0 {END}:0", pair=f"{first}$A:0 {END}:0 $B:1 {END}:1", special_tokens=ids
        )
        roles = {"pad": tokenizer.pad, "start": tokenizer.start, "end": tokenizer.end, "unknown": tokenizer.unknown}
        return cls(engine, roles | {"mask": engine.token_to_id(MASK)}, longest=longest, plain=not tags)

    def without_end(self) -> "PublicTokenizer":
        """The same with a template that does not end a text, which is to go on."""
        found = self.encode("a")
        if self.end is None or not (found.special[-1] and found.ids[-1] == self.end):
            return self
        content = json.loads(self.engine.to_str())
        template = content["post_processor"]
        end = self.pieces([self.end])[0]
        if template.get("type") != "TemplateProcessing":
            return self
        for key in ("single", "pair"):
            template[key] = [one for one in template[key] if one.get("SpecialToken", {}).get("id") != end]
        made = PublicTokenizer(
            Engine.from_str(json.dumps(content)),
            self.roles,
            longest=self.longest,
            chat_template=self.chat_template,
            clean=self.clean,
            plain=self.plain,
        )
        made.trim = self.trim
        return made


def _mask_words(content: dict[str, Any]) -> None:
    """Let a mask stand for a word and the space before it, as words are masked in training: what is behind it goes on
    without a space of its own, for only the beginning of a text is given one."""
    for token in content["added_tokens"]:
        token["lstrip"] = token["lstrip"] or token["content"] == MASK
    steps = (content["normalizer"] or {}).get("normalizers", [])
    if any(step["type"] == "Prepend" for step in steps):
        content["normalizer"]["normalizers"] = [step for step in steps if step["type"] != "Prepend"]
        content["pre_tokenizer"]["pretokenizers"][0]["prepend_scheme"] = "first"


def _rename(content: dict[str, Any], names: Mapping[str, str]) -> None:
    """Give tokens of a `tokenizer.json` other names; a space behind one that stands in a text belongs to it."""
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, dict):
        content["model"]["vocab"] = {names.get(token, token): number for token, number in vocabulary.items()}
    else:
        content["model"]["vocab"] = [[names.get(token, token), score] for token, score in vocabulary]
    for token in content["added_tokens"]:
        if token["content"] in names:
            token |= {"content": names[token["content"]], "rstrip": True}


@contextmanager
def working() -> Iterator[None]:
    """What the library raises, in our words: texts that are none, and tokenizers that fail on a text."""
    try:
        yield
    except (TypeError, UnicodeError):
        raise DataError("a text is no string, or holds a lone surrogate, which is half a character") from None
    except BaseException as error:
        if type(error) is Exception or type(error).__name__ == "PanicException":
            raise CheckpointError(f"the model's tokenizer fails on a text: {str(error)[:200]}") from None
        raise


def write(path: Path, content: str | bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror}") from None
