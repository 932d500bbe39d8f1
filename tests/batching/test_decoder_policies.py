"""What the decoder side promises, one policy a test, named after the report it answers."""

from __future__ import annotations

from itertools import pairwise

import pytest

from runtime_py.batching import (
    BoundBy,
    DeviceSpec,
    FinishReason,
    LaneSpec,
    RequestArrived,
    SampleStopped,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    TrafficClass,
    replay,
)
from runtime_py.errors import InvalidInput
from tests.batching.decoder_world import LANE, MS, DecoderWorld, alone

BULK = TrafficClass.THROUGHPUT


def says(world: DecoderWorld, request_id: int, sample: int = 0) -> list[int]:
    return world.tokens.get((request_id, sample), [])


# --- texts do not depend on company


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 7, 16, 64])
def test_a_prompt_chunked_at_any_size_says_the_same(chunk: int) -> None:
    world = DecoderWorld(config=SchedulerConfig(max_batch_tokens=chunk), max_seqs=1)
    prompt = list(range(30))
    request = world.generate(prompt, 9)
    world.drain()
    assert says(world, request) == alone(prompt, 9)
    chunks = [s.num_tokens for step in world.steps for s in step.seqs if s.context_len < 29]
    assert max(chunks) == min(chunk, 30)
    assert world.ends[request, 0] is FinishReason.LENGTH


@pytest.mark.parametrize("others", [1, 7, 31])
def test_G5_G7_streams_that_join_and_leave_change_no_text(others: int) -> None:
    world = DecoderWorld(blocks=400, max_seqs=32, max_tokens=128)
    prompt = [5, 6, 7]
    request = world.generate(prompt, 40)
    for i in range(others):
        other = world.generate([*prompt, *range(i)], 3 + i % 17)
        world.advance()
        if i % 5 == 4:
            world.abort(other)
    world.drain()
    assert says(world, request) == alone(prompt, 40)


def test_C14_a_warm_prefix_computes_less_and_says_the_same() -> None:
    world = DecoderWorld()
    prompt = list(range(32))
    for i in range(4):
        request = world.generate(prompt, 6)
        world.drain()
        assert says(world, request) == alone(prompt, 6)
        first = next(s for st in world.steps for s in st.seqs if s.request_id == request)
        # the last token is always computed: its logits are wanted
        assert first.context_len == (0 if i == 0 else 28)
    other = world.generate([*prompt[:16], 900, 901], 6)
    world.drain()
    assert says(world, other) == alone([*prompt[:16], 900, 901], 6)


def test_C14_tenants_share_nothing() -> None:
    world = DecoderWorld()
    prompt = list(range(32))
    world.generate(prompt, 2, salt="a")
    world.drain()
    stranger = world.generate(prompt, 2, salt="b")
    world.drain()
    first = next(s for st in world.steps for s in st.seqs if s.request_id == stranger)
    assert first.context_len == 0


def test_C14_prefix_caching_can_be_switched_off() -> None:
    world = DecoderWorld(config=SchedulerConfig(prefix_caching=False))
    for _ in range(2):
        world.generate(range(32), 2)
        world.drain()
    assert world.kv.stats.cached_tokens == 0


def test_samples_share_the_prompt_and_differ_after_it() -> None:
    world = DecoderWorld(blocks=40)
    prompt = list(range(18))
    request = world.generate(prompt, 6, samples=4)
    world.drain()
    for sample in range(4):
        assert says(world, request, sample) == alone(prompt, 6, sample=sample)
    # the prompt once, its last token four times, and five more tokens each
    assert world.computed == 17 + 4 + 4 * 5
    assert world.kv.stats.copied_blocks == 3
    assert len({world.times[request, s][0] for s in range(4)}) == 1


# --- ends


def test_G3_any_of_the_stop_ids_ends_a_sample_in_that_step() -> None:
    world = DecoderWorld()
    truth = alone([1, 2, 3], 20)
    first = world.generate([1, 2, 3], 20, stop_ids=(truth[9], truth[5]))
    mate = world.generate([4], 20)
    world.drain()
    assert says(world, first) == truth[:6]
    assert world.ends[first, 0] is FinishReason.STOP
    assert says(world, mate) == alone([4], 20)
    assert sum(s.request_id == first for st in world.steps for s in st.seqs) == 6


def test_a_sample_that_the_driver_stops_is_in_no_further_step() -> None:
    world = DecoderWorld()
    request = world.generate([1], 20)
    step = world.steps[-1]
    sampled = tuple(alone([1], 1))
    world.running.clear()
    world.handle(
        StepCompleted(step.step_id, StepOutcome.OK, MS, (), sampled), SampleStopped(request, 0)
    )
    assert world.ends[request, 0] is FinishReason.STOP
    assert len(world.steps) == 1
    world.check_idle()


def test_length_is_max_tokens_or_the_context() -> None:
    world = DecoderWorld(max_context=20)
    short, long = world.generate(range(10), 4), world.generate(range(10), 400)
    world.drain()
    assert len(says(world, short)) == 4
    assert len(says(world, long)) == 10
    assert world.ends[long, 0] is FinishReason.LENGTH


def test_G9_abort_at_every_moment_frees_everything_within_one_step() -> None:
    for moment in range(9):
        world = DecoderWorld(config=SchedulerConfig(max_batch_tokens=6))
        request = world.generate(range(16), 10, samples=2)
        mate = world.generate([3, 4], 10)
        for _ in range(moment):
            world.advance()
        world.abort(request)
        world.abort(request)
        before = len(world.steps)
        later = world.generate([8], 3)
        world.drain()
        world.abort(request)
        assert all(s.request_id != request for st in world.steps[before:] for s in st.seqs)
        assert says(world, mate) == alone([3, 4], 10)
        assert says(world, later) == alone([8], 3)
        assert world.finished[request].reason is FinishReason.ABORTED


# --- admission


def test_C10_what_never_fits_is_refused_with_the_limit_and_blocks_nobody() -> None:
    world = DecoderWorld(blocks=16, block_size=4)  # 64 tokens
    too_long = world.generate(range(65), 1)
    exact = world.generate(range(64), 1)
    capped = world.generate(range(60), 10)
    small = world.generate([1], 3)
    crowd = world.generate([1], 3, samples=9)
    world.drain()
    for request in (too_long, exact):
        assert world.finished[request].reason is FinishReason.NEVER_FITS
        assert (world.finished[request].item, world.finished[request].value) == (0, 63)
    assert len(says(world, capped)) == 4
    assert world.ends[capped, 0] is FinishReason.LENGTH
    assert says(world, small) == alone([1], 3)
    assert (world.finished[crowd].item, world.finished[crowd].value) == (-1, 8)


def test_C10_a_prompt_beyond_the_token_budget_runs_in_chunks() -> None:
    world = DecoderWorld(blocks=64, max_tokens=8)
    request = world.generate(range(100), 2)
    world.drain()
    assert says(world, request) == alone(range(100), 2)


def test_no_admission_in_a_step_that_preempted() -> None:
    world = DecoderWorld(blocks=8, max_seqs=4)
    for i in range(6):
        world.generate([i] * 6, 14)
    preempted = 0
    while world.running:
        begun = {s.request_id for st in world.steps[:-1] for s in st.seqs}
        if world.kv.stats.preemptions > preempted:
            preempted = world.kv.stats.preemptions
            assert {s.request_id for s in world.steps[-1].seqs} <= begun
            assert world.steps[-1].bound is BoundBy.MEMORY
        world.advance()
    assert preempted > 0
    world.check_idle()


def test_memory_for_three_of_four_streams() -> None:
    """All finish with the right text, and little is computed twice."""
    world = DecoderWorld(blocks=24, block_size=32, max_tokens=512)  # 3 x 8 blocks
    prompts = [[i] * 64 for i in range(4)]
    requests = [world.generate(p, 192) for p in prompts]
    world.drain()
    for request, prompt in zip(requests, prompts, strict=True):
        assert says(world, request) == alone(prompt, 192)
    assert world.kv.stats.preemptions >= 1
    useful = sum(len(p) + 191 for p in prompts)
    share = (world.computed - useful) / useful
    print(f"recomputed {100 * share:.1f}% of {useful} tokens")
    assert 0 < share < 0.25
    assert world.lane.residents.recomputed == world.computed - useful


def test_preemptions_of_a_sequence_are_capped_while_others_can_run() -> None:
    world = DecoderWorld(blocks=12, config=SchedulerConfig(max_preemptions=1))
    for i in range(8):
        world.generate([i] * 5, 25, traffic=TrafficClass(i % 2))
    worst = 0
    while world.advance():
        residents = world.lane.residents
        worst = max([worst, *[s.preemptions for s in residents.running + residents.preempted]])
    world.check_idle()
    assert 1 <= worst <= 2


def test_the_victim_is_of_the_lowest_class_then_cheapest_to_recompute() -> None:
    world = DecoderWorld(blocks=12, max_seqs=3)
    latency = world.generate([1] * 6, 30)
    bulk_long = world.generate([2] * 12, 30, traffic=BULK)
    bulk_short = world.generate([3] * 6, 30, traffic=BULK)
    order = []
    while world.advance():
        for sample in world.lane.residents.preempted:
            if sample.request.request_id not in order:
                order.append(sample.request.request_id)
    world.check_idle()
    assert order[0] == bulk_short
    assert latency not in order
    assert says(world, bulk_long) == alone([2] * 12, 30)


# --- time


def streams(world: DecoderWorld, count: int, max_tokens: int = 200) -> list[int]:
    """``count`` running streams on a device that is known."""
    requests = [world.generate([i, i + 1, i + 2], max_tokens) for i in range(count)]
    world.run_until(world.now + 300 * MS)
    return requests


def test_C11_a_large_prompt_makes_no_gap_beyond_twice_the_target() -> None:
    target = 40
    world = DecoderWorld(
        blocks=2400,
        max_tokens=4096,
        config=SchedulerConfig(tpot_target_ms=target),
    )
    running = streams(world, 4, 300)
    newcomer = world.generate(range(2000), 5)
    world.drain()
    for request in running:
        assert max(world.gaps_ms(request)) <= 2 * target
    chunks = [s.num_tokens for st in world.steps for s in st.seqs if s.request_id == newcomer]
    assert max(chunks) >= 60  # the time is used: 40 ms hold about 90 of its tokens
    assert says(world, newcomer) == alone(range(2000), 5)


def test_C11_a_model_that_was_told_nonsense_finds_out_without_a_stall() -> None:
    """The profile promises tokens a thousand times cheaper than they are."""
    world = DecoderWorld(
        blocks=2400,
        max_tokens=4096,
        config=SchedulerConfig(tpot_target_ms=40),
        cost=lambda step: 2 * MS + 200_000 * step.shape.num_tokens,
    )
    world.lane.cost._profile = (1000.0, 1.0, 1.0, 200.0, 0.01, 0.01)
    running = [world.generate([i], 300) for i in range(4)]
    for _ in range(3):
        world.advance()
    world.generate(range(2000), 5)
    world.drain()
    for request in running:
        assert max(world.gaps_ms(request)) <= 80


def test_C11_short_prompts_overtake_a_long_one_and_the_long_one_still_ends() -> None:
    world = DecoderWorld(
        blocks=2000, max_tokens=512, max_seqs=16, config=SchedulerConfig(tpot_target_ms=20)
    )
    long = world.generate(range(1500), 3)
    world.advance()
    shorts = []
    for i in range(200):
        shorts.append(world.generate([i] * 10, 2))
        world.run_until(world.now + 10 * MS)
    world.drain()
    assert max(world.ttft_ms(s) for s in shorts) < 400
    assert world.ttft_ms(long) < 3000


def test_C13_bulk_work_gets_its_turn_under_latency_load() -> None:
    world = DecoderWorld(blocks=400, max_seqs=4, config=SchedulerConfig(tpot_target_ms=20))
    bulk = [world.generate([7, i], 4, traffic=BULK) for i in range(20)]
    i = 0
    while not all(b in world.finished for b in bulk):
        while len(world.lane.queue.latency) < 6:
            world.generate([i, 1, 2], 6)
            i += 1
        world.advance()
        assert world.now < 60_000 * MS
    gaps = sorted(world.times[b, 0][0] for b in bulk)
    assert gaps[0] < 1000 * MS
    assert max(b - a for a, b in pairwise(gaps)) < 3000 * MS


def test_C13_a_latency_request_enters_at_once_past_a_bulk_backlog() -> None:
    world = DecoderWorld(blocks=64, max_seqs=4, config=SchedulerConfig(tpot_target_ms=20))
    for i in range(100):
        world.generate([i] * 8, 50, traffic=BULK)
    world.run_until(world.now + 200 * MS)
    urgent = world.generate([1, 2, 3], 2)
    for _ in range(3):
        world.advance()
    assert says(world, urgent), "it waits behind bulk streams"
    world.drain()


def test_deadline_of_a_stream_ends_it_and_frees_its_blocks() -> None:
    world = DecoderWorld()
    request = world.generate([1], 200, deadline_ms=30)
    world.drain()
    assert world.finished[request].reason is FinishReason.DEADLINE
    assert 5 < len(says(world, request)) < 20


# --- faults


def test_C5_only_the_sequence_that_breaks_the_step_fails() -> None:
    def outcome(step):  # type: ignore[no-untyped-def]
        if any(s.request_id == 2 for s in step.seqs):
            return StepCompleted(step.step_id, StepOutcome.FAILED)
        return None

    world = DecoderWorld(outcome=outcome)
    requests = [world.generate([i, 9], 6) for i in range(6)]
    world.drain()
    for request in requests:
        if request == 2:
            assert world.finished[request].reason is FinishReason.FAILED
        else:
            assert says(world, request) == alone([request, 9], 6)


def test_a_row_that_is_not_finite_ends_its_request_and_is_never_reused() -> None:
    world = DecoderWorld()
    bad, good = world.generate(range(9), 4), world.generate([5, 6], 4)
    world.advance()
    step_id = next(iter(world.running))
    row = [s.request_id for s in world.steps[-1].seqs].index(bad)
    world.complete(step_id, StepCompleted(step_id, StepOutcome.OK, MS, (row,)))
    assert world.finished[bad].reason is FinishReason.NON_FINITE
    again = world.generate(range(9), 4)
    world.drain()
    assert next(s for st in world.steps for s in st.seqs if s.request_id == again).context_len == 0
    assert says(world, good) == alone([5, 6], 4)


def test_a_lost_device_ends_everything_at_once() -> None:
    world = DecoderWorld()
    requests = [world.generate([i], 9, samples=2) for i in range(5)]
    world.advance()
    world.handle(StepCompleted(next(iter(world.running)), StepOutcome.LOST))
    late = world.generate([1], 1)
    assert {world.finished[r].reason for r in [*requests, late]} == {FinishReason.DEVICE_LOST}
    world.check_idle()


def test_events_that_no_driver_may_send() -> None:
    world = DecoderWorld(others=[LaneSpec("e", 64, 8)])
    with pytest.raises(InvalidInput, match="encoder"):
        world.core.handle(RequestArrived(90, LANE, (3,)), 0)
    with pytest.raises(InvalidInput, match="at least 1"):
        world.generate([1], 0)
    world.generate([1], 1)
    with pytest.raises(InvalidInput, match="brought 2 tokens, expected 1"):
        world.core.handle(StepCompleted(0, StepOutcome.OK, 1, (), (1, 2)), 0)


# --- with encoders on one device


@pytest.mark.parametrize("threads", [1, 4])
def test_encoders_and_decoders_share_the_device(threads: int) -> None:
    lines: list[str] = []
    world = DecoderWorld(
        blocks=400,
        others=[LaneSpec("e", 512, 64)],
        device=DeviceSpec(threads, threads),
        config=SchedulerConfig(tpot_target_ms=30, step_target_ms=30),
        lines=lines,
    )
    running = streams(world, 4)
    embeds = []
    for i in range(60):
        traffic = TrafficClass(i % 2)
        embeds.append(world.encode("e", *[20] * (1 + 3 * (i % 2)), traffic=traffic))
        world.run_until(world.now + 20 * MS)
    world.drain()
    for i, request in enumerate(running):
        assert says(world, request) == alone([i, i + 1, i + 2], 200)
        assert max(world.gaps_ms(request)) < 150
    assert {world.finished[e].reason for e in embeds} == {FinishReason.DONE}
    assert replay(lines) == world.recorder.digest


def test_bulk_lanes_share_device_time_by_weight() -> None:
    world = DecoderWorld(
        blocks=400,
        others=[LaneSpec("e", 64, 8, weight=3)],
        config=SchedulerConfig(tpot_target_ms=20, step_target_ms=20),
    )
    for i in range(40):
        world.generate([i, 2], 100, traffic=BULK)
        world.encode("e", *[30] * 30, traffic=BULK)
    world.run_until(2_000 * MS)
    shares = [sum(world.cost(s) for s in steps) for steps in (world.steps, world.encoder_steps)]
    assert shares[1] / shares[0] == pytest.approx(3, rel=0.35)
    world.drain()
