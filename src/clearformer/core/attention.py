"""Multi-head attention: project, split into heads, attend, merge, project.

head_n = attend(x W_q, keys W_k, keys W_v) on its own slice of the width; the heads side by side go through W_o.
Where keys come from is `kv`'s business, who sees whom the pattern's, how it is computed the kernel's.
"""

from torch import Tensor, nn

from clearformer import spec
from clearformer.core.kernel import Kernel
from clearformer.core.kv import Keys
from clearformer.core.patterns import Visible
from clearformer.core.places import Places
from clearformer.core.positions import Relative
from clearformer.core.step import step


class Attention(nn.Module):
    def __init__(
        self,
        *,
        query: nn.Linear,
        key: nn.Linear,
        value: nn.Linear,
        output: nn.Linear,
        heads: int,
        key_heads: int,
        query_norm: nn.Module,
        key_norm: nn.Module,
        pattern: spec.Pattern,
        relative: Relative,
        source: nn.Module | None,
        kernel: Kernel,
    ):
        super().__init__()
        self.query, self.key, self.value, self.output = query, key, value, output
        self.heads, self.key_heads = heads, key_heads
        self.query_norm, self.key_norm = query_norm, key_norm
        self.pattern, self.relative, self.source, self.kernel = pattern, relative, source, kernel

    def forward(self, x: Tensor, places: Places, keys: Keys | None = None) -> Tensor:
        source = keys if keys is not None else self.source
        if source is None:
            raise ValueError("cross-attention needs the encoder's output: pass Memory as its keys")
        q = self.q(x, places)
        k, v, there = source(self, x, places)
        mixed = self.kernel(q, k, v, Visible(self.pattern, places, there), self.relative)
        return self.out(self.merged(mixed))

    @step("b h t d")
    def q(self, x: Tensor, places: Places) -> Tensor:
        return self.relative.rotate(self.query_norm(split(self.query(x), self.heads)), places)

    @step("b g s d")
    def k(self, x: Tensor, places: Places) -> Tensor:
        return self.relative.rotate(self.key_norm(split(self.key(x), self.key_heads)), places)

    @step("b g s d")
    def v(self, x: Tensor) -> Tensor:
        return split(self.value(x), self.key_heads)

    @step("b t c")
    def merged(self, mixed: Tensor) -> Tensor:
        return mixed.transpose(1, 2).flatten(2)  # b h t d → b t (h d)

    @step("b t m")
    def out(self, merged: Tensor) -> Tensor:
        return self.output(merged)


def split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # b t (h d) → b h t d
