"""Texts that must fit: a JSON schema, or one of several tools, as a mask over the next token (llguidance).

Nothing is let through that does not fit: a schema that cannot be compiled is refused before a token is written, and a
mask that cannot be made ends the text with an error.
"""

import json
import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from clearformer.errors import DataError
from clearformer.serve.errors import ApiError

Array = np.ndarray[Any, Any]
# as Python writes JSON, which is what models have seen most; free whitespace would let a model write it for ever
WRITTEN = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
STRICT = {"lenient": False, "coerce_one_of": False}  # a keyword that it does not know is an error
OPEN = {"additionalProperties", "unevaluatedProperties", "patternProperties", "anyOf", "oneOf", "$ref", "if", "not"}
_words: "WeakKeyDictionary[Any, Any]" = WeakKeyDictionary()
_lock = threading.Lock()


def library() -> Any:
    """llguidance, or an error that says how to get it."""
    try:
        import llguidance
    except ImportError:
        raise ApiError(
            501, "response formats and tools need llguidance: pip install 'clearformer[grammar]'",
            kind="not_implemented_error", code="no_grammar",
        ) from None  # fmt: skip
    return llguidance


class Grammar:
    """What texts of one model may be."""

    def __init__(self, task: Any, rules: str, param: str):
        self.ends, self.vocabulary = tuple(task.own.eos_token_id or ()), task.engine.vocabulary
        made = library().LLMatcher(_tokenizer(task, self.ends, self.vocabulary), rules, log_level=0)
        if made.is_error():
            reason = made.get_error().splitlines()[0][:300] if made.get_error() else "it cannot be met"
            raise ApiError(400, f"this schema cannot be used: {reason}", param=param, code="invalid_schema")
        self.root = made

    def hooks(self) -> dict[str, Any]:
        """For one request to an engine."""
        follower = Follower(self)
        return {"allowed": follower.allowed, "stop": follower.stop}


class Follower:
    """The texts of one request and how far each has come in the grammar."""

    def __init__(self, grammar: Grammar):
        self.grammar = grammar
        self.at: dict[tuple[int, ...], Any] = {}  # of every text that grows, what follows it

    def allowed(self, tokens: Sequence[int]) -> Array:
        """The tokens that may come next."""
        matcher = self._follow(tuple(tokens))
        if matcher.is_stopped():  # nothing but an end
            return np.array(self.grammar.ends, dtype=np.int64)
        bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        self._check(matcher)
        return np.flatnonzero(np.unpackbits(bits, bitorder="little")[: self.grammar.vocabulary])

    def stop(self, tokens: Sequence[int]) -> bool:
        """Whether nothing can follow: a text need not wait for an end then."""
        return bool(self._follow(tuple(tokens)).is_stopped())

    def _follow(self, tokens: tuple[int, ...]) -> Any:
        if (found := self.at.get(tokens)) is None:
            found = self.at.pop(tokens[:-1], None) if tokens else None
            left = tokens[-1:]
            if found is None:  # the first, or one whose beginning was another's too
                found, left = self.grammar.root.deep_copy(), tokens
            if left:
                found.consume_tokens(list(left))
            self._check(found)
            self.at[tokens] = found
        return found

    def _check(self, matcher: Any) -> None:
        if matcher.is_error():
            raise DataError(f"the text could not be kept to its schema: {matcher.get_error().splitlines()[0][:200]}")


def closed(schema: Any) -> Any:
    """The same schema, whose objects have no properties but those it names, unless it says that they may have others.
    What fits it fits the one that was given; a model that is free to make up properties may do so for ever."""
    try:
        return schema if '"allOf"' in json.dumps(schema) else _closed(schema)  # parts of one object know not each other
    except RecursionError:
        return schema  # for the library to refuse


def _closed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    for key in ("properties", "$defs", "definitions"):
        if isinstance(inner := schema.get(key), dict):
            made[key] = {name: _closed(each) for name, each in inner.items()}
    for key in ("anyOf", "oneOf", "prefixItems"):
        if isinstance(several := schema.get(key), list):
            made[key] = [_closed(each) for each in several]
    if isinstance(schema.get("items"), dict):
        made["items"] = _closed(schema["items"])
    if isinstance(schema.get("properties"), dict) and not OPEN & set(schema):
        made["additionalProperties"] = False
    return made


def of_schema(schema: Any, param: str = "response_format") -> str:
    """Rules for a JSON value that a schema describes."""
    schema = closed(schema)
    try:
        return str(library().LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={**WRITTEN, **STRICT}))
    except (ValueError, RecursionError) as error:
        raise ApiError(
            400, f"this schema cannot be used: {str(error)[:300]}", param=param, code="invalid_schema"
        ) from None


def text_or(schema: Any) -> str:
    """Rules for a JSON value, or a text that does not begin as one."""
    written = json.dumps({**closed(schema), "x-guidance": {**WRITTEN, **STRICT}})
    return str(
        library().LLMatcher.grammar_from_lark(f"start: call | text\ntext: /([^{{](.|\\n)*)?/\ncall: %json {written}\n")
    )


def _tokenizer(task: Any, ends: tuple[int, ...], vocabulary: int) -> Any:
    """The vocabulary as the library wants it, made once a model."""
    with _lock:
        if (found := _words.get(task.tokenizer)) is None:
            try:
                found = library().LLTokenizer(
                    task.tokenizer.engine.to_str(), n_vocab=vocabulary, eos_token=list(ends) or None
                )
            except (ValueError, RuntimeError) as error:
                raise ApiError(
                    501, f"this model's tokenizer cannot be used with a grammar: {str(error)[:200]}",
                    kind="not_implemented_error", code="no_grammar",
                ) from None  # fmt: skip
            _words[task.tokenizer] = found
        return found
