"""Writing: what public text-to-text models (T5, FLAN-T5, Marian) make of a text, by the words put in front of it.

A `Writer` is a `Translator` whose text ↔ ids, limits and rules are the checkpoint's own.
"""

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from clearformer.checkpoints.metadata import Metadata
from clearformer.core.model import EncoderDecoder
from clearformer.errors import CheckpointError, DataError, nearest
from clearformer.generate.options import GenerationOptions, merge
from clearformer.tasks.base import Given, own_options
from clearformer.tasks.translate import Done, OnLong, Translation, Translator
from clearformer.text.translation import TranslationCodec

if TYPE_CHECKING:
    from clearformer.text.tokenizer import PublicTokenizer

SUMMARY = 200  # tokens, where the checkpoint does not say
UNLIMITED = 2**31
NAMES = {  # those that instruction-tuned models were shown most
    "ar": "Arabic", "bg": "Bulgarian", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "es": "Spanish", "et": "Estonian", "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi",
    "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "nl": "Dutch",
    "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sv": "Swedish",
    "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


class Writer(Translator):
    """A public encoder–decoder: it translates, and where it reads instructions it also summarises and answers."""

    can: tuple[str, ...] = ("translate", "summarize", "answer")

    def __init__(self, model: EncoderDecoder, tokenizer: "PublicTokenizer", metadata: Given = None):
        metadata = Metadata.of(metadata)
        if not isinstance(model, EncoderDecoder):
            raise CheckpointError("to write from a text, a model needs an encoder and a decoder")
        self.own = own_options(metadata)
        super().__init__(model, tokenizer, metadata.longest or UNLIMITED, metadata.to or ())
        self.by_sentence = False  # unless asked for: what its own library does with a text
        self.metadata = metadata
        self.prompts: dict[str, Any] = metadata.prompts.to_dict() if metadata.prompts else {}
        self.can = self.verbs(metadata)
        self.instructed = "summarize" in self.can

    def _sides(self, tokenizer: Any) -> TranslationCodec:
        end = self.own.eos_token_id[0] if self.own.eos_token_id else None
        return TranslationCodec.of(tokenizer, start=self.own.start, end=end, pad=self.own.pad_token_id)

    @classmethod
    def verbs(cls, metadata: Metadata) -> tuple[str, ...]:
        # one that says which language it writes, and has no words to put in front, was trained for that alone
        instructed = bool(metadata.prompts) or (metadata.family not in ("marian", "pegasus") and not metadata.to)
        return cls.can if instructed else ("translate",)

    def write(
        self,
        texts: str | Sequence[str],
        *,
        options: GenerationOptions | None = None,
        prefix: str = "",
        on_long: OnLong = "error",
        done: Done | None = None,
        number: int = 0,
        **fields: Any,
    ) -> list[Translation]:
        """What the model makes of each text as it is, nothing put in front. `fields` are those of
        `GenerationOptions`; `prefix` is what every result begins with."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        asked = GenerationOptions.of(options, **fields)
        return self._all(texts, None, asked, on_long, done=done, number=number, prefix=prefix)

    def translate(self, texts: str | Sequence[str], **options: Any) -> list[Translation]:
        """As any translator; with the beam, limits and rules that the checkpoint has for translating."""
        return Translator.translate(self._made_for("translate"), texts, **options)

    def _made_for(self, verb: str) -> "Writer":
        """The same writer, with what the checkpoint says of this task alone."""
        ways = (self.metadata.ways or {}).get(verb)
        if not ways:
            return self
        made = copy(self)
        made.own = own_options(self.metadata, **ways)
        return made

    def summarize(
        self,
        texts: str | Sequence[str],
        *,
        options: GenerationOptions | None = None,
        on_long: OnLong = "error",
        done: Done | None = None,
        number: int = 0,
        **fields: Any,
    ) -> list[Translation]:
        """A summary of each text. One that is too long is an error, or split at sentence ends and its parts
        summarised one by one, or truncated, by `on_long`."""
        self._instructed("summarize")
        texts = [texts] if isinstance(texts, str) else list(texts)
        asked, made = GenerationOptions.of(options, **fields), self._made_for("summarize")
        if made.own.max_new_tokens is None and made.own.max_length is None:
            asked = merge(GenerationOptions(max_new_tokens=SUMMARY), asked)
        front = self.prompts.get("summarize", "summarize: ")
        return made._all(texts, front, asked, on_long, done=done, number=number)

    def answer(
        self,
        questions: str | Sequence[str],
        contexts: str | Sequence[str],
        *,
        on_long: OnLong = "error",
        **options: Any,
    ) -> list[Translation]:
        """An answer to each question, in the model's own words; a single context serves all questions."""
        self._instructed("answer")
        questions = [questions] if isinstance(questions, str) else list(questions)
        contexts = [contexts] * len(questions) if isinstance(contexts, str) else list(contexts)
        if len(contexts) != len(questions):
            raise DataError(
                f"{len(questions)} questions and {len(contexts)} contexts; give each its own, or one for all"
            )
        pairs = zip(questions, contexts, strict=True)
        texts = [f"question: {question.strip()}  context: {context.strip()}" for question, context in pairs]
        if on_long == "split":
            raise DataError("a context that is split has an answer in each part; give the part that matters")
        return self.write(texts, on_long=on_long, **options)

    def _instructed(self, verb: str) -> None:
        if not self.instructed:
            raise DataError(f"this model cannot {verb}: it was trained to translate and reads no instructions")

    # --- what a translator asks -----------------------------------------------------------------------------

    def language(self, to: str | None) -> str | None:
        """What to put in front of a source: a prompt, or the tag of a language that the vocabulary has one for."""
        prompts = self.prompts.get("translate") or {}
        if self.sides.languages or not self.instructed:
            return super().language(to)
        known = prompts or {code: f"translate English to {name}: " for code, name in NAMES.items()}
        if to is None and len(known) == 1:
            return next(iter(known.values()))
        if to is None:
            few = f"this model translates to {', '.join(known)}; " if prompts else ""
            raise DataError(f"{few}say which language with to, such as de")
        if to not in known:
            raise DataError(
                f"there is no prompt for {to!r}{nearest(to, known)}; write one yourself:"
                ' .write(["translate English to …: …"])'
            )
        return known[to]

    def defaults(self) -> GenerationOptions:
        """What the checkpoint says."""
        ends = GenerationOptions(eos_token_id=self.own.eos_token_id or (self.sides.end,))
        return merge(self.own, ends)

    def forced(self, prefix: str) -> list[int]:
        return self.tokenizer.target().encode(prefix, special=False).ids if prefix else []

    def source_pieces(self, source: list[int]) -> list[str]:
        return self.tokenizer.pieces(source)

    def front(self, pieces: Sequence[str]) -> int:
        fronts = [f">>{language}<<" for language in self.sides.languages]
        for each in (self.prompts.get("translate") or {}).values():
            front = self.tokenizer.pieces(self.tokenizer.encode(each.rstrip(), special=False).ids)
            if list(pieces[: len(front)]) == front:
                return len(front)
        return int(bool(pieces) and pieces[0] in fronts)
