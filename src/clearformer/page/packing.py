"""Tensors as few bytes, exactly: `assets/unpack.js` makes the same bits of them again.

A tensor is kept as its bytes (`at`), or made of others that are kept: it is the `same`, their `sum`, the heads of each
position side by side (`turned`), what is above zero (`relu`), or nearly a `norm`, the `scores` or the `mixed` values,
computed in double precision, one number after the other, plus the few steps (`by`) by which each float32 is off.
"""

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from clearformer.explain.cell import Normed
from clearformer.explain.tape import Record

if TYPE_CHECKING:
    from clearformer.explain.trace import Trace

Array = np.ndarray[Any, Any]
Made = dict[str, Any]


class Packer:
    """Tensors of a trace, one after the other, in a blob of so many bytes at most."""

    def __init__(self, trace: "Trace", room: int):
        self.trace, self.room = trace, room
        self.parts: list[bytes] = []
        self.size = 0
        self.kept: dict[str, Made] = {}
        self.known: dict[bytes, str] = {}  # numbers → the first that has them

    def add(self, content: bytes) -> list[int]:
        """Where bytes are: from and to."""
        self.parts.append(content)
        self.size += len(content)
        return [self.size - len(content), self.size]

    def keep(self, name: str) -> bool:
        """Whether there was room for it."""
        values = self._numbers(name)
        raw = values.tobytes()
        if name in self.kept:
            return True
        if raw in self.known:
            self.kept[name] = {"same": self.known[raw], "shape": list(values.shape)}
            return True
        made, content = self._smallest(name, values)
        if content is not None:
            if self.size + len(content) > self.room:
                return False
            made["by" if made else "at"] = self.add(content)
        self.kept[name] = {**made, "shape": list(values.shape)}
        self.known[raw] = name
        return True

    def _smallest(self, name: str, values: Array) -> tuple[Made, bytes | None]:
        """How it is made, and the bytes that takes."""
        plain = deflated(values)
        found = self._of_others(name)
        if found is None or found[1].shape != values.shape:
            return {}, plain
        made, near = found
        near = near.astype("<f4")
        if near.tobytes() == values.tobytes():
            return made, None
        if not _is_near(made):
            return {}, plain
        steps = deflated(ordered(values) - ordered(near))
        return (made, steps) if len(steps) < len(plain) else ({}, plain)

    def _of_others(self, name: str) -> tuple[Made, Array] | None:
        own, _, step = name.rpartition(".")
        record = self.trace.tape.records[name]
        operands = self.trace.tape.operands(record) or [""]
        match step:
            case "sum" | "placed" if len(operands) == 2 and self._have(*operands):
                a, b = map(self._numbers, operands)
                return ({"sum": operands}, a + b) if a.shape == b.shape else None
            case "merged" if self._have(f"{own}.mixed"):
                mixed = self._numbers(f"{own}.mixed")
                return {"turned": f"{own}.mixed"}, mixed.transpose(1, 0, 2).reshape(mixed.shape[1], -1)
            case "active" if len(operands) == 1 and self._have(*operands):
                return {"relu": operands[0]}, np.maximum(self._numbers(operands[0]), np.float32(0))
            case "scores":
                return self._scores(own)
            case "mixed":
                values = f"{own}.short_v" if f"{own}.short_v" in self.kept else f"{own}.v"
                if f"{own}.mixture" in self.trace.tape.records or not self._have(f"{own}.weights", values):
                    return None
                return {"mixed": [f"{own}.weights", values]}, weighted(*map(self._doubles, (f"{own}.weights", values)))
            case "before" | "between" | "after" | "final" | "norm" if self._have(operands[0]):
                return self._norm(record, operands[0])
        return None

    def _scores(self, own: str) -> tuple[Made, Array] | None:
        keys = f"{own}.short_k" if f"{own}.short_k" in self.kept else f"{own}.k"
        biases = [each for each in self.trace.addresses(f"{own}.") if each.endswith(".bias")]
        if not self._have(f"{own}.q", keys, *biases) or len(biases) > 1:
            return None
        scale: float = self.trace.ran.attentions[own].kernel.scale
        found = products(self._doubles(f"{own}.q"), self._doubles(keys)) * scale
        found = found + self._doubles(biases[0]) if biases else found
        return {"scores": [f"{own}.q", keys, *biases], "scale": scale}, found

    def _norm(self, record: Record, x: str) -> tuple[Made, Array] | None:
        made = self.trace.explain(f"{record.name}[0,0]").expression if len(record.shape) == 3 else None
        if not isinstance(made, Normed):
            return None
        names = [
            str(getattr(part, "address", None) or "").partition("[")[0] or None for part in (made.weight, made.bias)
        ]
        if not all(self.keep(name) for name in names if name):
            return None
        found, (weight, bias) = normed(self._doubles(x), made.eps, made.centred), names
        found = found * self._doubles(weight) if weight else found
        found = found + self._doubles(bias) if bias else found
        return {"norm": [x, *names], "eps": made.eps, "centred": made.centred}, found

    def _have(self, *names: str) -> bool:
        return all(name in self.kept for name in names)

    def _numbers(self, name: str) -> Array:
        return np.ascontiguousarray(self.trace[name].values.float().numpy(), dtype="<f4")

    def _doubles(self, name: str) -> Array:
        return self._numbers(name).astype(np.float64)


def _is_near(made: Made) -> bool:
    return bool({"norm", "scores", "mixed"} & set(made))


def deflated(values: Array) -> bytes:
    """The first bytes of all numbers together, then the second ones, and so on: they are alike."""
    planes = np.frombuffer(values.astype(values.dtype.newbyteorder("<")).tobytes(), np.uint8).reshape(-1, 4).T
    return zlib.compress(planes.tobytes(), 9)


def ordered(values: Array) -> Array:
    """float32 as whole numbers in the same order, one step from each to the next."""
    bits = np.ascontiguousarray(values, dtype="<f4").view(np.int32)
    return bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))


def normed(x: Array, eps: float, centred: bool) -> Array:
    count = x.shape[-1]
    middle = x - np.cumsum(x, -1)[:, -1:] / count if centred else x
    return middle / np.sqrt(np.cumsum(middle * middle, -1)[:, -1:] / count + eps)


def products(q: Array, k: Array) -> Array:
    """h t s: the sum over features, one after the other; key heads are read by several query heads."""
    k = k[np.arange(len(q)) * len(k) // len(q)]
    found = np.zeros((len(q), q.shape[1], k.shape[1]))
    for n in range(q.shape[2]):
        found += q[:, :, None, n] * k[:, None, :, n]
    return found


def weighted(weights: Array, v: Array) -> Array:
    """h t d: the sum over keys, one after the other."""
    v = v[np.arange(len(weights)) * len(v) // len(weights)]
    found = np.zeros((*weights.shape[:2], v.shape[2]))
    for n in range(v.shape[1]):
        found += weights[:, :, n, None] * v[:, None, n]
    return found
