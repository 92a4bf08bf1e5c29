"""The laws of the design: each holds for every model there is."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

import clearformer as cf
from clearformer import spec
from clearformer.core.model import EncoderDecoder
from tests.laws.cases import ALL, DECODING, TEXT, Batch, Case, alone, inputs, padded, run, tree

TOLERANCE = 1e-5
each_case = pytest.mark.parametrize("case", ALL, ids=str)
each_text = pytest.mark.parametrize("case", TEXT, ids=str)
each_decoder = pytest.mark.parametrize("case", DECODING, ids=str)


def close(a: Tensor, b: Tensor, tolerance: float = TOLERANCE) -> None:
    a, b = a.detach(), b.detach()
    assert a.shape == b.shape
    assert torch.isfinite(a).all()
    assert torch.isfinite(b).all()
    scale = max(1.0, float(b.abs().max()))
    assert float((a - b).abs().max()) <= tolerance * scale, float((a - b).abs().max())


def per_token(result: Tensor, batch: Batch, row: int) -> Tensor:
    """The part of a row's result that belongs to real tokens; a whole-sequence result is itself."""
    return result[row] if result.dim() == 2 else result[row][batch.mask[row]]


@each_case
def test_json(case: Case) -> None:
    assert cf.Spec.from_json(case.spec.to_json()) == case.spec


@each_text
@pytest.mark.parametrize("side", ["right", "left"])
def test_padded_and_batched_is_alone(case: Case, side: str) -> None:
    model = case.model()
    source = padded([7, 12, 1], side, extra=3)
    target = padded([5, 2, 8], side, extra=2, seed=1) if isinstance(model, EncoderDecoder) else None
    together = run(case, model, source, target)
    for row in range(3):
        single = run(case, model, alone(source, row), alone(target, row) if target else None)
        close(per_token(together, target or source, row), single[0])


@each_text
def test_padded_gradients_are_those_alone(case: Case) -> None:
    def gradients(*batches: tuple[Batch, Batch | None]) -> list[Tensor]:
        model = case.model()
        for source, target in batches:
            result = run(case, model, source, target)
            shown = target or source
            rows = [per_token(result, shown, row) for row in range(len(shown.rows))]
            sum((row * torch.arange(row.numel()).view(row.shape).cos()).sum() for row in rows).backward()
        return [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]

    source = padded([6, 11], extra=2)
    target = padded([4, 7], extra=1, seed=1) if isinstance(case.spec, spec.EncoderDecoder) else None
    singles = [(alone(source, row), alone(target, row) if target else None) for row in range(2)]
    for together, single in zip(gradients((source, target)), gradients(*singles), strict=True):
        close(together, single, 1e-4)


@each_text
def test_empty_text_in_a_batch(case: Case) -> None:
    model = case.model()
    source = padded([6, 0, 3])
    target = padded([4, 5, 0], seed=1) if isinstance(model, EncoderDecoder) else None
    result = run(case, model, source, target)
    assert torch.isfinite(result).all()
    result.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    for row in (0, 2) if target is None else (0,):
        single = run(case, model, alone(source, row), alone(target, row) if target else None)
        close(per_token(result, target or source, row), single[0])


def steps(case: Case, cuts: list[int], side: str) -> tuple[Tensor, Tensor, Tensor]:
    """The whole text at once, and in the pieces between `cuts` with a cache."""
    model = case.model()
    text = padded([12, 7], side)
    trees = [tree(len(row)) for row in text.rows] if case.trees else None
    pieces = []
    with torch.no_grad():
        if isinstance(model, EncoderDecoder):
            source = padded([5, 9], seed=5)
            options = {"trees": [tree(len(row)) for row in source.rows]} if case.trees else {}
            whole = model(source.ids, text.ids, source.mask, text.mask, **options)
            context = model.context(model.encode(source.ids, source.mask, **options))
        else:
            whole = model(text.ids, text.mask, trees=trees)
            context = model.context()
        for start, stop in pairwise(cuts):
            ids, mask = text.ids[:, start:stop], text.mask[:, start:stop]
            if isinstance(model, EncoderDecoder):
                pieces.append(model.decode(ids, context, mask))
            else:
                so_far = [heads[: int(text.mask[n, :stop].sum())] for n, heads in enumerate(trees)] if trees else None
                pieces.append(model(ids, mask, context=context, trees=so_far))
    return whole, torch.cat(pieces, 1), text.mask


@each_decoder
@pytest.mark.parametrize("side", ["right", "left"])
def test_cached_is_uncached(case: Case, side: str) -> None:
    whole, stepped, mask = steps(case, list(range(13)), side)
    close(stepped[mask], whole[mask])


@each_decoder
def test_chunked_prefill_is_whole(case: Case) -> None:
    whole, stepped, mask = steps(case, [0, 5, 6, 10, 12], "right")
    close(stepped[mask], whole[mask])


@each_decoder
def test_the_future_changes_nothing_in_the_past(case: Case) -> None:
    model = case.model()
    source, target = inputs(case, 12)
    text = target or source
    before = run(case, model, source, target)
    for cut in (1, 5):
        other = text.ids.clone()
        other[:, cut:] = (other[:, cut:] + 1) % 100
        changed = Batch(other, text.mask, text.rows)
        after = run(case, model, *((source, changed) if target else (changed, None)))
        assert torch.equal(after[:, :cut], before[:, :cut])
        assert not torch.equal(after[:, cut:], before[:, cut:])


@each_case
def test_every_kernel_is_the_reference(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.kernels.fused.SHORT", 0)  # no retreat to the equation on short texts
    reference, fast = case.model("reference"), case.model("auto")
    if case.images:
        images = torch.randn(2, 3, 12, 12)
        results = [model(images) for model in (reference, fast)]
        kept = results
    else:
        source = padded([33, 20, 0])
        target = padded([9, 21, 4], seed=1) if isinstance(case.spec, spec.EncoderDecoder) else None
        shown = target or source
        results = [run(case, model, source, target) for model in (reference, fast)]
        kept = [result if result.dim() == 2 else result[shown.mask] for result in results]
    close(kept[1], kept[0])
    for result in kept:
        (result * torch.linspace(-1, 1, result.numel()).view(result.shape)).sum().backward()
    for a, b in zip(fast.parameters(), reference.parameters(), strict=True):
        if b.grad is not None:
            close(a.grad, b.grad, 1e-4)


@each_case
def test_traced_is_plain(case: Case) -> None:
    model = case.model()
    if case.images:
        images = torch.randn(1, 3, 12, 12)
        plain, traced = model(images), cf.trace(model, images)
    else:
        source, target = inputs(case)
        options = {"trees": [tree(9)]} if case.trees else {}
        given = [batch.ids for batch in (source, target) if batch]
        plain, traced = model(*given, **options), cf.trace(model, *given, **options)
    close(traced.result, plain.detach())
    assert len(traced) > 20


@each_case
def test_saved_and_loaded_is_the_same(case: Case, tmp_path: Path) -> None:
    model = case.model()
    loaded = cf.load_model(cf.save_model(model, tmp_path / "model"))
    assert loaded.spec == model.spec
    for (name, a), (other, b) in zip(model.named_parameters(), loaded.named_parameters(), strict=True):
        assert name == other
        assert torch.equal(a, b)
    if case.images:
        images = torch.randn(1, 3, 12, 12)
        close(loaded(images), model(images), 1e-6)
    else:
        close(run(case, loaded, *inputs(case)), run(case, model, *inputs(case)), 1e-6)


@pytest.mark.parametrize("case", [case for case in DECODING if not case.trees], ids=str)
def test_beam_one_is_greedy(case: Case) -> None:
    model = case.model()
    prompt = padded([4, 2, 3], "left")
    options = {}
    if isinstance(model, EncoderDecoder):
        source = padded([5, 9, 2], seed=4)
        options = {"source": source.ids, "source_mask": source.mask}
    greedy = cf.greedy(model, prompt.ids, mask=prompt.mask, max_new_tokens=8, eos_token_id=3, **options)
    beam = cf.beam(model, prompt.ids, mask=prompt.mask, max_new_tokens=8, eos_token_id=3, num_beams=1, **options)
    for a, (b,) in zip(greedy, beam, strict=True):
        assert (a.tokens, a.finish) == (b.tokens, b.finish)
        assert abs(a.score - b.score) < 1e-4
