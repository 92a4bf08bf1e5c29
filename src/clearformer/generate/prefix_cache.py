"""Prompts that were read are not read again: a trie from token ids to the cells that hold their keys and values.

An edge of the trie is a run of tokens. A node that a request stands on is kept; others go when their cells are
needed, the longest unused first, from the leaves on. A hit gives the same bits as a miss: they are the same keys.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Node:
    def __init__(self, tokens: Array, cells: Array, parent: "Node | None"):
        self.tokens, self.cells, self.parent = tokens, cells, parent
        self.children: dict[int, Node] = {}
        self.users = 0  # requests that stand on it
        self.used = 0  # when, in turns of the clock


class PrefixCache:
    def __init__(self) -> None:
        nothing = np.zeros(0, dtype=np.int64)
        self.root = Node(nothing, nothing.astype(np.int32), None)
        self.clock = 0
        self.size = 0  # cells
        self.queries = self.hits = 0  # tokens that were looked for, and found

    def match(self, tokens: Sequence[int] | Array) -> tuple[Array, Node]:
        """The cells of the longest beginning that is known, and the node to stand on; `leave` it when done."""
        wanted = np.asarray(tokens, dtype=np.int64)
        node, found = self._walk(wanted)
        self.queries, self.hits = self.queries + len(wanted), self.hits + found
        return self._cells(node), self._stand(node)

    def insert(self, tokens: Sequence[int] | Array, cells: Array, node: Node) -> tuple[Array, Node]:
        """Keep the cells of these tokens: those that the cache had not, which are its own now, and the node to stand on
        instead of the one before."""
        wanted = np.asarray(tokens, dtype=np.int64)
        deepest, found = self._walk(wanted)
        kept = cells[found:].copy()
        if len(kept):
            child = Node(wanted[found:].copy(), kept, deepest)
            deepest.children[int(wanted[found])] = child
            deepest, self.size = child, self.size + len(kept)
        self.leave(node)
        return kept, self._stand(deepest)

    def leave(self, node: Node) -> None:
        node.users -= 1

    def evict(self, count: int) -> Array:
        """At least so many cells, if there are as many that no one needs."""
        freed: list[Array] = []
        while count > 0:
            leaves = [
                node for node in self._nodes() if not node.children and not node.users and node.parent is not None
            ]
            if not leaves:
                break
            node = min(leaves, key=lambda each: each.used)
            assert node.parent is not None
            del node.parent.children[int(node.tokens[0])]
            freed.append(node.cells)
            count, self.size = count - len(node.cells), self.size - len(node.cells)
        return np.concatenate(freed) if freed else np.zeros(0, dtype=np.int32)

    def _walk(self, tokens: Array) -> tuple[Node, int]:
        """The node at the end of the longest known beginning, split off where it ends within a run."""
        node, at = self.root, 0
        while at < len(tokens) and (child := node.children.get(int(tokens[at]))) is not None:
            run = child.tokens
            length = min(len(run), len(tokens) - at)
            same = run[:length] == tokens[at : at + length]
            matched = length if same.all() else int(np.argmin(same))
            if matched < len(run):
                child = self._split(child, matched)
                return child, at + matched
            node, at = child, at + matched
        return node, at

    def _split(self, node: Node, at: int) -> Node:
        """The first `at` tokens of a node as a node of their own, above the rest."""
        assert node.parent is not None
        upper = Node(node.tokens[:at], node.cells[:at], node.parent)
        node.parent.children[int(node.tokens[0])] = upper
        node.tokens, node.cells, node.parent = node.tokens[at:], node.cells[at:], upper
        upper.children[int(node.tokens[0])] = node
        upper.used = node.used
        return upper

    def _stand(self, node: Node) -> Node:
        self.clock += 1
        node.users += 1
        each: Node | None = node
        while each is not None:
            each.used, each = self.clock, each.parent
        return node

    def _cells(self, node: Node) -> Array:
        parts = []
        while node.parent is not None:
            parts.append(node.cells)
            node = node.parent
        return np.concatenate(parts[::-1]) if parts else np.zeros(0, dtype=np.int32)

    def _nodes(self) -> list[Node]:
        found, open_nodes = [], [self.root]
        while open_nodes:
            node = open_nodes.pop()
            found.append(node)
            open_nodes += node.children.values()
        return found
