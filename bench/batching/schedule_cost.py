"""What one decision of the batching core costs: 64 running sequences, n waiting.

    python -m bench.batching.schedule_cost [--tenants 20] [--pyodide]

An encoder's round ends one step of 64 sequences and lets the core fill the next one from
the queue, which also delivers 64 results. A decoder's round gives 64 streams a token
each; now and then one ends and a prompt takes its place. Prints, in microseconds of CPU
time, the median of the call and of the scheduling in it alone, the latter's worst tenth,
and how the median grew since the line above, beside the growth of n log n.

With --pyodide the same code runs in Pyodide under Node (`npm ci` in demo/ installs it);
the time is then that of the clock, since there is only one thread.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from runtime_py.batching import (
    BatchingCore,
    DecoderStepScheduled,
    DeviceSpec,
    Event,
    GenerationArrived,
    LaneKind,
    LaneSpec,
    QueuePolicy,
    RequestArrived,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    StepScheduled,
    TrafficClass,
)
from runtime_py.batching.scheduler import Scheduler

Step = StepScheduled | DecoderStepScheduled
RUNNING = 64
SIZES = (64, 1_000, 10_000, 100_000)
_clock_ns = time.perf_counter_ns if sys.platform == "emscripten" else time.thread_time_ns


class _Timed(Scheduler):
    """The scheduler, with a stopwatch on `schedule`."""

    last_us = 0.0

    def schedule(self, now_ns: int) -> list[Step]:
        started = _clock_ns()
        scheduled = super().schedule(now_ns)
        self.last_us = (_clock_ns() - started) / 1e3
        return scheduled


class Bench:
    """A core with ``waiting`` requests in its queue, and 64 sequences on the device."""

    def __init__(self, lane: LaneSpec, waiting: int, make: Callable[[int], Event]) -> None:
        policy = QueuePolicy(max_queue_size=10**6)
        config = SchedulerConfig(
            step_target_ms=1_000_000,
            tpot_target_ms=1_000_000,
            warmup_steps=0,
            step_overhead_percent=0,
            latency=policy,
            throughput=policy,
        )
        self.core = BatchingCore([lane], DeviceSpec(), config)
        self.core.scheduler = self.timed = _Timed(self.core.lanes, self.core.device)
        self._make = make
        self._next_id = 0
        self._now_ns = 0
        self.step = self._handle(self._arrivals(waiting + RUNNING))

    def rounds(self, repeats: int) -> tuple[list[float], list[float]]:
        """Microseconds of each call that ends a step and starts the next, and of the
        scheduling inside it."""
        calls, schedules = [], []
        for _ in range(repeats):
            self._now_ns += 10_000_000
            step, token = self.step, 0
            wanted = 0
            if isinstance(step, DecoderStepScheduled):
                wanted = sum([s.wanted for s in step.seqs])
            waiting = self.core.lanes[0].queue.num_seqs
            event = StepCompleted(
                step.step_id, StepOutcome.OK, 9_000_000, (), tuple([token] * wanted)
            )
            started = _clock_ns()
            decisions = self.core.handle(event, self._now_ns)
            calls.append((_clock_ns() - started) / 1e3)
            schedules.append(self.timed.last_us)
            self.step = next(
                d for d in decisions if isinstance(d, StepScheduled | DecoderStepScheduled)
            )
            left = waiting - self.core.lanes[0].queue.num_seqs
            if left:
                self.core.handle_all(self._arrivals(left), self._now_ns)
        return calls, schedules

    def _handle(self, events: list[Event]) -> Step:
        decisions = self.core.handle_all(events, self._now_ns)
        return next(d for d in decisions if isinstance(d, StepScheduled | DecoderStepScheduled))

    def _arrivals(self, count: int) -> list[Event]:
        first, self._next_id = self._next_id, self._next_id + count
        return [self._make(i) for i in range(first, self._next_id)]


def encoder(waiting: int, tenants: int) -> Bench:
    def make(i: int) -> Event:
        deadline_ns = 10**15 + i if i % 3 == 0 else -1
        return RequestArrived(
            i,
            "bench",
            (4 + i * 7 % 60,),
            TrafficClass(i % 2),
            deadline_ns,
            tenant=f"t{i % tenants}",
        )

    return Bench(LaneSpec("bench", 1 << 20, RUNNING), waiting, make)


def decoder(waiting: int, tenants: int) -> Bench:
    def make(i: int) -> Event:
        return GenerationArrived(
            i,
            "bench",
            tuple([i % 97] * (4 + i * 7 % 60)),
            16 + i % 300,
            (1,),
            traffic=TrafficClass(i % 2),
            tenant=f"t{i % tenants}",
        )

    lane = LaneSpec("bench", 4096, RUNNING, kind=LaneKind.DECODER, kv_blocks=4096)
    return Bench(lane, waiting, make)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tenants", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--waiting", type=int, nargs="+", default=SIZES)
    parser.add_argument("--pyodide", action="store_true", help="measure there")
    args = parser.parse_args()
    if args.pyodide:
        _in_pyodide(args)
        return
    print(
        f"{'lane':>8} {'waiting':>8} {'handle us':>10} {'schedule us':>12} {'p90':>6} "
        f"{'growth':>7} {'n log n':>8}"
    )
    for name, bench in (("encoder", encoder), ("decoder", decoder)):
        before, size = 0.0, 0
        for waiting in args.waiting:
            calls, schedules = bench(waiting, args.tenants).rounds(args.repeats)
            median = statistics.median(schedules)
            p90 = statistics.quantiles(schedules, n=10)[-1]
            growth = limit = ""
            if size:
                growth = f"{median / before:.2f}"
                limit = f"{waiting * math.log(waiting) / (size * math.log(size)):.1f}"
            print(
                f"{name:>8} {waiting:>8} {statistics.median(calls):>10.0f} {median:>12.0f} "
                f"{p90:>6.0f} {growth:>7} {limit:>8}"
            )
            before, size = median, waiting


def _in_pyodide(args: argparse.Namespace) -> None:
    """Run this very module there; the standard output is shared."""
    from bench.kernels.__main__ import default_node

    script = Path(__file__).with_name("pyodide.mjs")
    options = ["--tenants", str(args.tenants), "--repeats", str(args.repeats)]
    options += ["--waiting", *map(str, args.waiting)]
    command = [default_node(), str(script), "bench.batching.schedule_cost", *options]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
