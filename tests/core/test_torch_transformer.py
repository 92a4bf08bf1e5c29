"""The original's stacks are PyTorch's own Transformer: same weights, same embeddings, same states."""

from collections.abc import Iterator
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from clearformer import presets
from clearformer.assemble import build
from clearformer.core.attention import Attention
from clearformer.core.block import Block
from clearformer.core.model import Context, EncoderDecoder, Stack

BAR = 1e-5
Place = Literal["before", "after"]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Matrices this small only wait for a second one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def copy(theirs: nn.Module, ours: nn.Module) -> None:
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(ours.bias)


def copy_attention(theirs: nn.MultiheadAttention, ours: Attention) -> None:
    parts = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    copy(theirs.out_proj, ours.output)


def copy_block(theirs: nn.Module, ours: Block, norm: Place) -> None:
    attentions = {"self": "self_attn", "cross": "multihead_attn"}
    for number, (name, branch) in enumerate(ours.branches.items(), 1):
        if name in attentions:
            copy_attention(getattr(theirs, attentions[name]), branch.layer)
        else:
            copy(theirs.linear1, branch.layer.up)
            copy(theirs.linear2, branch.layer.down)
        copy(getattr(theirs, f"norm{number}"), getattr(branch, norm))


def copy_stack(theirs: nn.TransformerEncoder | nn.TransformerDecoder, ours: Stack, norm: Place) -> None:
    for layer, block in zip(theirs.layers, ours.blocks, strict=True):
        copy_block(layer, block, norm)
    if theirs.norm is not None:
        copy(theirs.norm, ours.final)


@torch.no_grad()
def both(norm: Place) -> tuple[nn.Transformer, EncoderDecoder]:
    """PyTorch's with our weights: random ones everywhere, biases and norms too."""
    what = presets.original("tiny", norm=norm)
    ours = build(what)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in ours.named_parameters():
        scale = parameter.dim() == 1 and name.endswith("weight")
        parameter.normal_(1.0 if scale else 0.0, 0.2, generator=generator)

    width, layers = what.encoder.width, len(what.encoder.blocks)
    shape = {
        "d_model": width,
        "nhead": what.at("encoder.blocks.0.self.heads"),
        "dim_feedforward": what.at("encoder.blocks.0.feedforward.layer.inner"),
        "batch_first": True,
        "norm_first": norm == "before",
    }
    # nn.Transformer adds a final norm in either arrangement; the original has one only with norms before.
    final = [nn.LayerNorm(width) if norm == "before" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**shape), layers, final[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**shape), layers, final[1])
    theirs = nn.Transformer(**shape, custom_encoder=encoder, custom_decoder=decoder).eval()
    copy_stack(theirs.encoder, ours.encoder, norm)
    copy_stack(theirs.decoder, ours.decoder, norm)
    return theirs, ours


MASKS = {
    "no padding": None,
    "padding on the right": [[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0]],
    "padding on the left": [[1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1]],
    "padding on both sides": [[0, 1, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]],
}


def states(
    theirs: nn.Transformer, ours: EncoderDecoder, source_mask: Tensor | None, target_mask: Tensor | None
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """(theirs, ours) for the encoder and for the decoder, at the positions of real tokens."""
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(0, 100, (3, 7), generator=generator)
    target = torch.randint(0, 100, (3, 5), generator=generator)
    there, here = ours.encoder.places(source, source_mask), ours.decoder.places(target, target_mask)
    encoded = ours.encode(source, source_mask)
    decoded = ours.decoder(target, here, Context(ours.decoder, encoded))

    hidden = {  # True where PyTorch may not look
        "src_key_padding_mask": None if source_mask is None else ~source_mask,
        "memory_key_padding_mask": None if source_mask is None else ~source_mask,
        "tgt_key_padding_mask": None if target_mask is None else ~target_mask,
        "tgt_mask": torch.ones(5, 5, dtype=torch.bool).triu(1),
    }
    embedded = ours.encoder.embed(source, there), ours.decoder.embed(target, here)
    memory = theirs.encoder(embedded[0], src_key_padding_mask=hidden["src_key_padding_mask"])
    out = theirs(*embedded, **hidden)
    real = [torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
            for ids, mask in ((source, source_mask), (target, target_mask))]  # fmt: skip
    return (memory[real[0]], encoded.states[real[0]]), (out[real[1]], decoded[real[1]])


def mask(name: str, length: int) -> Tensor | None:
    rows = MASKS[name]
    return None if rows is None else torch.tensor(rows, dtype=torch.bool)[:, :length]


@torch.no_grad()
@pytest.mark.parametrize("target", ["no padding", "padding on the right"])
@pytest.mark.parametrize("source", MASKS)
@pytest.mark.parametrize("norm", ["after", "before"])
def test_states_are_those_of_pytorch(norm: Place, source: str, target: str) -> None:
    theirs, ours = both(norm)
    for theirs_states, ours_states in states(theirs, ours, mask(source, 7), mask(target, 5)):
        assert theirs_states.shape == ours_states.shape
        assert theirs_states.std() > 0.1  # there is something to compare
        assert (theirs_states - ours_states).abs().max() <= BAR


@torch.no_grad()
@pytest.mark.parametrize("norm", ["after", "before"])
def test_a_wrong_weight_would_show(norm: Place) -> None:
    theirs, ours = both(norm)
    for name, parameter in ours.named_parameters():
        if "embed" in name or name.endswith("key.bias"):  # fed to both alike; forgotten by softmax
            continue
        kept = parameter.clone()
        parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
        _, (right, wrong) = states(theirs, ours, mask("padding on the right", 7), None)
        parameter.copy_(kept)
        assert (right - wrong).abs().max() > 10 * BAR, name
