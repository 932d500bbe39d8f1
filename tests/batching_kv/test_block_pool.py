"""The free list: its order, its counts, and misuse."""

from __future__ import annotations

import pytest

from runtime_py.batching.kv import BlockPool
from runtime_py.errors import InvalidInput


def test_blocks_are_taken_in_order_and_worthless_ones_first() -> None:
    pool = BlockPool(4)
    assert [pool.allocate() for _ in range(3)] == [0, 1, 2]
    pool.release(0, keep=True)
    pool.release(1, keep=False)
    pool.release(2, keep=True)
    assert [pool.allocate() for _ in range(4)] == [1, 3, 0, 2]
    assert pool.num_free == 0
    assert pool.next_free() is None
    with pytest.raises(IndexError):
        pool.allocate()


def test_a_retained_free_block_leaves_the_list() -> None:
    pool = BlockPool(3)
    pool.retain(1)
    pool.retain(1)
    assert [pool.allocate(), pool.allocate()] == [0, 2]
    pool.release(1, keep=False)
    assert pool.num_free == 0
    pool.release(1, keep=False)
    assert (pool.num_free, pool.refs(1)) == (1, 0)
    pool.check()


def test_a_forgotten_block_moves_to_the_front() -> None:
    pool = BlockPool(3)
    pool.forget(2)
    assert [pool.allocate() for _ in range(3)] == [2, 0, 1]
    pool.forget(2)  # in use: nothing to move
    assert pool.num_free == 0


def test_a_double_release_is_caught() -> None:
    pool = BlockPool(1)
    pool.release(pool.allocate(), keep=False)
    with pytest.raises(AssertionError, match="nobody holds"):
        pool.release(0, keep=False)


def test_check_sees_a_lost_block() -> None:
    pool = BlockPool(2)
    pool.allocate()
    pool._refs[0] = 0
    with pytest.raises(AssertionError, match="without references"):
        pool.check()


@pytest.mark.parametrize("num_blocks", [0, -1, 1.5, True, None])
def test_sizes_are_checked(num_blocks: object) -> None:
    with pytest.raises(InvalidInput, match="num_blocks"):
        BlockPool(num_blocks)  # type: ignore[arg-type]
