"""Reservation, forks, preemption and release."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runtime_py.batching.kv import BlockCopy, KVManager, fnv1a
from runtime_py.batching.kv.prefix_cache import TokenHash
from runtime_py.errors import InvalidInput
from tests.batching_kv.harness import Harness
from tests.batching_kv.test_prefix_cache import constant


def test_a_reservation_is_all_or_nothing() -> None:
    h = Harness(3, 4)
    h.start(0, list(range(20)))
    assert not h.step(0, 13)
    assert h.kv.free_blocks == 3
    assert h.step(0, 12)
    assert not h.step(0, 1)
    assert not h.kv.fits(13)
    assert h.kv.fits(12)


def test_a_failed_step_keeps_its_reservation() -> None:
    h = Harness(3, 4)
    h.start(0, list(range(8)))
    first = h.kv.reserve(0, 8)
    assert h.kv.reserve(0, 8) == first
    assert h.kv.reserve(0, 2) == first
    h.kv.computed(0, 2)
    assert h.kv.num_computed(0) == 2


def test_a_fork_copies_only_the_partial_block_and_the_last_holder_none() -> None:
    h = Harness(8, 4)
    h.run(0, list(range(6)))
    h.fork(0, 1)
    h.fork(0, 2)
    shared = h.kv.block_table(0)
    for seq, token in ((0, 50), (1, 51), (2, 52)):
        h.append(seq, token)
    first = h.kv.reserve(0, 1)
    assert first is not None
    assert first.copies == (BlockCopy(shared[1], 2),)
    assert h.kv.reserve(1, 1) == ((shared[0], 3), (BlockCopy(shared[1], 3),))
    assert h.kv.reserve(2, 1) == (shared, ())
    assert h.kv.stats.copied_blocks == 2


def test_a_fork_at_a_block_border_copies_nothing() -> None:
    h = Harness(4, 4)
    h.run(0, list(range(4)))
    h.fork(0, 1)
    for seq in (0, 1):
        h.append(seq, seq)
        assert h.step(seq, 1)
    assert h.kv.stats.copied_blocks == 0
    assert h.kv.block_table(0)[0] == h.kv.block_table(1)[0]


def test_a_fork_shares_reserved_slots_that_nothing_was_written_to() -> None:
    h = Harness(4, 4)
    h.start(0, [1, 2, 3])
    assert h.kv.reserve(0, 3) is not None
    h.fork(0, 1)
    assert h.step(1, 3)
    assert h.step(0, 3)
    assert h.kv.stats.copied_blocks == 0
    assert h.kv.block_table(0) != h.kv.block_table(1)


def test_a_copy_that_a_failed_step_did_not_make_is_asked_for_again() -> None:
    h = Harness(8, 4)
    h.run(0, [1, 2])
    h.fork(0, 1)
    h.append(1, 3)
    first = h.kv.reserve(1, 1)
    assert first is not None
    assert len(first.copies) == 1
    h.release(0)
    h.run(2, list(range(20, 44)))  # every free block is written
    assert h.kv.free_blocks == 0
    h.fork(1, 3)
    assert h.kv.reserve(1, 1) == first
    assert h.step(1, 1)
    assert h.step(3, 1)  # in place: the source has no other owner
    assert h.kv.stats.copied_blocks == 1


def test_memory_too_short_for_the_copy() -> None:
    h = Harness(1, 4)
    h.run(0, [1, 2])
    h.fork(0, 1)
    h.append(1, 3)
    assert not h.step(1, 1)
    h.release(0)
    assert h.step(1, 1)


def test_preempt_and_resume_finds_its_own_blocks() -> None:
    h = Harness(4, 4)
    h.run(0, list(range(10)))
    assert h.kv.preempt(0) == 10
    assert h.kv.free_blocks == 4
    assert h.kv.resume(0) == 8
    h.verify(0)
    assert h.step(0, 2)
    with pytest.raises(InvalidInput, match="preempted"):
        h.kv.resume(0)
    assert h.kv.stats.preemptions == 1


def test_advance_is_computed_and_append() -> None:
    h = Harness(8, 4)
    h.run(0, list(range(6)))
    h.append(0, 50)
    seq = h.kv.sequence(0)
    h.kv.advance(seq, 51)
    assert (h.kv.num_computed(0), seq.tokens[-2:]) == (7, [50, 51])
    h.kv.advance(seq, 52)
    h.kv.release(0)
    assert h.kv.start(1, [*range(6), 50, 51, 9]) == 8  # what it filled is found
    h.kv.fork(1, 2)
    assert h.kv.sequence(1).forked  # its last block is not its own
    assert h.kv.sequence(2).forked


def test_changes_tell_how_to_follow_the_table() -> None:
    h = Harness(16, 4)
    tables: dict[int, list[int]] = {0: [], 1: []}

    def follow(seq: int) -> None:
        kept, blocks = h.kv.changes(seq)
        tables[seq] = [*tables[seq][:kept], *blocks]
        assert tuple(tables[seq]) == h.kv.block_table(seq)
        assert h.kv.changes(seq) == (len(tables[seq]), ())

    h.run(0, list(range(6)))
    follow(0)
    h.fork(0, 1)
    for seq in (0, 1):
        h.append(seq, seq)
        assert h.kv.reserve(seq, 1) is not None
        follow(seq)
    h.kv.preempt(0)
    h.kv.resume(0)
    follow(0)


def test_discard_lets_nobody_find_the_blocks() -> None:
    h = Harness(8, 4)
    h.run(0, list(range(9)))
    h.kv.discard(0)
    h.kv.discard(0)
    assert h.kv.start(1, list(range(9))) == 0
    h.kv.release(1)
    h.kv.check_idle()


def test_cost_is_what_is_then_taken() -> None:
    h = Harness(16, 4)
    h.run(0, list(range(12)))
    prompt = [*range(8), 99, 98, 97, 96, 95]
    cached, blocks = h.kv.cost(prompt, 3)
    assert (cached, blocks) == (8, 1)
    free = h.kv.free_blocks
    h.start(1, prompt)
    assert h.step(1, 3)
    assert free - h.kv.free_blocks == blocks


def test_C15_late_and_repeated_events_do_nothing() -> None:
    h = Harness(4, 4)
    h.run(0, [1, 2, 3])
    h.release(0)
    h.release(0)
    h.kv.release(99)
    h.kv.computed(0, 3)
    h.kv.check_idle()


def test_C15_abort_between_match_and_reserve() -> None:
    h = Harness(4, 2)
    h.run(0, [1, 2, 3])
    h.release(0)
    assert h.start(1, [1, 2, 9]) == 2
    assert h.kv.free_blocks == 3
    h.release(1)
    h.kv.check_idle()


def test_idle_check_names_a_leak() -> None:
    kv = KVManager(2, 2)
    kv.start(0, [1])
    kv.reserve(0, 1)
    with pytest.raises(AssertionError, match="1 sequences hold 1 blocks"):
        kv.check_idle()


def test_misuse_is_typed() -> None:
    kv = KVManager(2, 2)
    kv.start(0, [1, 2])
    for call in (
        lambda: kv.start(0, [1]),
        lambda: kv.start(1, []),
        lambda: kv.reserve(0, 3),
        lambda: kv.reserve(0, 0),
        lambda: kv.reserve(7, 1),
        lambda: kv.computed(0, 1),
        lambda: kv.append(7, 1),
        lambda: kv.fork(0, 0),
        lambda: kv.fork(7, 8),
        lambda: kv.preempt(7),
        lambda: KVManager(2, 0),
        lambda: KVManager(0, 2),
    ):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert "\n" not in str(caught.value)


def random_event(h: Harness, rng: random.Random, new_id: int) -> None:
    """One submit, step, token, fork, preemption, resumption, abort or finish."""
    alive = list(h.tokens)
    if not alive or (len(alive) < 6 and rng.random() < 0.15):
        prompt = [rng.randrange(2) for _ in range(rng.randrange(1, 24))]
        h.start(new_id, prompt, rng.choice(["", "", "t"]))
        return
    seq = rng.choice(alive)
    match rng.randrange(12):
        case 0:
            h.release(seq)
        case 1 if len(alive) < 6:
            h.fork(seq, new_id)
        case 2:
            h.kv.preempt(seq)
            if rng.random() < 0.8:
                h.kv.resume(seq)
                h.verify(seq)
        case 3:
            h.kv.reserve(seq, max(1, h.left(seq))) if h.left(seq) else None  # and it fails
        case _:
            if len(h.tokens[seq]) > 60:
                h.release(seq)
            elif h.left(seq) == 0:
                h.append(seq, rng.randrange(2))
            elif not h.step(seq, rng.randrange(1, h.left(seq) + 1)):
                h.kv.preempt(rng.choice(alive))


@pytest.mark.parametrize("token_hash", [fnv1a, constant])
@pytest.mark.parametrize("blocks", [9, 40])
def test_C15_ten_thousand_random_events(token_hash: TokenHash, blocks: int) -> None:
    rng = random.Random(blocks)
    h = Harness(blocks, 3, token_hash)
    for i in range(10_000):
        random_event(h, rng, i)
        if i % 97 == 0:
            h.kv.check()
            for seq in h.tokens:
                h.verify(seq)
    stats = h.kv.stats
    assert min(stats.cached_tokens, stats.evicted_blocks, stats.copied_blocks) > 30
    for seq in list(h.tokens):
        h.release(seq)
    h.kv.check_idle()
    assert h.kv.free_blocks == blocks


class KVMachine(RuleBasedStateMachine):
    """The same, with inputs that Hypothesis chooses and shrinks."""

    def __init__(self) -> None:
        super().__init__()
        self.h = Harness(8, 2)
        self.next_id = 0

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=9), salt=st.sampled_from("ab"))
    def start(self, tokens: list[int], salt: str) -> None:
        self.h.start(self.next_id, tokens, salt)
        self.next_id += 1

    @precondition(lambda self: self.h.tokens)
    @rule(pick=st.integers(0, 99), amount=st.integers(1, 9), token=st.integers(0, 1))
    def step(self, pick: int, amount: int, token: int) -> None:
        seq = self.pick(pick)
        if self.h.left(seq) == 0:
            self.h.append(seq, token)
        self.h.step(seq, min(amount, self.h.left(seq)))

    @precondition(lambda self: self.h.tokens)
    @rule(pick=st.integers(0, 99))
    def fork(self, pick: int) -> None:
        self.h.fork(self.pick(pick), self.next_id)
        self.next_id += 1

    @precondition(lambda self: self.h.tokens)
    @rule(pick=st.integers(0, 99), back=st.booleans())
    def preempt(self, pick: int, back: bool) -> None:
        self.h.kv.preempt(self.pick(pick))
        if back:
            self.h.kv.resume(self.pick(pick))

    @precondition(lambda self: self.h.tokens)
    @rule(pick=st.integers(0, 99))
    def release(self, pick: int) -> None:
        self.h.release(self.pick(pick))

    @rule()
    def clear(self) -> None:
        self.h.kv.clear_cache()

    @invariant()
    def every_slot_holds_its_prefix(self) -> None:
        self.h.kv.check()
        for seq in self.h.tokens:
            self.h.verify(seq)

    def pick(self, number: int) -> int:
        alive = list(self.h.tokens)
        return alive[number % len(alive)]

    def teardown(self) -> None:
        for seq in list(self.h.tokens):
            self.h.release(seq)
        self.h.kv.check_idle()


TestKVMachine = KVMachine.TestCase
TestKVMachine.settings = settings(max_examples=50, stateful_step_count=40)
