"""What one decision of the batching core costs: 64 running sequences, n waiting.

    python -m bench.batching.schedule_cost

Each round ends one step of 64 sequences and lets the core fill the next one from
the queue, which also delivers 64 results. Prints the median and the worst tenth of
that call, and of the scheduling in it alone, in microseconds of CPU time.
"""

from __future__ import annotations

import statistics
import time

from runtime_py.batching import (
    BatchingCore,
    Decision,
    DeviceSpec,
    Event,
    LaneSpec,
    RequestArrived,
    SchedulerConfig,
    StepCompleted,
    StepScheduled,
    TrafficClass,
)
from runtime_py.batching.scheduler import Scheduler


class _Timed(Scheduler):
    """The scheduler, with a stopwatch on `schedule`."""

    last_us = 0.0

    def schedule(self, now_ns: int) -> list[StepScheduled]:
        started = time.thread_time_ns()
        scheduled = super().schedule(now_ns)
        self.last_us = (time.thread_time_ns() - started) / 1e3
        return scheduled


def rounds(waiting: int, repeats: int = 300) -> tuple[list[float], list[float]]:
    """Microseconds of each `handle` that ends a step and starts the next, and of the
    `schedule` inside it."""
    config = SchedulerConfig(max_batch_seqs=64, step_target_ms=1_000_000, warmup_steps=0)
    core = BatchingCore([LaneSpec("bench/embed", 1 << 20, 64)], DeviceSpec(), config)
    core.scheduler = timed = _Timed(core.lanes, core.device, config)
    next_id = 0

    def arrivals(count: int) -> list[Event]:
        nonlocal next_id
        events: list[Event] = []
        for _ in range(count):
            deadline_ns = 10**15 + next_id if next_id % 3 == 0 else -1
            traffic = TrafficClass(next_id % 2)
            length = 4 + next_id * 7 % 60
            events.append(RequestArrived(next_id, "bench/embed", (length,), traffic, deadline_ns))
            next_id += 1
        return events

    def step_of(decisions: list[Decision]) -> StepScheduled:
        return next(d for d in decisions if isinstance(d, StepScheduled))

    now_ns = 0
    step = step_of(core.handle_all(arrivals(waiting + 64), now_ns))
    calls, schedules = [], []
    for _ in range(repeats):
        now_ns += 10_000_000
        started = time.thread_time_ns()
        decisions = core.handle(StepCompleted(step.step_id, device_ns=9_000_000), now_ns)
        calls.append((time.thread_time_ns() - started) / 1e3)
        schedules.append(timed.last_us)
        step = step_of(decisions)
        core.handle_all(arrivals(64), now_ns)
    return calls, schedules


def main() -> None:
    print(f"{'waiting':>8} {'handle us':>10} {'schedule us':>12} {'p90':>6}")
    for waiting in (64, 1000, 10_000):
        calls, schedules = rounds(waiting)
        p90 = statistics.quantiles(schedules, n=10)[-1]
        print(
            f"{waiting:>8} {statistics.median(calls):>10.0f} "
            f"{statistics.median(schedules):>12.0f} {p90:>6.0f}"
        )


if __name__ == "__main__":
    main()
