"""`config.json` with an account of every key: used, ignored with a reason, or held to a value.

A family asks for the keys it knows and then settles; what nobody has claimed is unknown. Faults are collected and
raised together, so that one look at the message is enough.

    config = Config(values)
    width = config.whole("hidden_size", "width of the states")
    config.must("position_embedding_type", "absolute", why="other kinds of positions are not read")
    config.settle()
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from clearformer.errors import CheckpointError, nearest

ACTIVATIONS = {  # public name → ours
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
PUBLIC_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu", "tanh": "tanh"}

_SAVED = "a note by the program that saved the file"
_OUTPUT = "what another library's calls return"
_TRAINING = "of training only"
_KERNELS = "kernels are chosen here by what fits"
_CODE = "code in a folder is never run"
_SCORES = (
    "how another library shows scores; here one label is a probability (its sigmoid), several as problem_type says"
)
IGNORED = {
    "transformers_version": _SAVED,
    "_name_or_path": _SAVED,
    "name_or_path": _SAVED,
    "_commit_hash": _SAVED,
    "_from_model_config": _SAVED,
    "finetuning_task": _SAVED,
    "language": _SAVED,
    "name": _SAVED,
    "is_composition": _SAVED,
    "unsloth_version": _SAVED,
    "unsloth_fixed": _SAVED,
    "transformers.js_config": "for another program",
    "auto_map": _CODE,
    "custom_pipelines": _CODE,
    "_auto_class": _CODE,
    "processor_class": "the preprocessing's own files say it",
    "tokenizer_class": "the tokenizer's own files say it",
    "model_max_length": "the tokenizer's own files say it",
    "prefix": "the prompts of the tasks say it",
    "torch_dtype": "the weights' own type counts",
    "dtype": "the weights' own type counts",
    "use_bfloat16": "the weights' own type counts",
    "_attn_implementation": _KERNELS,
    "_attn_implementation_autoset": _KERNELS,
    "_attn_implementation_internal": _KERNELS,
    "attn_implementation": _KERNELS,
    "_flash_attn_2_enabled": _KERNELS,
    "xla_device": _KERNELS,
    "chunk_size_feed_forward": "saves memory in another library, with the same result",
    "torchscript": _OUTPUT,
    "return_dict": _OUTPUT,
    "output_attentions": _OUTPUT,
    "_output_attentions": _OUTPUT,
    "output_hidden_states": _OUTPUT,
    "output_scores": _OUTPUT,
    "output_past": _OUTPUT,
    "use_cache": _OUTPUT,
    "keys_to_ignore_at_inference": _OUTPUT,
    "gradient_checkpointing": _TRAINING,
    "tf_legacy_loss": _TRAINING,
    "loss_type": _TRAINING,
    "sbert_ce_default_activation_function": _SCORES,
    "sentence_transformers": _SCORES,
    "eos_token_ids": "an old name; eos_token_id counts",
    "id2label": "this head has no labels",
    "problem_type": "this head has no labels",
    "label2id": "id2label says the same",
    "_num_labels": "id2label says the same",
    "num_labels": "id2label says the same",
    "task_specific_params": "another library's settings for its pipelines",
    "sep_token_id": "the tokenizer's own files say it",
    "cls_token_id": "the tokenizer's own files say it",
    "mask_token_id": "the tokenizer's own files say it",
    "unk_token_id": "the tokenizer's own files say it",
}
MUST: dict[str, tuple[Any, str]] = {  # what these say would change the numbers, and is not read
    "pruned_heads": ({}, "layers with heads taken out are not read"),
    "quantization_config": (None, "quantised weights are not read; use the full-precision checkpoint"),
    "tie_encoder_decoder": (False, "stacks that share all weights are not read"),
    "cross_attention_hidden_size": (None, "a memory of another width is not read"),
}
GENERATION = {
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id"),
    *("forced_eos_token_id", "max_length", "min_length", "max_new_tokens", "min_new_tokens", "do_sample"),
    *("early_stopping", "num_beams", "temperature", "top_k", "top_p", "min_p", "repetition_penalty"),
    *("length_penalty", "no_repeat_ngram_size", "bad_words_ids", "suppress_tokens"),
}
GENERATION_LEFT = {
    *("num_beam_groups", "diversity_penalty", "typical_p", "encoder_no_repeat_ngram_size", "num_return_sequences"),
    *("return_dict_in_generate", "remove_invalid_values", "exponential_decay_length_penalty"),
    *("begin_suppress_tokens", "renormalize_logits", "epsilon_cutoff", "eta_cutoff", "penalty_alpha"),
}

Use = Literal["used", "ignored", "must equal"]
_ABSENT: Any = object()


@dataclass(frozen=True)
class Remark:
    """What became of one key, and why."""

    key: str
    value: Any
    use: Use
    why: str

    def to_dict(self) -> dict[str, Any]:
        return {"key": self.key, "value": self.value, "use": self.use, "why": self.why}


class Config:
    """The values of one `config.json`; `names` are the tensors beside it, where they are known.

    `pooled` says that the folder describes a sentence encoder, whose head does not count; `writes` that the family
    writes texts; `own_generation` that a `generation_config.json` stands beside it. `ignore` are unknown keys that the
    caller wants to go on without, inner ones as `decoder.key`.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        *,
        names: Collection[str] | None = None,
        pooled: bool = False,
        writes: bool = False,
        own_generation: bool = False,
        ignore: Collection[str] = (),
        inside: "tuple[Config, str] | None" = None,
    ):
        self.values, self.names = dict(values), None if names is None else frozenset(names)
        self.pooled, self.writes, self.own_generation = pooled, writes, own_generation
        self.prefix = f"{inside[1]}." if inside else ""
        self.ignored: frozenset[str] = inside[0].ignored if inside else frozenset(ignore)
        self.claimed: set[str] = set()
        self.remarks: list[Remark] = inside[0].remarks if inside else []
        self.faults: list[str] = inside[0].faults if inside else []

    # --- asking -------------------------------------------------------------------------------------------

    def whole(self, key: str, why: str, usual: int | None = None, *, least: int = 1, most: int = 2**24) -> int:
        """A whole number; without a usual one it must be there."""

        def fits(value: Any) -> bool:
            return type(value) is int and least <= value <= most

        return self._ask(key, why, usual, fits, f"a whole number from {least} to {most:,}", max(least, 1))

    def maybe_whole(self, key: str, why: str, *, least: int = 1) -> int | None:
        """A whole number, or nothing."""
        if self.values.get(key) is None:
            self.claimed.add(key)
            self._note(key, "used", why)
            return None
        return self.whole(key, why, least=least)

    def number(self, key: str, why: str, usual: float) -> float:
        def fits(value: Any) -> bool:
            return isinstance(value, int | float) and not isinstance(value, bool)

        return float(self._ask(key, why, usual, fits, "a number", usual))

    def share(self, key: str, why: str, usual: float) -> float:
        """A probability, as dropouts are."""

        def fits(value: Any) -> bool:
            return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1

        return float(self._ask(key, why, usual, fits, "a number from 0 to below 1", usual))

    def flag(self, key: str, why: str, usual: bool) -> bool:
        return self._ask(key, why, usual, lambda value: isinstance(value, bool), "true or false", usual)

    def word(self, key: str, why: str, usual: str, among: Mapping[str, str]) -> Any:
        """One of the words, as we say it."""
        known = ", ".join(among)
        word = self._ask(
            key, why, usual, lambda value: isinstance(value, str) and value in among, f"one of {known}", usual
        )
        return among[word]

    def activation(self, key: str, usual: str) -> Any:
        return self.word(key, "what is between the two feed-forward matrices", usual, ACTIVATIONS)

    def value(self, key: str, why: str, usual: Any = None) -> Any:
        """Whatever is there."""
        return self._ask(key, why, usual, lambda value: True, "", usual)

    def inner(self, key: str) -> "Config":
        """A configuration within this one; its faults and remarks join ours."""
        within = self.values.get(key)
        self.claimed.add(key)
        if not isinstance(within, dict):
            self.fault(f"{key}: an object is needed, given {shown(within)}")
            within = {}
        return Config(within, inside=(self, f"{self.prefix}{key}"))

    def architecture(self, known: Mapping[str, str], guess: Callable[[Collection[str]], str]) -> str:
        """The kind of head that `architectures` names; where it is silent, what the tensors suggest."""
        given = self.values.get("architectures")
        self.claimed.add("architectures")
        if self.pooled and "base" in known.values():
            self._note("architectures", "ignored", "a sentence encoder uses the body alone")
            return "base"
        if not given:
            self._note("architectures", "used", "nothing is said, so the tensors' names decide which head there is")
            return guess(self.names or ())
        listed = given if isinstance(given, list) else [given]
        found = next((known[name] for name in listed if isinstance(name, str) and name in known), None)
        if found is None:
            self.fault(f"architectures: {shown(given)} is not read; known: {', '.join(known)}")
            return next(iter(known.values()))
        self._note("architectures", "used", "which head there is")
        return found

    def has(self, start: str) -> bool:
        """Whether a tensor's name begins so (where no tensors are known, none does)."""
        return any(name.startswith(start) for name in self.names or ())

    # --- leaving ------------------------------------------------------------------------------------------

    def ignore(self, why: str, *keys: str) -> None:
        for key in keys:
            self.claimed.add(key)
            self._note(key, "ignored", why)

    def must(self, key: str, *allowed: Any, why: str) -> None:
        """The key may be absent or hold one of these."""
        self.claimed.add(key)
        if key not in self.values:
            return
        if not any(type(self.values[key]) is type(one) and self.values[key] == one for one in allowed):
            fits = " or ".join(shown(one) for one in allowed)
            self.fault(f"{key}: {shown(self.values[key])} given, only {fits} is read: {why}")
        self._note(key, "must equal", why)

    def fault(self, text: str) -> None:
        self.faults.append(self.prefix + text)

    def settle(self) -> None:
        """Account for what is left, and raise all faults together."""
        read = {key for key in self.claimed & self.values.keys() if self.prefix + key in self.ignored}
        for key in sorted(read):
            self.fault(f"{key}: it is known, and cannot be ignored")
        for key in [key for key in self.values if key not in self.claimed]:
            self._leave(key)
        if self.faults and not self.prefix:
            raise CheckpointError("config.json cannot be read:\n" + "\n".join(f"  {fault}" for fault in self.faults))

    def _leave(self, key: str) -> None:
        if key in IGNORED or key in ("architectures", "model_type"):
            self.ignore(IGNORED.get(key, "said once, outside"), key)
        elif key in MUST:
            self.must(key, MUST[key][0], why=MUST[key][1])
        elif key in GENERATION and self.writes and not self.own_generation:
            self.claimed.add(key)
            self._note(key, "used", "how texts are written")
        elif key in GENERATION | GENERATION_LEFT:
            self.ignore(self._why_not_generation(key), key)
        elif key.startswith("_"):
            self.ignore("a private note of the program that saved the file", key)
        elif self.prefix + key in self.ignored:
            self.ignore("unknown, and ignored as the caller asked", key)
        else:
            known = {*self.claimed, *IGNORED, *MUST, *GENERATION, *GENERATION_LEFT}
            close = nearest(key, known)
            name = self.prefix + key
            self.fault(
                f"{key}: unknown, and it may change what the model computes{close}"
                f" (to go on without it: --ignore {name}, or load(..., ignore=[{name!r}]))"
            )

    def _why_not_generation(self, key: str) -> str:
        if self.prefix:
            return "the outer configuration counts"
        if not self.writes:
            return "this model writes no texts"
        return "generation_config.json counts" if key in GENERATION else "another way of writing texts, without effect"

    # --- within -------------------------------------------------------------------------------------------

    def _ask(self, key: str, why: str, usual: Any, fits: Callable[[Any], bool], needed: str, instead: Any) -> Any:
        self.claimed.add(key)
        value = self.values.get(key, _ABSENT)
        if value is _ABSENT or (value is None and usual is not None):
            if usual is None and needed:
                self.fault(f"{key}: missing; {needed} is needed: {why}")
                return instead
            if value is None:
                self._note(key, "used", why)
            return usual
        if not fits(value):
            self.fault(f"{key}: {needed} is needed ({why}), given {shown(value)}")
            return instead
        self._note(key, "used", why)
        return value

    def _note(self, key: str, use: Use, why: str) -> None:
        if key in self.values:
            self.remarks.append(Remark(self.prefix + key, self.values[key], use, why))


def shown(value: Any) -> str:
    """A value for a message, in JSON's words and short."""
    import json

    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 80 else text[:79] + "…"
