"""PyTorch's fused attention: the same equation without the b h t s matrices in memory."""

import torch.nn.functional as F
from torch import Tensor

from clearformer import spec
from clearformer.core.kernel import Reference
from clearformer.core.patterns import Visible
from clearformer.core.positions import Relative

SHORT = 48 * 48  # queries × keys of one head up to which the plain equation is faster; see bench/attention.py


class Fused(Reference):
    """Fused for long texts, the plain equation for short ones, whichever is faster there."""

    name = "fused"

    @classmethod
    def supports(cls, layer: spec.SelfAttention | spec.CrossAttention) -> str | None:
        positions = getattr(layer, "positions", None)
        if isinstance(positions, spec.Shaw | spec.TreeDistance) and positions.values:
            return f"{positions.kind} positions add to the values by the weights, which fused attention never shows"
        return None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, relative: Relative) -> Tensor:
        if q.size(2) * k.size(2) <= SHORT:
            return super().forward(q, k, v, visible, relative)
        dropout = self.dropout if self.training else 0.0
        bias = relative.bias(q, self.scale, visible.queries, visible.keys)
        triangle = bias is None and visible.lower_triangle()
        if bias is None and (triangle or visible.everything()):
            return F.scaled_dot_product_attention(
                q, k, v, is_causal=triangle, dropout_p=dropout, scale=self.scale, enable_gqa=k.size(1) != q.size(1)
            )
        seen = visible.dense()
        # A row that sees nothing may look anywhere and is zeroed afterwards, so that no kernel meets an empty softmax.
        empty = ~seen.any(-1, keepdim=True)
        allowed = seen | empty
        mask = allowed if bias is None else bias.masked_fill(~allowed, float("-inf"))
        mixed = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, scale=self.scale, enable_gqa=k.size(1) != q.size(1)
        )
        return mixed.masked_fill(empty, 0.0)
