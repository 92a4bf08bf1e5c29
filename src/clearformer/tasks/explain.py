"""One translation, looked into: tokens, where it looked, what else it might have said, and what the beam tried."""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from clearformer.errors import DataError
from clearformer.explain.trace import Trace, trace
from clearformer.generate.search import beam
from clearformer.tasks.translate import Translator


@dataclass
class Node:
    """A hypothesis of the beam search: one token more than its parent's."""

    token: str
    score: float  # of the whole hypothesis
    ended: bool = False
    chosen: bool = False
    children: dict[int, "Node"] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """One step of the decoder: what it chose and the likeliest tokens with their probabilities."""

    chosen: str
    probability: float
    likeliest: list[tuple[str, float]]


@dataclass(frozen=True)
class Explanation:
    text: str
    score: float
    source: list[str]  # tokens, as the encoder saw them
    target: list[str]  # tokens, as the decoder saw them: the start, then what it had chosen
    choices: list[Choice]
    tree: Node
    trace: Trace

    def to_dict(self) -> dict[str, Any]:
        """For JSON: all but the trace, whose numbers are asked for by their addresses."""
        parts = {"choices": [asdict(choice) for choice in self.choices], "tree": asdict(self.tree)}
        return {name: value for name, value in vars(self).items() if name != "trace"} | parts


def explain(translator: Translator, text: str, *, to: str | None = None, size: int = 4, top: int = 5) -> Explanation:
    """Translate one text and keep everything; every number is at its address in `.trace`."""
    if not text.strip():
        raise DataError("there is nothing to explain in an empty text")
    tokenizer, model = translator.sides, translator.model
    source = tokenizer.encode(text, translator.language(to))
    if len(source) > translator.longest:
        raise DataError(
            f"the text has {len(source)} tokens, and the longest this model was trained on had {translator.longest}"
        )
    tree = Node(tokenizer.pieces([tokenizer.start])[0], 0.0)

    def watch(row: int, step: int, tokens: list[int], score: float) -> None:
        node = tree
        for token in tokens[:-1]:
            node = node.children[token]
        made = Node(tokenizer.pieces(tokens[-1:])[0], score, ended=tokens[-1] == tokenizer.end)
        node.children.setdefault(tokens[-1], made)

    ways: dict[str, Any] = {
        "limit": translator.limit(len(source)),
        "end": tokenizer.end,
        "length_penalty": translator.length_penalty,
        "controls": translator.controls(),
    }
    prompt, given = torch.tensor([[tokenizer.start]]), torch.tensor([source])
    found = beam(model, prompt, source=given, size=size, watch=watch, **ways)[0][0]
    node = tree
    for token in found.tokens:
        node = node.children[token]
        node.chosen = True
    target = [tokenizer.start, *(found.tokens[:-1] if found.finish == "end" else found.tokens)]
    words = {"source": tokenizer.pieces(source), "target": tokenizer.pieces(target)}
    seen = trace(model, torch.tensor([source]), torch.tensor([target]), words=words)
    chances = seen["head.logits"].values.reshape(len(target), -1).double().softmax(-1)
    choices = [_choice(translator, chances[step], token, top) for step, token in enumerate(found.tokens)]
    output = tokenizer.decode(target[1:])
    return Explanation(output, found.score, words["source"], words["target"], choices, tree, seen)


def _choice(translator: Translator, chances: Any, token: int, top: int) -> Choice:
    best = chances.topk(min(top, len(chances)))
    pieces = translator.sides.pieces(best.indices.tolist())
    likeliest = list(zip(pieces, best.values.tolist(), strict=True))
    return Choice(translator.sides.pieces([token])[0], float(chances[token]), likeliest)
