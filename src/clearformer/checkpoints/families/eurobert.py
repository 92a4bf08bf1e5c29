"""EuroBERT (Boizard et al. 2025), `model_type` eurobert: Llama's blocks, where all see all.

Classes are told from the mean of all states. A classifier, a tagger or a sentence encoder that is trained here is one.
"""

from collections.abc import Collection
from typing import Any, Literal

from clearformer import spec
from clearformer.checkpoints.config import Config, shown
from clearformer.checkpoints.families import llama
from clearformer.checkpoints.families.common import UNUSED, Family, architecture_of, count_labels, without_base
from clearformer.checkpoints.name_map import Row, Rules

KINDS = {
    "EuroBertModel": "base",
    "EuroBertForSequenceClassification": "classes",
    "EuroBertForTokenClassification": "tokens",
}
POOLS: dict[str, Literal["mean", "first"]] = {"mean": "mean", "bos": "first"}
KIND = llama.Kind("eurobert", "EuroBert", bias=None, inner_bias=True, causal=False, eps=1e-5)


def guess(names: Collection[str]) -> str:
    """The head, by the tensors alone."""
    if "classifier.weight" not in names:
        return "base"
    return "classes" if "dense.weight" in names else "tokens"


def read(config: Config) -> spec.Transformer:
    kind = config.architecture(KINDS, guess)
    classes = count_labels(config) if kind != "base" else 0
    pool = config.value("classifier_pooling", "what classes are told from", "late")
    if kind == "classes" and pool not in POOLS:
        config.fault(f"classifier_pooling: {shown(pool)} is not read; known: {', '.join(POOLS)}")
    config.ignore("this head has no table", "tie_word_embeddings")
    config.must("clip_qkv", None, why="values are not cut")
    stack = llama.read_stack(config, KIND)
    head: spec.Head = spec.States()
    if kind == "classes":
        head = spec.Classes(count=classes, vector=spec.Vector(pool=POOLS[pool], dense="gelu"))
    elif kind == "tokens":
        head = spec.TokenClasses(count=classes)
    return spec.Transformer(stack=stack(), head=head)


def write(what: spec.Transformer) -> dict[str, Any]:
    pool: str = what.head.vector.pool if isinstance(what.head, spec.Classes) else "mean"
    return {
        **llama.writer(KIND)(what),
        "architectures": [architecture_of(what.head, KINDS)],
        "classifier_pooling": {ours: public for public, ours in POOLS.items()}[pool],  # type: ignore[index]
        "pad_token_id": None,  # the library's own would be that of another vocabulary
    }


HEADS = {
    "states": [],
    "classes": [Row("head.vector.dense", "dense"), Row("head.output", "classifier")],
    "token_classes": [Row("head.output", "classifier")],
}


def rules(what: spec.Transformer) -> Rules:
    rows = [row for row in llama.ROWS if not row.ours.startswith("head.")]
    like = llama.rules(what)
    left = like.left
    if isinstance(what.head, spec.States):
        left = left | {r"(lm_head|dense|classifier)\..*": UNUSED}
    return Rules(without_base([*rows, *HEADS[what.head.kind]], "model.", what.head), base=like.base, left=left)


EUROBERT = Family("eurobert", read, write, rules)
