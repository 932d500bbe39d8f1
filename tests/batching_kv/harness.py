"""A backend that remembers, per slot, of which prefix it holds the keys and values.

The truth that every test compares with: position p of a sequence must hold what a model
would have computed from this tenant's tokens 0..p, whoever computed it.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime_py.batching.kv import KVManager
from runtime_py.batching.kv.prefix_cache import TokenHash, fnv1a

Slot = tuple[str, tuple[int, ...]]


class Harness:
    """A `KVManager` with memory behind it."""

    def __init__(self, num_blocks: int, block_size: int, token_hash: TokenHash = fnv1a) -> None:
        self.kv = KVManager(num_blocks, block_size, model="m", token_hash=token_hash)
        self.size = block_size
        self.memory: list[list[Slot | None]] = [[None] * block_size for _ in range(num_blocks)]
        self.tokens: dict[int, list[int]] = {}
        self.salts: dict[int, str] = {}

    def start(self, seq_id: int, tokens: Sequence[int], salt: str = "") -> int:
        promised, _ = self.kv.cost(tokens, 1, salt)
        cached = self.kv.start(seq_id, tokens, salt)
        self.tokens[seq_id], self.salts[seq_id] = list(tokens), salt
        assert cached == promised < len(tokens)
        self.verify(seq_id)
        return cached

    def step(self, seq_id: int, num_tokens: int) -> bool:
        """Reserve, make the copies, write, report; False if memory is short."""
        before, free = self.kv.block_table(seq_id), self.kv.free_blocks
        reservation = self.kv.reserve(seq_id, num_tokens)
        if reservation is None:
            assert (self.kv.block_table(seq_id), self.kv.free_blocks) == (before, free)
            return False
        for source, target in reservation.copies:
            self.memory[target] = list(self.memory[source])
        first = self.kv.num_computed(seq_id)
        for p in range(first, first + num_tokens):
            block = reservation.block_table[p // self.size]
            self.memory[block][p % self.size] = self.truth(seq_id, p)
        self.kv.computed(seq_id, num_tokens)
        self.verify(seq_id)
        return True

    def left(self, seq_id: int) -> int:
        return len(self.tokens[seq_id]) - self.kv.num_computed(seq_id)

    def append(self, seq_id: int, token: int) -> None:
        self.kv.append(seq_id, token)
        self.tokens[seq_id].append(token)

    def fork(self, seq_id: int, child_id: int) -> None:
        self.kv.fork(seq_id, child_id)
        self.tokens[child_id] = list(self.tokens[seq_id])
        self.salts[child_id] = self.salts[seq_id]

    def release(self, seq_id: int) -> None:
        self.kv.release(seq_id)
        self.tokens.pop(seq_id, None)
        self.salts.pop(seq_id, None)

    def truth(self, seq_id: int, position: int) -> Slot:
        return self.salts[seq_id], tuple(self.tokens[seq_id][: position + 1])

    def verify(self, seq_id: int) -> None:
        table = self.kv.block_table(seq_id)
        for p in range(self.kv.num_computed(seq_id)):
            assert self.memory[table[p // self.size]][p % self.size] == self.truth(seq_id, p)

    def run(self, seq_id: int, tokens: Sequence[int], salt: str = "", chunk: int = 1 << 30) -> int:
        """Start and prefill; returns the cached tokens."""
        cached = self.start(seq_id, tokens, salt)
        while left := self.left(seq_id):
            assert self.step(seq_id, min(chunk, left))
        return cached
