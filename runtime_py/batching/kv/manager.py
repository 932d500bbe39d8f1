"""Blocks of sequences: match a prefix, reserve slots, fork, preempt, release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from runtime_py.batching.kv.block_pool import BlockPool
from runtime_py.batching.kv.prefix_cache import Node, PrefixCache, TokenHash, fnv1a
from runtime_py.errors import InvalidInput


class BlockCopy(NamedTuple):
    """The backend copies all of block ``source`` to ``target``, in every layer."""

    source: int
    target: int


class Reservation(NamedTuple):
    """Slots for the next tokens of a sequence.

    Attributes:
        block_table: the sequence's blocks, in order of position.
        copies: to be made in this order, before anything of the step is written.
    """

    block_table: tuple[int, ...]
    copies: tuple[BlockCopy, ...]


class KVStats(NamedTuple):
    """Counters of a `KVManager`; tokens and blocks since the start unless said otherwise.

    Attributes:
        num_blocks, free_blocks, cached_blocks: now; cached ones may be free or in use.
        sequences: now.
        queried_tokens: tokens of sequences that were started or resumed.
        cached_tokens: those of them that a cached prefix covered.
        evicted_blocks: cached blocks whose memory was taken for something else.
        copied_blocks: copies that forks made necessary.
        preemptions: sequences whose blocks were taken away.
    """

    num_blocks: int
    free_blocks: int
    cached_blocks: int
    sequences: int
    queried_tokens: int
    cached_tokens: int
    evicted_blocks: int
    copied_blocks: int
    preemptions: int


class KVSequence:
    """What a `KVManager` knows of a sequence; only the manager changes it.

    Attributes:
        tokens: its known ids.
        blocks: its block table.
        computed: tokens whose keys and values are in its blocks.
        changed: first entry of the table that differs from what `changes` last told.
        forked: its last block may be another's as well, so only `reserve` knows where the
            next token goes.
    """

    __slots__ = (
        "blocks",
        "chain",
        "changed",
        "computed",
        "copy",
        "forked",
        "node",
        "salt",
        "tokens",
    )

    def __init__(self, tokens: list[int], salt: str) -> None:
        self.tokens = tokens
        self.salt = salt
        self.blocks: list[int] = []
        self.computed = 0
        self.changed = 0
        self.copy: BlockCopy | None = None  # of the block that `computed` lies in; not yet made
        self.forked = False
        self.chain = 0  # full blocks whose content the cache knows
        self.node: Node | None = None  # node of the last of them


class KVManager:
    """Owns every block of one model's cache.

    A sequence goes ``start`` -> (``reserve`` -> step -> ``computed`` -> ``append``)* ->
    ``release``. Only `reserve` takes memory, and it takes all that it needs or nothing.
    Release or preempt a sequence only when no step that writes its blocks is in flight.

    Args:
        num_blocks: blocks of the backend's cache.
        block_size: tokens of a block.
        model: name of the model, part of the prefix cache's namespace.
        prefix_caching: whether full blocks are found again.
        token_hash: hash of the prefix cache; see `PrefixCache`.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        model: str = "",
        prefix_caching: bool = True,
        token_hash: TokenHash = fnv1a,
    ) -> None:
        if isinstance(block_size, bool) or not isinstance(block_size, int) or block_size < 1:
            raise InvalidInput(f"block_size is {block_size!r}, expected a positive whole number")
        self.block_size = block_size
        self._pool = BlockPool(num_blocks)
        self._cache = PrefixCache(block_size, model, token_hash)
        self._caching = prefix_caching
        self._sequences: dict[int, KVSequence] = {}
        self._sources: dict[int, int] = {}  # block: copies that are still to be made from it
        self._queried = self._hits = self._evicted = self._copied = self._preempted = 0

    @property
    def free_blocks(self) -> int:
        """Blocks that `reserve` can take, cached ones included."""
        return self._pool.num_free

    @property
    def stats(self) -> KVStats:
        return KVStats(
            self._pool.num_blocks,
            self._pool.num_free,
            len(self._cache),
            len(self._sequences),
            self._queried,
            self._hits,
            self._evicted,
            self._copied,
            self._preempted,
        )

    def fits(self, num_tokens: int) -> bool:
        """Whether a sequence of ``num_tokens`` fits into the empty cache."""
        return self._blocks_for(num_tokens) <= self._pool.num_blocks

    def cost(self, tokens: Sequence[int], num_tokens: int, salt: str = "") -> tuple[int, int]:
        """What starting a sequence and reserving its first step would take; changes nothing.

        Args:
            tokens: its ids.
            num_tokens: tokens of the first step, after the cached ones.
            salt: its tenant.

        Returns:
            (tokens that are cached, free blocks that it would use up).
        """
        chain = self._match(tokens, salt)
        cached = len(chain) * self.block_size
        total = self._blocks_for(min(cached + num_tokens, len(tokens)))
        shared = sum(1 for node in chain if self._pool.refs(node.block) > 0)
        return cached, total - shared

    def start(self, seq_id: int, tokens: Sequence[int], salt: str = "") -> int:
        """Begin a sequence, holding on to the cached blocks of its prefix.

        At least the last token is left to compute, since its logits are wanted.

        Args:
            seq_id: a new number.
            tokens: ids, at least one.
            salt: namespace of its tenant; caches of different salts are never shared.

        Returns:
            how many tokens are cached: the first to compute.

        Raises:
            InvalidInput: the number is in use, or there are no tokens.
        """
        if seq_id in self._sequences:
            raise InvalidInput(f"sequence {seq_id} exists, expected a new number")
        if not tokens:
            raise InvalidInput("a sequence has no tokens, expected at least one")
        seq = KVSequence(list(tokens), salt)
        self._sequences[seq_id] = seq
        return self._attach(seq)

    def reserve(self, seq_id: int, num_tokens: int) -> Reservation | None:
        """Slots for the next ``num_tokens`` known tokens of a sequence.

        A last block that another sequence shares is replaced by a copy of its own. Until
        `computed` says that the step ran, the same copy is asked for again: a step may
        fail before it is made, so its source is kept as long.

        Returns:
            None, with nothing changed, if too few blocks are free.

        Raises:
            InvalidInput: no such sequence, or it has not that many tokens to compute.
        """
        seq = self._get(seq_id)
        left = len(seq.tokens) - seq.computed
        if not 1 <= num_tokens <= left:
            raise InvalidInput(
                f"{num_tokens} tokens asked for sequence {seq_id}, expected 1 to {left}"
            )
        first = seq.computed // self.block_size
        end = self._blocks_for(seq.computed + num_tokens)
        shared = [i for i in range(first, len(seq.blocks)) if self._is_shared(seq.blocks[i])]
        if max(0, end - len(seq.blocks)) + len(shared) > self._pool.num_free:
            return None
        for i in shared:
            source, seq.blocks[i] = seq.blocks[i], self._allocate()
            seq.changed = min(seq.changed, i)
            if seq.computed > i * self.block_size:
                # the sequence's reference to the source now stands for the copy
                seq.copy = BlockCopy(source, seq.blocks[i])
                self._sources[source] = self._sources.get(source, 0) + 1
                self._copied += 1
            else:
                self._release(source)
        while len(seq.blocks) < end:
            seq.blocks.append(self._allocate())
        seq.forked = seq.copy is not None
        return Reservation(tuple(seq.blocks), () if seq.copy is None else (seq.copy,))

    def changes(self, seq_id: int) -> tuple[int, tuple[int, ...]]:
        """How the block table differs from what the last call told.

        Returns:
            (entries at its start that stay, the entries after them).
        """
        seq = self._get(seq_id)
        kept = seq.changed
        seq.changed = len(seq.blocks)
        return kept, tuple(seq.blocks[kept:])

    def advance(self, seq: KVSequence, token: int) -> None:
        """`computed` for the last known token, then `append`, of a sequence that lives."""
        if seq.copy is not None:
            self._drop_copy(seq)
        seq.computed += 1
        if seq.computed % self.block_size == 0 and self._caching:
            self._publish(seq)
        seq.tokens.append(token)

    def computed(self, seq_id: int, num_tokens: int) -> None:
        """A step wrote the keys and values of the next ``num_tokens`` tokens.

        Blocks that are full now can be found by others. A sequence that was released
        meanwhile is ignored.

        Raises:
            InvalidInput: more tokens than were reserved.
        """
        seq = self._sequences.get(seq_id)
        if seq is None:
            return
        room = min(len(seq.blocks) * self.block_size, len(seq.tokens)) - seq.computed
        if not 0 <= num_tokens <= room:
            raise InvalidInput(
                f"{num_tokens} tokens computed for sequence {seq_id}, expected 0 to {room}"
            )
        if num_tokens:
            self._drop_copy(seq)
        seq.computed += num_tokens
        if self._caching:
            self._publish(seq)

    def append(self, seq_id: int, token: int) -> None:
        """Add a sampled token; its slot is reserved when it is computed."""
        self._get(seq_id).tokens.append(token)

    def fork(self, seq_id: int, child_id: int) -> None:
        """Begin ``child_id`` as a twin of ``seq_id``, sharing all of its blocks.

        Whichever of them first writes into the shared last block gets a copy of it from
        `reserve`; the last one left writes in place.

        Raises:
            InvalidInput: no such sequence, or the child's number is in use.
        """
        seq = self._get(seq_id)
        if child_id in self._sequences:
            raise InvalidInput(f"sequence {child_id} exists, expected a new number")
        child = KVSequence(list(seq.tokens), seq.salt)
        child.blocks, child.computed = list(seq.blocks), seq.computed
        child.chain, child.node = seq.chain, seq.node
        child.forked = seq.forked = True
        if seq.copy is not None:  # not made yet: the child begins from its source as well
            child.blocks[seq.blocks.index(seq.copy.target)] = seq.copy.source
        for block in child.blocks:
            self._pool.retain(block)
        self._sequences[child_id] = child

    def preempt(self, seq_id: int) -> int:
        """Take a sequence's blocks away, keeping its tokens for `resume`.

        Returns:
            how many computed tokens are lost, except for what stays cached.
        """
        seq = self._get(seq_id)
        lost = seq.computed
        self._detach(seq)
        self._preempted += 1
        return lost

    def resume(self, seq_id: int) -> int:
        """Start a preempted sequence again from its tokens; returns as `start` does.

        Raises:
            InvalidInput: no such sequence, or it holds blocks.
        """
        seq = self._get(seq_id)
        if seq.blocks:
            raise InvalidInput(f"sequence {seq_id} holds blocks, expected a preempted one")
        return self._attach(seq)

    def release(self, seq_id: int) -> None:
        """End a sequence, at any point; a second time, or an unknown one, does nothing."""
        seq = self._sequences.pop(seq_id, None)
        if seq is not None:
            self._detach(seq)

    def discard(self, seq_id: int) -> None:
        """`release`, and find none of its blocks again: their contents are not to be trusted."""
        seq = self._sequences.get(seq_id)
        if seq is not None:
            for block in seq.blocks:
                self._forget(block)
            self.release(seq_id)

    def sequence(self, seq_id: int) -> KVSequence:
        """The sequence itself, for reading.

        Raises:
            InvalidInput: no such sequence.
        """
        return self._get(seq_id)

    def block_table(self, seq_id: int) -> tuple[int, ...]:
        """Blocks of a sequence in order of position."""
        return tuple(self._get(seq_id).blocks)

    def num_computed(self, seq_id: int) -> int:
        """Tokens of a sequence whose keys and values are in its blocks."""
        return self._get(seq_id).computed

    def clear_cache(self) -> None:
        """Forget every cached prefix; sequences keep their blocks."""
        for block in range(self._pool.num_blocks):
            self._forget(block)

    def check(self) -> None:
        """Raise AssertionError unless every reference is some sequence's; for tests."""
        self._pool.check()
        held = [0] * self._pool.num_blocks
        for seq in self._sequences.values():
            for block in seq.blocks if seq.copy is None else (*seq.blocks, seq.copy.source):
                held[block] += 1
        wrong = [b for b, n in enumerate(held) if n != self._pool.refs(b)]
        if wrong:
            raise AssertionError(f"block {wrong[0]} has {self._pool.refs(wrong[0])} references")

    def check_idle(self) -> None:
        """Raise AssertionError if something leaked; to be called when no request is left."""
        self.check()
        if self._sequences or self._pool.num_free != self._pool.num_blocks:
            raise AssertionError(
                f"idle, but {len(self._sequences)} sequences hold "
                f"{self._pool.num_blocks - self._pool.num_free} blocks"
            )

    def _get(self, seq_id: int) -> KVSequence:
        seq = self._sequences.get(seq_id)
        if seq is None:
            raise InvalidInput(f"there is no sequence {seq_id}")
        return seq

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _match(self, tokens: Sequence[int], salt: str) -> list[Node]:
        longest = (len(tokens) - 1) // self.block_size if self._caching else 0
        return self._cache.match(salt, tokens, longest)

    def _attach(self, seq: KVSequence) -> int:
        chain = self._match(seq.tokens, seq.salt)
        for node in chain:
            self._pool.retain(node.block)
            seq.blocks.append(node.block)
        seq.chain, seq.node = len(chain), chain[-1] if chain else None
        seq.computed = len(chain) * self.block_size
        seq.changed = 0
        self._queried += len(seq.tokens)
        self._hits += seq.computed
        return seq.computed

    def _detach(self, seq: KVSequence) -> None:
        """Last block first: of two cached blocks the longer prefix is evicted first."""
        self._drop_copy(seq)
        for block in reversed(seq.blocks):
            self._release(block)
        seq.blocks.clear()
        seq.computed = seq.chain = 0
        seq.node = None

    def _is_shared(self, block: int) -> bool:
        """Whether more than one block table lists it."""
        return self._pool.refs(block) - self._sources.get(block, 0) > 1

    def _drop_copy(self, seq: KVSequence) -> None:
        """The copy was made, or is not wanted any more."""
        if seq.copy is None:
            return
        source, seq.copy = seq.copy.source, None
        self._sources[source] -= 1
        if self._sources[source] == 0:
            del self._sources[source]
        self._release(source)

    def _release(self, block: int) -> None:
        self._pool.release(block, keep=self._cache.holds(block))

    def _allocate(self) -> int:
        block = self._pool.allocate()
        self._forget(block)
        return block

    def _forget(self, block: int) -> None:
        for gone in self._cache.evict(block):
            self._evicted += 1
            self._pool.forget(gone)

    def _publish(self, seq: KVSequence) -> None:
        """Tell the cache about the blocks that have become full."""
        full = seq.computed // self.block_size
        if full == seq.chain:
            return
        if seq.node is None or not seq.node.alive:
            # Its prefix was another sequence's and has been evicted: begin with its own
            seq.chain, seq.node = 0, self._cache.root(seq.salt)
        for i in range(seq.chain, full):
            tokens = tuple(seq.tokens[i * self.block_size : (i + 1) * self.block_size])
            seq.node = self._cache.add(seq.node, tokens, seq.blocks[i])
        seq.chain = full
