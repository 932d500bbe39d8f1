"""Faults reported against batching servers, each as a scenario in virtual time."""

from __future__ import annotations

import random

import pytest

from runtime_py.batching import (
    BoundBy,
    DeviceSpec,
    FinishReason,
    LaneSpec,
    QueuePolicy,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    StepScheduled,
    StepShape,
    TimeoutAction,
    TrafficClass,
)
from runtime_py.batching.cost_model import CostModel
from runtime_py.batching.types import CostProfile
from tests.batching.world import LANE, MS, World, linear_cost

DONE, BULK = FinishReason.DONE, TrafficClass.THROUGHPUT


# --- C1: a wait bound that is really a drop rule


def test_C1_deadline_only_rejects_and_work_goes_on() -> None:
    world = World(cost=lambda step: 5_000 * MS)
    ids = [world.arrive(10, deadline_ms=1000) for _ in range(50)]
    ids += [world.arrive(10) for _ in range(50)]
    world.drain()
    assert set(world.reasons(ids[:50])) == {FinishReason.DEADLINE}
    assert set(world.reasons(ids[50:])) == {DONE}  # no deadline: never dropped
    assert world.started[0] == 0  # the first request waits for nothing
    for i in ids[:50]:
        assert world.latency_ms(i) <= 1000


def test_C1_pessimistic_model_recovers_from_a_slow_phase() -> None:
    """The device was 10x slower for a while; deadlines it can make again are made again."""
    slow = True
    world = World(cost=lambda step: linear_cost(step) * (10 if slow else 1))
    for _ in range(30):
        world.arrive(20)
        world.drain()
    slow = False
    outcomes = []
    for _ in range(20):
        outcomes.append(world.arrive(20, deadline_ms=5))  # 2.2 ms on the healthy device
        world.drain()
    assert world.reasons(outcomes)[-10:] == [DONE] * 10


def test_C1_tenfold_jump_sheds_but_never_stalls() -> None:
    factor = 1
    world = World(cost=lambda step: linear_cost(step) * factor)
    for _ in range(20):
        world.arrive_together(*[10] * 8, deadline_ms=100)
        world.drain()
    factor = 10
    before = len(world.steps)
    for _ in range(200):
        world.arrive(10, deadline_ms=100)
        world.run_until(world.now + 5 * MS)
    world.drain()
    assert len(world.steps) - before >= 5
    late = [r.reason for r in list(world.finished.values())[160:]]
    assert late.count(DONE) >= 20
    assert set(late) <= {DONE, FinishReason.DEADLINE}


def test_C1_fitted_slope_is_never_negative() -> None:
    model = CostModel(CostProfile(), memory_steps=8, warmup_steps=0)
    for i in range(100):  # more tokens, less time: what a negative slope is fitted from
        n = 10 + i % 50
        model.learn(StepShape(1, n, n * n), 10 * MS - n * 100_000)
    times = [model.predict(StepShape(1, n, n * n)) for n in range(1, 500, 7)]
    assert times == sorted(times)
    assert times[0] > 0


# --- C2: windows that hurt a lone client


def test_C2_closed_loop_of_one_client_waits_for_nothing() -> None:
    world = World()
    for _ in range(50):
        i = world.arrive(25)
        world.drain()
        assert world.latency_ms(i) == linear_cost(world.steps[-1]) / MS


def test_C2_slow_first_call_does_not_swell_predictions() -> None:
    world = World(cost=lambda step: linear_cost(step) * (1000 if step.step_id == 0 else 1))
    for _ in range(10):
        world.arrive(25)
        world.drain()
    step = world.steps[-1]
    assert step.predicted_ns < 2 * linear_cost(step)


def test_C2_burst_of_64_is_one_batch_and_poisson_one_per_s_is_none() -> None:
    world = World(config=SchedulerConfig(step_target_ms=1000, step_overhead_percent=0))
    burst = world.arrive_together(*[8] * 64)
    world.drain()
    assert len(world.steps) == 1
    rng = random.Random(5)
    for _ in range(20):
        world.run_until(world.now + int(rng.expovariate(1) * 1000 * MS))
        i = world.arrive(8)
        assert world.started[world.steps[-1].step_id] == world.arrived_at[i]
        world.drain()
    assert set(world.reasons(burst)) == {DONE}


# --- C3: limits count requests instead of rows


def test_C3_rows_and_tokens_are_limited_whatever_the_lists() -> None:
    config = SchedulerConfig(step_target_ms=10_000, step_overhead_percent=0)
    world = World(lanes=[LaneSpec(LANE, 400, 32)], config=config)
    ids = [world.arrive(*[5] * 30) for _ in range(10)] + [world.arrive(*[20] * 100)]
    world.drain()  # World checks 32 rows and 400 tokens in every step
    assert set(world.reasons(ids)) == {DONE}
    assert max(s.shape.num_seqs for s in world.steps) == 32
    assert max(s.shape.num_tokens for s in world.steps) > 380
    assert world.ready[ids[-1]] == list(range(100))  # rejoined in order


def test_C3_single_texts_and_lists_meet_the_same_admission() -> None:
    policy = QueuePolicy(max_queue_size=64)
    for shapes in ([(4,)] * 80, [(4,) * 4] * 20):
        world = World(config=SchedulerConfig(latency=policy))
        ids = [world.arrive(*shape) for shape in shapes]
        texts = sum(len(s) for i, s in zip(ids, shapes, strict=True) if i not in world.finished)
        assert 64 <= texts <= 64 + 4  # the queue, and what already runs
        world.drain()
        refused = [world.finished[i] for i in ids if world.finished[i].reason is not DONE]
        assert {r.reason for r in refused} == {FinishReason.OVERLOADED}
        assert all(r.value > 0 for r in refused)


# --- C5: one bad item fails its neighbours


def failing(culprit: int) -> object:
    def outcome(step: StepScheduled) -> StepCompleted | None:
        if any(s.request_id == culprit for s in step.seqs):
            return StepCompleted(step.step_id, StepOutcome.FAILED)
        return None

    return outcome


def test_C5_engine_failure_rejects_only_the_culprit() -> None:
    world = World(outcome=failing(3))  # type: ignore[arg-type]
    ids = world.arrive_together(*[4] * 8)
    world.drain()
    assert world.reasons(ids) == [DONE] * 3 + [FinishReason.FAILED] + [DONE] * 4
    assert [s.bound for s in world.steps[1:]] == [BoundBy.RETRY] * 8  # singly, once
    after = world.arrive_together(*[8] * 8)
    world.drain()
    assert set(world.reasons(after)) == {DONE}


def test_C5_non_finite_row_fails_alone() -> None:
    def outcome(step: StepScheduled) -> StepCompleted:
        return StepCompleted(step.step_id, StepOutcome.OK, MS, (2,))

    world = World(outcome=outcome)
    ids = world.arrive_together(*[8] * 6)
    world.drain()
    assert world.reasons(ids) == [DONE] * 2 + [FinishReason.NON_FINITE] + [DONE] * 3
    assert len(world.steps) == 1


def test_C5_non_finite_item_of_a_list_names_the_item() -> None:
    def outcome(step: StepScheduled) -> StepCompleted:
        return StepCompleted(step.step_id, StepOutcome.OK, MS, (3,))

    world = World(outcome=outcome)
    mate = world.arrive(9, send=False)
    many = world.arrive(5, 5, 5, send=False)
    world.handle(world.arrived[mate], world.arrived[many])
    world.drain()
    assert world.finished[mate].reason is DONE
    row = world.steps[0].seqs[3]
    assert world.finished[row.request_id][1:3] == (FinishReason.NON_FINITE, row.item)


def test_C5_new_work_takes_turns_with_retries() -> None:
    world = World(outcome=failing(3))  # type: ignore[arg-type]
    world.arrive_together(*[4] * 8)
    world.advance()  # the batch fails, 8 retries wait
    fresh = world.arrive(8)
    world.advance()
    assert fresh in {s.request_id for s in world.steps[2].seqs}
    world.drain()


# --- C6: cancellation


def test_C6_queued_cancel_uses_no_device_time() -> None:
    world = World()
    first = world.arrive(100)
    queued = [world.arrive(50) for _ in range(10)]
    for i in queued[::2]:
        world.abort(i)
        world.abort(i)  # twice is once
    world.drain()
    ran = {s.request_id for step in world.steps for s in step.seqs}
    assert ran == {first, *queued[1::2]}
    assert set(world.reasons(queued[1::2])) == {DONE}


def test_C6_cancel_in_flight_and_after_the_end_disturbs_nobody() -> None:
    world = World()
    ids = world.arrive_together(*[20] * 6)
    world.abort(ids[2])
    world.drain()
    world.abort(ids[0])
    world.abort(999)
    expected = [DONE, DONE, FinishReason.ABORTED, DONE, DONE, DONE]
    assert world.reasons(ids) == expected
    assert ids[2] not in world.ready


# --- C8: small batches although requests wait


def test_C8_next_batch_is_everything_that_waits() -> None:
    world = World()
    world.arrive(50)
    world.run_until(MS)
    waiting = [world.arrive(10) for _ in range(4)]
    world.drain()
    assert [s.request_id for s in world.steps[1].seqs] == waiting
    assert world.steps[1].bound is BoundBy.ALL


def test_C8_hundred_at_once_with_ten_rows_are_ten_tens() -> None:
    config = SchedulerConfig(max_batch_seqs=10, step_target_ms=10_000, step_overhead_percent=0)
    world = World(config=config)
    world.arrive_together(*[10] * 100)
    world.drain()
    assert [s.shape.num_seqs for s in world.steps] == [10] * 10
    assert {s.bound for s in world.steps[:-1]} == {BoundBy.SEQS}


# --- C10: a request that can never fit


def test_C10_what_never_fits_is_refused_at_once_with_the_limit() -> None:
    world = World(lanes=[LaneSpec(LANE, 64, 8)])
    world.arrive(60)
    bad = world.arrive(3, 65, 2)
    assert world.finished[bad][1:] == (FinishReason.NEVER_FITS, 1, -1, 64, 0)
    small = [world.arrive(64), world.arrive(1)]
    world.drain()
    assert set(world.reasons(small)) == {DONE}


def test_C10_more_items_than_any_queue_holds() -> None:
    world = World(config=SchedulerConfig(latency=QueuePolicy(max_queue_size=10)))
    bad = world.arrive(*[1] * 11)
    assert world.finished[bad][1:] == (FinishReason.NEVER_FITS, -1, -1, 10, 0)
    empty = world.arrive()
    assert world.finished[empty].reason is FinishReason.NEVER_FITS


# --- C13: priorities that starve


def test_C13_throughput_is_served_within_its_ageing_bound() -> None:
    config = SchedulerConfig(throughput_max_wait_ms=200, fill_percent=0)
    world = World(config=config)
    rng = random.Random(1)
    bulk = [world.arrive(20, traffic=BULK) for _ in range(20)]
    while world.now < 10_000 * MS:  # 95% of the device for the latency class
        world.arrive(20)
        world.run_until(world.now + int(rng.expovariate(1) * 2.2 * MS / 0.95))
    served = [
        world.started[s.step_id] for s in world.steps if any(q.request_id in bulk for q in s.seqs)
    ]
    gaps = [b - a for a, b in zip([0, *served], served, strict=False)]
    assert max(gaps) <= (200 + 50) * MS  # the bound, plus the step it finds running
    assert set(world.reasons(bulk)) == {DONE}


def test_C13_max_skips_bounds_the_bypass_in_steps() -> None:
    config = SchedulerConfig(
        throughput_max_wait_ms=10**6, throughput_max_skips=3, fill_percent=0, max_batch_seqs=1
    )
    world = World(config=config)
    world.arrive(5)
    bulk = world.arrive(5, traffic=BULK)
    for _ in range(10):
        world.arrive(5)
    world.drain()
    order = [s.seqs[0].request_id for s in world.steps]
    assert order.index(bulk) == 1 + 3


def test_C13_latency_request_enters_the_next_step_despite_a_backlog() -> None:
    world = World()
    for _ in range(1000):
        world.arrive(20, traffic=BULK)
    world.run_until(500 * MS)
    urgent = world.arrive(20)
    step = len(world.steps)
    world.drain()
    assert urgent in {s.request_id for s in world.steps[step].seqs}
    assert world.latency_ms(urgent) <= 50 + 5  # the running step and its own short one


# --- C15: awkward moments (the random version is in test_state_machine)


def test_C15_late_completion_and_unknown_ids_are_ignored() -> None:
    world = World()
    i = world.arrive(10)
    world.drain()
    before = world.core.stats.late_completions
    world.handle(StepCompleted(0, StepOutcome.FAILED), StepCompleted(77, StepOutcome.LOST))
    assert world.core.stats.late_completions == before + 2
    assert world.reasons([i]) == [DONE]
    j = world.arrive(10)
    world.drain()
    assert world.reasons([j]) == [DONE]


def test_C15_abort_of_everything_at_every_moment_leaves_nothing() -> None:
    for stop in range(12):
        world = World(device=DeviceSpec(2, 2), outcome=failing(4))  # type: ignore[arg-type]
        ids = [world.arrive(*[12] * (1 + k % 3)) for k in range(12)]
        for _ in range(stop):
            world.advance()
        for i in ids:
            world.abort(i)
        world.drain()


# --- queue policies


def test_timeout_rejects_what_waited_too_long() -> None:
    policy = QueuePolicy(timeout_ms=20)
    world = World(config=SchedulerConfig(latency=policy), cost=lambda s: 100 * MS)
    world.arrive(10)
    waits = world.arrive(10)
    world.drain()
    assert world.finished[waits].reason is FinishReason.TIMEOUT
    assert world.latency_ms(waits) == 20
    assert world.finished[waits].value == 20 * MS


def test_timeout_demotes_to_the_throughput_class() -> None:
    policy = QueuePolicy(timeout_ms=20, timeout_action=TimeoutAction.DEMOTE)
    world = World(
        config=SchedulerConfig(latency=policy, max_batch_seqs=1, throughput_max_wait_ms=10**6),
        cost=lambda s: 100 * MS,
    )
    world.arrive(10)
    old = world.arrive(10)
    world.run_until(90 * MS)
    fresh = world.arrive(10)
    world.drain()
    order = [s.seqs[0].request_id for s in world.steps]
    assert order.index(fresh) < order.index(old)
    assert set(world.reasons([old, fresh])) == {DONE}


@pytest.mark.parametrize("queue_class", list(TrafficClass))
def test_deadline_that_has_passed_is_refused_at_submit(queue_class: TrafficClass) -> None:
    world = World()
    world.now = 10 * MS
    i = world.arrive(10, deadline_ms=0, traffic=queue_class)
    assert world.reasons([i]) == [FinishReason.DEADLINE]


def test_deadlines_order_the_latency_class() -> None:
    world = World(config=SchedulerConfig(max_batch_seqs=1))
    world.arrive(10)
    late, soon, none = (
        world.arrive(10, deadline_ms=400),
        world.arrive(10, deadline_ms=30),
        world.arrive(10),
    )
    world.drain()
    order = [s.seqs[0].request_id for s in world.steps[1:]]
    assert order == [soon, none, late]  # none is due after the latency target


def test_a_member_deadline_keeps_the_batch_short() -> None:
    world = World(config=SchedulerConfig(step_target_ms=10_000))
    for _ in range(4):  # learn the device
        world.arrive(20)
        world.drain()
    world.arrive(100)
    world.run_until(world.now + MS)
    urgent = world.arrive(20, deadline_ms=20)  # 9.2 ms of waiting, 2.2 ms of its own
    for _ in range(10):
        world.arrive(40)
    world.drain()
    assert world.reasons([urgent]) == [DONE]
    step = next(s for s in world.steps if any(q.request_id == urgent for q in s.seqs))
    assert step.bound is BoundBy.DEADLINE
    assert step.shape.num_seqs > 1


def test_out_of_memory_halves_the_budget_and_recovers() -> None:
    limit = 200

    def outcome(step: StepScheduled) -> StepCompleted | None:
        if step.shape.num_tokens > limit:
            return StepCompleted(step.step_id, StepOutcome.OUT_OF_MEMORY)
        return None

    config = SchedulerConfig(step_target_ms=10_000, memory_recovery_steps=4)
    world = World(config=config, outcome=outcome)
    ids = world.arrive_together(*[30] * 40)
    world.drain()
    assert set(world.reasons(ids)) == {DONE}
    limit = 10_000
    for _ in range(12):
        world.arrive_together(*[30] * 4)
        world.drain()
    assert world.core.lanes[0].admission.max_tokens == 512


def test_out_of_memory_of_a_single_sequence_is_its_own_error() -> None:
    def outcome(step: StepScheduled) -> StepCompleted | None:
        if step.shape.num_tokens > 100:
            return StepCompleted(step.step_id, StepOutcome.OUT_OF_MEMORY)
        return None

    world = World(outcome=outcome, config=SchedulerConfig(step_target_ms=1000))
    small = world.arrive(10, 10)
    large = world.arrive(10, 150, 10)
    also = world.arrive(20)
    world.drain()
    assert world.finished[large][1:3] == (FinishReason.OUT_OF_MEMORY, 1)
    assert world.reasons([small, also]) == [DONE, DONE]


def test_lost_device_ends_everything_typed_now_and_later() -> None:
    def outcome(step: StepScheduled) -> StepCompleted:
        return StepCompleted(step.step_id, StepOutcome.LOST)

    world = World(outcome=outcome, config=SchedulerConfig(max_batch_seqs=2))
    ids = [world.arrive(10) for _ in range(6)]
    world.drain()
    later = world.arrive(10)
    assert set(world.reasons([*ids, later])) == {FinishReason.DEVICE_LOST}
    assert len(world.steps) == 1
