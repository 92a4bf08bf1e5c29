"""One translation, looked into: tokens, where it looked, what else it might have said, and what the beam tried."""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from clearformer.errors import DataError
from clearformer.explain.trace import Trace, trace
from clearformer.generate.options import GenerationOptions, merge
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


def explain(
    translator: Translator,
    text: str,
    *,
    to: str | None = None,
    top: int = 5,
    options: GenerationOptions | None = None,
    **fields: Any,
) -> Explanation:
    """Translate one text, with the very search that `translate` runs, and keep everything; every number is at its
    address in `.trace`. `fields` are those of `GenerationOptions`."""
    if not text.strip():
        raise DataError("there is nothing to explain in an empty text")
    tokenizer, model = translator.sides, translator.model
    source = tokenizer.encode(text, translator.language(to))
    if len(source) > translator.longest:
        raise DataError(
            f"the text has {len(source)} tokens, and the longest this model was trained on had {translator.longest}"
        )
    tree = Node(tokenizer.pieces([tokenizer.start])[0], 0.0)

    def watch(tokens: list[int], score: float, ended: bool) -> None:
        node = tree
        for token in tokens[:-1]:
            node = node.children[token]
        made = Node(tokenizer.pieces(tokens[-1:])[0], score, ended=ended and tokens[-1] == tokenizer.end)
        node.children.setdefault(tokens[-1], made)

    asked = merge(translator.defaults(), GenerationOptions.of(options, **fields))
    found = translator.engine.run([translator.request(source, asked, watch=watch)])[0][0]
    if not tree.children:  # of a search without hypotheses, the one text
        node, score = tree, 0.0
        for token, gain in zip(found.tokens, found.logprobs, strict=True):
            score += gain
            node.children[token] = Node(tokenizer.pieces([token])[0], score, ended=token == tokenizer.end)
            node = node.children[token]
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
