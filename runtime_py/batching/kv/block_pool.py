"""A fixed number of blocks, their reference counts, and the order in which they are reused."""

from __future__ import annotations

from runtime_py.errors import InvalidInput

_END = -1


class BlockPool:
    """Blocks 0 .. num_blocks - 1; every one is either referenced or in the free list.

    The free list is a doubly linked list in arrays. Blocks that hold nothing worth keeping
    enter at the front, blocks that the prefix cache knows at the back, and allocation
    takes the front: cached blocks survive as long as they can and go least recently
    released first.

    Args:
        num_blocks: blocks that the backend has allocated.
    """

    def __init__(self, num_blocks: int) -> None:
        if isinstance(num_blocks, bool) or not isinstance(num_blocks, int) or num_blocks < 1:
            raise InvalidInput(f"num_blocks is {num_blocks!r}, expected a positive whole number")
        self._refs = [0] * num_blocks
        self._next = [*range(1, num_blocks), _END]
        self._prev = [_END, *range(num_blocks - 1)]
        self._front, self._back = 0, num_blocks - 1
        self._num_free = num_blocks

    @property
    def num_blocks(self) -> int:
        return len(self._refs)

    @property
    def num_free(self) -> int:
        """Blocks that nobody references, cached ones included."""
        return self._num_free

    def refs(self, block: int) -> int:
        """How many block tables list ``block``."""
        return self._refs[block]

    def next_free(self) -> int | None:
        """The block that `allocate` takes next."""
        return None if self._front == _END else self._front

    def allocate(self) -> int:
        """Take the front of the free list, with one reference.

        Raises:
            IndexError: no block is free; callers look at `num_free` first.
        """
        block = self._front
        if block == _END:
            raise IndexError("no free block")
        self._unlink(block)
        self._refs[block] = 1
        return block

    def retain(self, block: int) -> None:
        """Add a reference; a free block leaves the free list with its contents."""
        if self._refs[block] == 0:
            self._unlink(block)
        self._refs[block] += 1

    def release(self, block: int, *, keep: bool) -> None:
        """Drop a reference; with the last one the block becomes free.

        Args:
            block: a referenced block.
            keep: its contents are cached, so it should be reused last.

        Raises:
            AssertionError: nobody references it: a double release.
        """
        if self._refs[block] < 1:
            raise AssertionError(f"block {block} was released but nobody holds it")
        self._refs[block] -= 1
        if self._refs[block] == 0:
            self._link(block, at_back=keep)

    def forget(self, block: int) -> None:
        """The contents of ``block`` are worth nothing any more: a free one is reused first."""
        if self._refs[block] == 0:
            self._unlink(block)
            self._link(block, at_back=False)

    def check(self) -> None:
        """Raise AssertionError unless the list and the counts agree; O(num_blocks)."""
        seen, block, before = 0, self._front, _END
        while block != _END and seen <= len(self._refs):
            if self._refs[block] != 0 or self._prev[block] != before:
                raise AssertionError(f"the free list is broken at block {block}")
            seen, before, block = seen + 1, block, self._next[block]
        unreferenced = sum(1 for n in self._refs if n == 0)
        if not seen == unreferenced == self._num_free or before != self._back:
            raise AssertionError(
                f"{seen} blocks in the free list, {unreferenced} without references, "
                f"{self._num_free} counted as free"
            )

    def _unlink(self, block: int) -> None:
        before, after = self._prev[block], self._next[block]
        if before == _END:
            self._front = after
        else:
            self._next[before] = after
        if after == _END:
            self._back = before
        else:
            self._prev[after] = before
        self._num_free -= 1

    def _link(self, block: int, *, at_back: bool) -> None:
        before = self._back if at_back else _END
        after = _END if at_back else self._front
        self._prev[block], self._next[block] = before, after
        if before == _END:
            self._front = block
        else:
            self._next[before] = block
        if after == _END:
            self._back = block
        else:
            self._prev[after] = block
        self._num_free += 1
