"""The prefix cache and the pool: against models that are too simple to be wrong, and as an engine uses them."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearformer.generate.engine import Engine
from clearformer.generate.paged_batch import PagedBatch
from clearformer.generate.prefix_cache import Node, PrefixCache
from clearformer.kernels.native.kv_pool import KVPool
from tests.generate.engines import PATIENCE, alone, batch, check_whole, one_lane, request

tokens = st.lists(st.integers(0, 2), max_size=8).map(tuple)  # few tokens, so that beginnings are shared
actions = st.lists(st.tuples(st.sampled_from(["read", "read", "leave", "evict"]), tokens, st.integers(0, 9)))


# --- the trie ---------------------------------------------------------------------------------------------------


def nodes(cache: PrefixCache) -> list[Node]:
    found, rest = [], [cache.root]
    while rest:
        node = rest.pop()
        found.append(node)
        rest += node.children.values()
    return found


@settings(max_examples=300)
@given(actions)
def test_the_trie_is_a_dictionary_of_beginnings(steps: list[tuple[str, tuple[int, ...], int]]) -> None:
    """A dictionary from every beginning that is known to its last cell. What requests stand on is never evicted."""
    cache, known, fresh = PrefixCache(), dict[tuple[int, ...], int](), iter(range(1 << 20))
    standing: list[tuple[tuple[int, ...], Node]] = []

    def longest(text: tuple[int, ...]) -> int:
        return next(n for n in range(len(text), -1, -1) if n == 0 or text[:n] in known)

    for action, text, number in steps:
        if action == "read":
            count = longest(text)
            hits = cache.hits
            cells, node = cache.match(text)
            assert cells.tolist() == [known[text[: n + 1]] for n in range(count)]
            assert cache.hits - hits == count
            own = [next(fresh) for _ in range(len(text) - count)]
            kept, node = cache.insert(text, np.array([*cells, *own], dtype=np.int32), node)
            assert kept.tolist() == own
            known |= {text[: n + 1]: cell for n, cell in enumerate(own, count)}
            standing.append((text, node))
        elif action == "leave" and standing:
            cache.leave(standing.pop(number % len(standing))[1])
        elif action == "evict":
            held = {text[:n] for text, _ in standing for n in range(len(text) + 1)}
            free = [beginning for beginning in known if beginning not in held]
            gone = set(cache.evict(number).tolist())
            assert len(gone) >= min(number, len(free))
            lost = {beginning for beginning, cell in known.items() if cell in gone}
            assert len(lost) == len(gone)
            assert not lost & held
            known = {beginning: cell for beginning, cell in known.items() if cell not in gone}
            assert all(len(beginning) == 1 or beginning[:-1] in known for beginning in known)
        assert cache.size == len(known)
        assert sum(node.users for node in nodes(cache)) == len(standing)
        assert sorted(cell for node in nodes(cache) for cell in node.cells.tolist()) == sorted(known.values())
    for text, _ in standing:
        assert longest(text) == len(text)


def test_two_who_read_the_same_keep_one_copy() -> None:
    cache = PrefixCache()
    (_, one), (_, other) = cache.match((1, 2, 3)), cache.match((1, 2, 4))
    kept, one = cache.insert((1, 2, 3), np.array([10, 11, 12]), one)
    assert kept.tolist() == [10, 11, 12]
    kept, other = cache.insert((1, 2, 4), np.array([20, 21, 22]), other)
    assert kept.tolist() == [22]
    assert cache.match((1, 2, 4, 5))[0].tolist() == [10, 11, 22]


def test_what_was_not_used_for_the_longest_time_goes_first() -> None:
    cache = PrefixCache()
    for n, text in enumerate([(1, 1), (2, 2), (3, 3)]):
        _, node = cache.match(text)
        cache.leave(cache.insert(text, np.array([10 * n, 10 * n + 1]), node)[1])
    cache.leave(cache.match((1, 1))[1])
    assert cache.evict(1).tolist() == [10, 11]
    assert cache.evict(1).tolist() == [20, 21]
    assert cache.evict(9).tolist() == [0, 1]
    assert cache.evict(9).tolist() == []
    assert cache.size == 0


# --- the pool ---------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4), st.integers(0, 6))))
def test_the_pool_is_a_set_of_cells(steps: list[tuple[bool, int, int]]) -> None:
    pool, owned = KVPool(12, [4, 0]), dict[int, set[int]]()
    for takes, owner, count in steps:
        if takes:
            if count > pool.available:
                continue
            pool.promised += count
            assert pool.available == 12 - sum(map(len, owned.values())) - count
            cells = pool.take(owner, count).tolist()
            assert len(set(cells)) == count
            assert not set(cells) & set().union(*owned.values())
            owned[owner] = owned.get(owner, set()) | set(cells)
        else:
            assert set(pool.owned(owner).tolist()) == owned.get(owner, set())
            pool.give_back(pool.owned(owner))
            owned.pop(owner, None)
        assert pool.left == pool.available == 12 - sum(map(len, owned.values()))
        assert set(pool.free[: pool.left].tolist()) == set(range(12)) - set().union(*owned.values())


def test_a_cell_for_each_of_several_owners() -> None:
    pool = KVPool(5, [4])
    pool.promised += 3
    cells = pool.take(np.array([7, 8, 7]), 3)
    assert pool.owned(7).tolist() == sorted([cells[0], cells[2]])
    assert pool.owned(8).tolist() == [cells[1]]
    assert [tuple(each.shape) for each in pool.layers[0]] == [(5, 4), (5, 4)]


# --- in an engine -----------------------------------------------------------------------------------------------


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens of prompts every step reads."""
    found: list[int] = []
    pieces = PagedBatch._pieces

    def counted(self: PagedBatch) -> Any:
        made = pieces(self)
        found.append(sum(stop - one.read for one, stop in made))
        return made

    monkeypatch.setattr(PagedBatch, "_pieces", counted)
    return found


def of(engine: Engine) -> PrefixCache:
    cache = batch(engine).prefixes
    assert cache is not None
    return cache


def test_a_shared_prompt_is_read_once(read: list[int]) -> None:
    shared = [n % 97 for n in range(200)]
    with one_lane() as engine:
        engine.run([request([*shared, 1])])
        assert sum(read) == 201
        for prompt, new in (([*shared, 2, 3], 2), ([*shared, 1], 1), (shared[:50], 1), ([9, *shared[:9]], 10)):
            read.clear()
            hits = of(engine).hits
            found = engine.run([request(prompt)])
            assert sum(read) == new
            assert of(engine).hits - hits == len(prompt) - new
            assert found == [alone(request(prompt))]
        check_whole(engine)


def test_what_was_written_is_not_read_again(read: list[int]) -> None:
    """A chat goes on from its own answer: all of it but the last token, which was never read, and what is new."""
    with one_lane() as engine:
        (text,) = engine.run([request([1, 2, 3])])[0]
        read.clear()
        engine.run([request([1, 2, 3, *text.tokens, 5])])
    assert sum(read) == 2


def test_going_on_from_the_answer_of_a_beam() -> None:
    """Its hypotheses lie in rows that change places: what is remembered of them must be theirs."""
    with one_lane() as engine:
        for n in range(6):
            for text in engine.run([request([1, 2, n], num_beams=4, num_return_sequences=4)])[0]:
                going_on = request([1, 2, n, *text.tokens, 5])
                assert engine.run([going_on]) == [alone(going_on)]


def test_a_prompt_that_is_being_read_is_known_when_it_was() -> None:
    with one_lane() as engine:
        handles = [engine.submit(request([4, 5, 6, 7, n])) for n in range(4)]
        assert [each.result(PATIENCE) for each in handles] == [alone(request([4, 5, 6, 7, n])) for n in range(4)]
        engine.run([request([4, 5, 6, 7, 9])])
        assert of(engine).match((4, 5, 6, 7))[0].size == 4


def test_nothing_is_kept_where_that_is_not_wanted(read: list[int]) -> None:
    with one_lane(prefix_cache=False) as engine:
        engine.run([request()])
        engine.run([request()])
        check_whole(engine)
        assert batch(engine).prefixes is None
        assert batch(engine).pool.left == batch(engine).pool.size
    assert sum(read) == 6


def test_cells_that_are_needed_are_taken_from_the_cache() -> None:
    """A pool so small that every request needs those of others; none waits for what no one uses."""
    chance = random.Random(2)
    with one_lane(kv_cache_tokens=48, max_rows=8) as engine:
        for n in range(60):
            prompt = [chance.randrange(3) for _ in range(chance.randint(1, 20))]
            each = request(prompt, max_new_tokens=chance.randint(1, 12), num_beams=1 + n % 2)
            assert engine.submit(each).result(PATIENCE) == alone(each)
        largest = request([1] * 40)
        assert engine.run([largest]) == [alone(largest)]
        check_whole(engine)
        assert 0 < of(engine).size <= 48
        assert of(engine).hits > 0


def test_a_prompt_in_use_is_not_evicted() -> None:
    """One that is written stands on its prompt, which another has read, while others press for room."""
    shared = [n % 50 for n in range(60)]
    with one_lane(kv_cache_tokens=160) as engine:
        engine.run([request([*shared, 1], max_new_tokens=1)])
        long = request([*shared, 2], max_new_tokens=40)
        handles = [engine.submit(each) for each in (long, *(request([60 + n] * 30) for n in range(8)))]
        assert [each.result(PATIENCE) for each in handles] == [alone(each.request) for each in handles]
        check_whole(engine)
        assert all(node.users == 0 for node in nodes(of(engine)))


def test_those_who_leave_early_stand_on_nothing() -> None:
    """Cancelled, failed, or done: the reference counts go back to 0, and all can be evicted."""

    def broken(_: Any) -> None:
        raise RuntimeError

    with one_lane() as engine:
        handles = []
        for n in range(30):
            handles.append(
                engine.submit(request([1, 2, 3, n], max_new_tokens=20, **({"stop": broken} if n % 3 else {})))
            )
            if n % 3 == 2:
                handles[-1].cancel()
        for handle in handles:
            try:
                handle.result(PATIENCE)
            except Exception:
                assert handle.error is not None
        engine.run([request()])
        check_whole(engine)
        cache = of(engine)
        assert all(node.users == 0 for node in nodes(cache))
        size = cache.size
        assert len(cache.evict(1 << 20)) == size > 0
