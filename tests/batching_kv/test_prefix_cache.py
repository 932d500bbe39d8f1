"""What a cached prefix may and may not be matched with."""

from __future__ import annotations

import pytest

from runtime_py.batching.kv import KVManager, fnv1a
from runtime_py.batching.kv.prefix_cache import TokenHash
from tests.batching_kv.harness import Harness


def constant(seed: int, tokens: object) -> int:
    return 0


HASHES = pytest.mark.parametrize("token_hash", [fnv1a, constant])


def test_fnv1a_is_what_javascript_computes() -> None:
    # h = Math.imul(h ^ token, 16777619) >>> 0, worked out in Node
    assert fnv1a(2166136261, [1, 2, 3]) == 1456420779
    assert fnv1a(0, [2**31 - 1]) == 2130706029


@HASHES
def test_C14_the_same_prompt_four_times(token_hash: TokenHash) -> None:
    h = Harness(64, 4, token_hash)
    prompt = list(range(33))
    cached = [h.run(i, prompt) for i in range(4)]
    assert cached == [0, 32, 32, 32]
    tables = [h.kv.block_table(i) for i in range(4)]
    assert all(t[:8] == tables[0][:8] for t in tables)
    assert len({t[8] for t in tables}) == 4
    for i in range(4):
        h.release(i)
    h.kv.check_idle()


@HASHES
def test_C14_a_shared_prefix_with_different_tails(token_hash: TokenHash) -> None:
    h = Harness(64, 4, token_hash)
    shared = list(range(100, 132))
    for i in range(4):
        assert h.run(i, [*shared, 7 * i, 7 * i + 1], chunk=5) == (32 if i else 0)


@HASHES
def test_C14_evict_and_refill_between(token_hash: TokenHash) -> None:
    h = Harness(8, 4, token_hash)
    h.run(0, list(range(17)))
    h.release(0)
    h.run(1, list(range(50, 82)))  # takes all eight blocks
    assert h.kv.stats.evicted_blocks == 4
    h.release(1)
    assert h.run(2, list(range(17))) == 0
    h.release(2)
    assert h.run(3, list(range(17))) == 16


def test_C14_a_colliding_hash_hands_over_nobody_elses_prefix() -> None:
    h = Harness(32, 4, constant)
    h.run(0, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert h.run(1, [9, 9, 9, 9, 5, 6, 7, 7, 9]) == 0
    assert h.run(4, [9, 9, 9, 9, 5, 6, 7, 8, 9]) == 4  # 5, 6, 7, 8 are cached behind others
    assert h.run(5, [8, 8, 8, 8, 5, 6, 7, 8, 9]) == 0  # its second block equals, its first not
    assert h.run(2, [9, 9, 9, 9, 1, 2, 3, 4, 9]) == 4  # nor is another's first its second
    assert h.run(3, [1, 2, 3, 4, 5, 6, 7, 9, 9]) == 4


def test_C14_tenants_do_not_share() -> None:
    h = Harness(32, 4)
    prompt = list(range(9))
    assert [h.run(i, prompt, salt) for i, salt in enumerate(["a", "b", "a", "", "b"])] == [
        0, 0, 8, 0, 8,
    ]  # fmt: skip


def test_at_least_one_token_is_computed() -> None:
    h = Harness(8, 4)
    h.run(0, list(range(8)))
    assert h.run(1, list(range(8))) == 4
    assert h.run(2, [0]) == 0


def test_generated_tokens_are_cached_too() -> None:
    h = Harness(8, 4)
    h.run(0, [1, 2, 3])
    for token in (4, 5):
        h.append(0, token)
        assert h.step(0, 1)
    assert h.run(1, [1, 2, 3, 4, 9]) == 4


def test_two_that_compute_the_same_prefix_at_once() -> None:
    """The second's blocks are duplicates; it outlives the first, whose blocks are taken."""
    h = Harness(7, 4)
    h.start(0, list(range(9)))
    h.start(1, list(range(9)))
    assert h.step(0, 9)
    assert h.step(1, 9)
    assert h.kv.stats.cached_blocks == 2
    h.release(0)
    h.run(2, list(range(50, 66)))  # evicts both
    assert h.kv.stats.evicted_blocks == 2
    assert h.kv.stats.cached_blocks == 4
    for token in (9, 10, 11):
        h.append(1, token)
        assert h.step(1, 1)
    assert h.kv.stats.cached_blocks == 7  # its own chain, from the start
    h.release(2)
    h.release(1)
    assert h.run(3, [*range(12), 5]) == 12


def test_descendants_go_with_an_evicted_block() -> None:
    h = Harness(4, 2)
    h.run(0, [1, 2, 3, 4, 5, 6, 7])
    h.release(0)
    assert h.kv.stats.cached_blocks == 3
    h.run(1, [9, 9, 9])  # the uncached block, then the end of the chain
    assert h.kv.cost([1, 2, 3, 4, 5, 6, 7], 1) == (4, 3)


def test_caching_can_be_switched_off() -> None:
    kv = KVManager(8, 2, prefix_caching=False)
    for seq in (0, 1):
        assert kv.start(seq, [1, 2, 3]) == 0
        assert kv.reserve(seq, 3) is not None
        kv.computed(seq, 3)
    assert kv.stats.cached_blocks == 0


def test_clearing_leaves_running_sequences_alone() -> None:
    h = Harness(8, 2)
    h.run(0, [1, 2, 3])
    h.kv.clear_cache()
    assert h.kv.stats.cached_blocks == 0
    h.verify(0)
    h.append(0, 4)
    assert h.step(0, 1)
    assert h.run(1, [1, 2, 3, 4, 5]) == 4
