"""What was written, looked into: the search that a task really ran, step by step, and the model run on its result.

The trace is of the whole text at once (teacher forcing): a causal model computes at each position what it computed when
that position was the last, so every step of the search is a row of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearformer.generate.engine import Engine
from clearformer.generate.options import GenerationOptions
from clearformer.generate.requests import Request, Watcher, Written

Pieces = Callable[[Sequence[int]], list[str]]


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
    ids: list[int] = field(default_factory=list)  # of the likeliest


@dataclass(frozen=True)
class Hypothesis:
    """One of the texts that were found."""

    text: str
    score: float  # the sum of its tokens' log-probabilities
    normalised: float  # score / tokens^length_penalty: what a beam ranks by
    finish: str


@dataclass(frozen=True)
class Wrote:
    """What a task wrote: `read` are the tokens that the model had before it wrote the first of `tokens`."""

    verb: str
    text: str
    score: float
    normalised: float
    finish: str  # "end", "stop", "limit", or "forced" where the text was given
    read: list[str]
    tokens: list[str]
    ids: list[int]
    logprobs: list[float]  # of `tokens`, under the model's own normaliser
    choices: list[Choice]
    tree: Node
    best: list[Hypothesis]  # all that were asked for, the best first
    options: dict[str, Any]  # how it was written: beams, draws, rules
    source: list[str] = field(default_factory=list)  # of an encoder
    forced: int = 0  # so many of `tokens` were given, and not chosen
    grid: tuple[int, int] | None = None  # rows and columns of an image's patches
    picture: str | None = None  # what the model sees of an image: a PNG as a data: URL

    def to_dict(self) -> dict[str, Any]:
        """For JSON, whose writers take only so many things inside of each other: the tree is a list, parents first."""
        return asdict(replace(self, tree=Node("", 0.0))) | {"tree": listed(self.tree)}


def listed(tree: Node) -> list[dict[str, Any]]:
    """Each node with its token's id and the place of its parent in the list; the root has neither."""
    waiting: list[tuple[int | None, int | None, Node]] = [(None, None, tree)]
    found: list[dict[str, Any]] = []
    while waiting:
        token, parent, node = waiting.pop()
        own = {"token": node.token, "score": node.score, "ended": node.ended, "chosen": node.chosen}
        found.append({"id": token, "parent": parent, **own})
        waiting += [(each, len(found) - 1, child) for each, child in node.children.items()]
    return found


@dataclass(frozen=True, eq=False)
class Found:
    """The texts of a search, best first, and all that it tried."""

    written: list[Written]
    tree: Node
    penalty: float = 0.0
    forced: int = 0  # so many tokens of each were given; scores are of the others

    def normalised(self, one: Written) -> float:
        return one.score / max(1, len(one.tokens) - self.forced) ** self.penalty


def find(
    engine: Engine,
    request: Callable[[list[int], Watcher], Request],
    pieces: Pieces,
    first: str,
    ends: Sequence[int],
    target: list[int] | None,
    goes_on: bool,
) -> Found:
    """What is written: found by a search, given as a target, or begun by it and then searched for."""
    if target is not None and not goes_on:
        return forced(target, ends, pieces, first)
    begun = target or []
    return search(engine, partial(request, begun), pieces, first, begun)


def search(
    engine: Engine, request: Callable[[Watcher], Request], pieces: Pieces, first: str, begun: Sequence[int] = ()
) -> Found:
    """Run the request and keep every hypothesis that was kept on the way; `first` stands at the root, and what a text
    was `begun` with comes next."""
    root = tree = Node(first, 0.0)
    for token, piece in zip(begun, pieces(begun), strict=True):
        tree = tree.children.setdefault(token, Node(piece, 0.0))

    def watch(tokens: list[int], score: float, ended: bool) -> None:
        node = tree
        for token in tokens[:-1]:
            node = node.children[token]
        made = Node(pieces(tokens[-1:])[0], score, ended=ended and tokens[-1] in asked.plan.ends)
        node.children.setdefault(tokens[-1], made)

    asked = request(watch)
    found = engine.run([asked])[0]
    if not tree.children:  # of a search without hypotheses, its texts
        for one in found:
            _grow(tree, one, pieces, asked.plan.ends)
    found = [one._replace(tokens=[*begun, *one.tokens]) for one in found]
    _choose(root, found[0].tokens)
    return Found(found, root, asked.plan.length_penalty if asked.plan.beams > 1 else 0.0, len(begun))


def forced(tokens: list[int], ends: Sequence[int], pieces: Pieces, first: str) -> Found:
    """A text that was given; what it scores is known when the model has run."""
    tree = Node(first, 0.0)
    one = Written(tokens, 0.0, "end" if tokens[-1:] and tokens[-1] in ends else "limit")
    _grow(tree, one, pieces, ends)
    _choose(tree, tokens)
    return Found([one], tree, forced=len(tokens))


def _grow(tree: Node, one: Written, pieces: Pieces, ends: Sequence[int]) -> None:
    node, score = tree, 0.0
    for token, gain in zip(one.tokens, one.logprobs or [0.0] * len(one.tokens), strict=True):
        score += gain
        node = node.children.setdefault(token, Node(pieces([token])[0], score, ended=token in ends))


def _choose(tree: Node, tokens: list[int]) -> None:
    node = tree
    for token in tokens:
        node = node.children[token]
        node.chosen = True


def read_of(found: Found) -> list[int]:
    """The tokens of the best text that the model is given to read: an end is only written."""
    best = found.written[0]
    return best.tokens[:-1] if best.finish == "end" else best.tokens


def told(
    verb: str,
    found: Found,
    logits: Tensor,
    before: list[str],
    pieces: Pieces,
    decode: Callable[[list[int]], str],
    options: GenerationOptions,
    top: int,
    source: Sequence[str] = (),
) -> Wrote:
    """Put together what was written with what the trace says of each step: `logits`, t v, begin with those after the
    last token `before`. What was given scores what the trace says; the rest, what the search said."""
    best = found.written[0]
    chances = logits.double().softmax(-1)
    gains = [float(chances[n, token].log()) for n, token in enumerate(best.tokens)]
    given = sum(gains[: found.forced])
    _rescore(found.tree, best.tokens[: found.forced], gains)
    texts = [
        Hypothesis(_text(one, decode), given + one.score, found.normalised(one) if one.score else given, one.finish)
        for one in found.written
    ]
    searched = list(best.logprobs) or gains[found.forced :]
    return Wrote(
        verb=verb,
        text=texts[0].text,
        score=texts[0].score,
        normalised=texts[0].normalised,
        finish="forced" if found.forced == len(best.tokens) else best.finish,
        read=before,
        tokens=pieces(best.tokens),
        ids=list(best.tokens),
        logprobs=[*gains[: found.forced], *searched],
        choices=[_choice(chances[n], token, pieces, top) for n, token in enumerate(best.tokens)],
        tree=found.tree,
        best=texts,
        options=options.to_dict(),
        source=list(source),
        forced=found.forced,
    )


def _text(one: Written, decode: Callable[[list[int]], str]) -> str:
    return decode(one.tokens[:-1] if one.finish == "end" else one.tokens)


def _rescore(tree: Node, tokens: list[int], gains: list[float]) -> None:
    """What was given gets its score, which all that follows it has besides its own."""
    node, score = tree, 0.0
    for token, gain in zip(tokens, gains, strict=False):
        node, score = node.children[token], score + gain
        node.score = score
    for child in node.children.values():
        _add(child, score)


def _add(node: Node, score: float) -> None:
    todo = [node]
    while todo:
        node = todo.pop()
        node.score += score
        todo += node.children.values()


def _choice(chances: Tensor, token: int, pieces: Pieces, top: int) -> Choice:
    best = chances.topk(min(top, len(chances)))
    ids = best.indices.tolist()
    likeliest = list(zip(pieces(ids), best.values.tolist(), strict=True))
    return Choice(pieces([token])[0], float(chances[token]), likeliest, ids)


def row(ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)])
