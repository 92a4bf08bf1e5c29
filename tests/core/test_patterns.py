"""Who sees whom, against loops that follow the words of each pattern."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from clearformer.core.patterns import Visible, draws, sees
from clearformer.core.places import Places
from clearformer.kernels.block_layout import block_size, layout
from clearformer.spec import BigBird, Both, Causal, Either, Everyone, Global, Near, Pattern, Random, Window

leaves = st.one_of(
    st.just(Everyone()),
    st.just(Causal()),
    st.builds(Window, size=st.integers(1, 9)),
    st.builds(Near, radius=st.integers(0, 7)),
    st.builds(Global, count=st.integers(1, 6)),
    st.builds(Random, count=st.integers(1, 3), seed=st.integers(0, 2**40), block=st.sampled_from([3, 4])),
)
patterns = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Both, parts=st.lists(inner, min_size=1, max_size=3)),
        st.builds(Either, parts=st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=4,
)


def brute(pattern: Pattern, i: int, j: int) -> bool:
    """The definition of each pattern in plain Python."""
    if i < 0 or j < 0:
        return False
    match pattern:
        case Everyone():
            return True
        case Causal():
            return j <= i
        case Window(size=size):
            return i - size < j <= i
        case Near(radius=radius):
            return -radius <= i - j <= radius
        case Global(count=count):
            return i < count or j < count
        case Random(count=count, seed=seed, block=block):
            return j // block in {hashed(seed, i // block, n) % (2 * (i // block) + 2) for n in range(count)}
        case Both(parts=parts):
            return all(brute(part, i, j) for part in parts)
        case Either(parts=parts):
            return any(brute(part, i, j) for part in parts)
    raise TypeError(pattern)


def hashed(seed: int, block: int, number: int) -> int:
    def mix(x: int) -> int:
        for factor in (0x7FEB352D, 0x846CA68B, 0x9E3779B1):
            x = ((x ^ (x >> 16)) * factor) % 2**32
        return x ^ (x >> 15)

    return mix(mix(mix(block + 1) ^ (number + 1)) ^ (seed % 2**32))


@given(
    patterns,
    st.lists(st.integers(-1, 40), min_size=1, max_size=12),
    st.lists(st.integers(-1, 40), min_size=1, max_size=12),
)
def test_sees(pattern: Pattern, queries: list[int], keys: list[int]) -> None:
    found = sees(pattern, torch.tensor(queries)[:, None], torch.tensor(keys)[None])
    assert found.expand(len(queries), len(keys)).tolist() == [[brute(pattern, i, j) for j in keys] for i in queries]


@given(patterns)
def test_causal_means_no_later_key(pattern: Pattern) -> None:
    later = any(brute(pattern, i, j) for i in range(24) for j in range(i + 1, 25))
    assert not (pattern.causal and later)


@given(patterns, st.integers(1, 50))
def test_layout_names_every_block_that_matters(pattern: Pattern, length: int) -> None:
    size = block_size(pattern)
    blocks = -(-length // size)
    found = layout(pattern, size, blocks)
    if found is None:
        return
    for n in range(found.full, blocks):
        named = [int(block) for block in found.keys[n] if block >= 0]
        assert len(set(named)) == len(named)
        needed = {
            j // size
            for i in range(n * size, min(length, (n + 1) * size))
            for j in range(length)
            if brute(pattern, i, j)
        }
        assert needed <= set(named)


def test_bigbird_is_a_union_and_its_layout_does_not_grow() -> None:
    pattern = BigBird(block=4, radius=4, count=2, first=3)
    assert {type(part) for part in pattern.parts} == {Near, Global, Random}
    widths = {layout(pattern, 4, blocks).keys.size(1) for blocks in (64, 256, 1024)}
    assert max(widths) <= 3 + 1 + 2  # window, global, random blocks


def test_random_draws_do_not_depend_on_the_length_and_reach_both_ways() -> None:
    pattern = Random(count=4, seed=5, block=4)
    far = draws(pattern, torch.arange(500))
    assert torch.equal(far[:50], draws(pattern, torch.arange(50)))
    block = torch.arange(500)[:, None]
    behind = (far < block).float().mean()
    assert 0.4 < behind < 0.6
    assert (far < 2 * block + 2).all()
    assert not torch.equal(far, draws(pattern.replace(seed=6), torch.arange(500)))


def test_what_is_known_without_looking_is_true() -> None:
    for pattern in (Everyone(), Causal(), *(Window(size=size) for size in (1, 2, 3, 4, 5))):
        for start, length, past in ((0, 4, 0), (3, 1, 3), (3, 2, 3), (0, 1, 0)):
            queries, keys = Places.span(start, start + length), Places.span(0, past + length)
            visible = Visible(pattern, queries, keys)
            dense = visible.dense().expand(1, 1, length, past + length)
            assert not visible.everything() or bool(dense.all())
            if visible.lower_triangle():
                assert torch.equal(dense[0, 0], torch.ones(length, length, dtype=torch.bool).tril())
    assert Visible(Causal(), Places.span(5, 6), Places.span(0, 6)).everything()
    assert not Visible(Causal(), Places.span(0, 2), Places.span(0, 2)).everything()
    assert Visible(Window(size=4), Places.span(0, 4), Places.span(0, 4)).lower_triangle()
    assert not Visible(Window(size=3), Places.span(0, 4), Places.span(0, 4)).lower_triangle()
    assert Visible(Window(size=6), Places.span(5, 6), Places.span(0, 6)).everything()
    assert not Visible(Window(size=5), Places.span(5, 6), Places.span(0, 6)).everything()


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=4))
def test_places_number_the_real_tokens(mask: list[list[bool]]) -> None:
    places = Places.where(torch.tensor(mask))
    for row, found in zip(mask, places.rows(len(mask)).index.tolist(), strict=True):
        assert [n for n in found if n >= 0] == list(range(sum(row)))
        assert [n >= 0 for n in found] == row


def test_a_mask_belongs_to_its_keys() -> None:
    """Places that come and go may be given the same address; their masks must not be mixed up."""
    queries = Places(torch.tensor([[0, 1, 2]]))
    for length in (5, 8, 5, 3) * 5:
        mask = Visible(Everyone(), queries, Places(torch.arange(length)[None])).dense()
        assert mask.shape[-1] == length


def test_a_mask_does_not_outlive_its_places() -> None:
    import gc
    import weakref

    gc.disable()
    try:
        places = Places.where(torch.tensor([[True, True, False]]))
        gone = weakref.ref(places)
        Visible(Causal(), places, places).dense()
        del places
        assert gone() is None
    finally:
        gc.enable()
