"""The bars of the adaptive scheduler, in simulated time: every row is a command to repeat.

    python -m bench.batching.bars [--seconds N] [--seeds N] [--trace FILE]

Prints goodput at the same SLO for every load and every modelled policy (packed, as on our
device, and padded, as those systems usually run), and the behaviour of both traffic classes.
The figures of other policies are those of the best one. "bound" is what Moore and Hodgson's
rule reaches, which knows every cost exactly and drops whom it likes.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from runtime_py.batching import TrafficClass
from toolchain.simulate.log import RequestLog
from toolchain.simulate.metrics import summarize
from toolchain.simulate.policies import POLICIES, VOLERY
from toolchain.simulate.profile import load_profile
from toolchain.simulate.scenario import Run, Scenario, lane_name, policies_for, run
from toolchain.simulate.workloads.catalog import Plan

LOADS = (
    *(("poisson", load) for load in (0.3, 0.5, 0.7, 0.9, 1.0, 1.2)),
    *(("bursts", load) for load in (0.5, 0.8, 1.0, 1.2)),
    *(("azure-code", load) for load in (0.5, 0.8)),
    *(("azure-conv", load) for load in (0.5, 0.9)),
    *(("mixed", load) for load in (0.8, 1.0, 1.2)),
)
_CROWD_S = 10.0


@dataclass(frozen=True, slots=True)
class Row:
    """Goodput of one load, in requests per second, means over the seeds.

    Attributes:
        best, best_padded: (policy, goodput) of the best of the others.
    """

    workload: str
    load: float
    ours: float
    bound: float
    best: tuple[str, float]
    best_padded: tuple[str, float]


def scenario(workload: str, load: float, seconds: float, seed: int = 0) -> Scenario:
    """The MiniLM profile on one thread, everything by default."""
    profile = load_profile("minilm")
    return Scenario(workload, Plan({lane_name(profile): profile}, load, seconds, seed))


def goodput_row(workload: str, load: float, seconds: float, seeds: int) -> Row:
    """All policies on one load."""
    scenarios = [scenario(workload, load, seconds, seed) for seed in range(seeds)]

    def mean(policy: str, pads: bool = False) -> float:
        runs = [summarize(run(s, policy, pads=pads)) for s in scenarios]
        return sum(r.total.goodput for r in runs) / seeds

    others = [name for name in policies_for(scenarios[0]) if name != VOLERY]
    packed = {name: mean(name) for name in others}
    padded = {name: mean(name, True) if POLICIES[name].pads else packed[name] for name in others}
    return Row(
        workload,
        load,
        mean(VOLERY),
        mean("moore-hodgson") if workload != "mixed" else float("nan"),
        max(packed.items(), key=lambda item: item[1]),
        max(padded.items(), key=lambda item: item[1]),
    )


def added_p50_ms(seconds: float) -> float:
    """Median of what one client waits beyond its own step."""
    of = scenario("closed-loop", 1.0, seconds)
    log = run(replace(of, plan=replace(of.plan, think_s=0.05)), VOLERY).log
    added = [
        r.latency_ns - (s.end_ns - s.start_ns) for r, s in zip(log.requests, log.steps, strict=True)
    ]
    return float(np.median(added)) / 1e6


def latency_beside_bulk(seconds: float, load: float = 0.3) -> tuple[float, float, float]:
    """p99 of the latency class on an idle device and beside saturating bulk work, and the
    99th percentile of a step, all in ms."""
    idle = summarize(run(scenario("poisson", load, seconds), VOLERY))
    busy = summarize(run(scenario("bulk-flood", load, seconds), VOLERY))
    latency = busy.classes["latency"].latency_ms
    assert idle.total.latency_ms is not None
    assert latency is not None
    assert busy.steps.ms is not None
    return idle.total.latency_ms.p99, latency.p99, busy.steps.ms.p99


def bulk_beside_latency(seconds: float) -> tuple[float, float]:
    """Beside 95% of latency load: the longest time without a bulk text in a step while bulk
    work waited, in ms; and tokens per second, relative to bulk work alone."""
    beside = run(scenario("bulk-flood", 0.95, seconds), VOLERY)
    alone = run(scenario("bulk-flood", 0.01, seconds), VOLERY)
    return longest_bulk_gap_ms(beside), _token_rate(beside) / _token_rate(alone)


def longest_bulk_gap_ms(result: Run) -> float:
    """Longest time between the starts of two steps with bulk sequences, while bulk work
    arrived faster than it left."""
    first = min(
        r.request.arrival_ns
        for r in result.log.requests
        if r.request.traffic is TrafficClass.THROUGHPUT
    )
    end_ns = result.scenario.plan.duration_s * 1e9
    starts = [s.start_ns for s in result.log.steps if s.num_bulk and s.start_ns < end_ns]
    return float(np.diff([first, *starts]).max()) / 1e6


def _token_rate(result: Run) -> float:
    """Tokens that the device computed per second of arrivals."""
    end_ns = result.scenario.plan.duration_s * 1e9
    return sum(s.num_tokens for s in result.log.steps if s.end_ns <= end_ns) / end_ns * 1e9


def crowd_recovery_s(seconds: float = 60.0, load: float = 0.5) -> float:
    """Seconds from the end of a flash crowd (ten times the load for ten seconds) until the
    last request arrives that is late or refused because of it."""
    result = run(scenario("flash-crowd", load, seconds), VOLERY)
    end_ns = (seconds / 3 + _CROWD_S) * 1e9
    before = [r for r in result.log.requests if r.request.arrival_ns < seconds / 3 * 1e9]
    # Some long text is late in quiet times, too: what counts is a run of misses
    usual = 1 - sum(r.in_time for r in before) / len(before)
    after = [r for r in result.log.requests if r.request.arrival_ns >= end_ns]
    return _quiet_from(after, end_ns, max(usual, 0.01))


def _quiet_from(after: list[RequestLog], end_ns: float, usual: float) -> float:
    """Seconds until ten requests in a row miss no more often than usual."""
    width = 10
    for i in range(len(after) - width):
        window = after[i : i + width]
        if sum(not r.in_time for r in window) <= width * usual:
            return (window[0].request.arrival_ns - end_ns) / 1e9
    return float("inf")


def simulated_hour(trace: Path | None) -> tuple[float, int]:
    """Processor seconds for an hour of the conversation trace at its own pace, and requests.

    Args:
        trace: the original file; without it the ten minutes that are shipped, six times.
    """
    started = time.process_time()
    requests = 0
    for seed in range(1 if trace else 6):
        of = scenario("azure-conv", 1.0, 3600.0, seed)
        plan = replace(of.plan, time_scale=1.0, trace=trace)
        requests += len(run(replace(of, plan=plan), VOLERY).log.requests)
    return time.process_time() - started, requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--trace", type=Path, help="the original conversation trace")
    args = parser.parse_args()
    console = Console(width=120)
    table = Table(box=None, header_style="bold")
    for name in ("workload", "load", "ours", "bound", "best of others", "", "ratio"):
        table.add_column(
            name, justify="left" if name in ("workload", "best of others") else "right"
        )
    table.add_column("best, padded")
    table.add_column("", justify="right")
    table.add_column("ratio", justify="right")
    for workload, load in LOADS:
        row = goodput_row(workload, load, args.seconds, args.seeds)
        cells = [f"{row.ours:.2f}", f"{row.bound:.2f}"]
        for name, value in (row.best, row.best_padded):
            cells += [name, f"{value:.2f}", f"{row.ours / value:.2f}" if value else "–"]
        table.add_row(workload, f"{load:g}", *cells)
    console.print(table)
    idle, busy, step = latency_beside_bulk(args.seconds)
    gap, total = bulk_beside_latency(args.seconds)
    hour, requests = simulated_hour(args.trace)
    for line in (
        f"added p50 at one client: {added_p50_ms(args.seconds):.3f} ms (bar 1)",
        f"latency p99 beside saturating bulk work: {busy:.0f} ms, idle {idle:.0f}, a step "
        f"{step:.0f} (bar {1.5 * idle + step:.0f})",
        f"bulk work beside 95% latency load: longest gap {gap:.0f} ms (bar 500 and two steps), "
        f"{100 * total:.0f}% of bulk work alone (bar 90%)",
        f"flash crowd: quiet {crowd_recovery_s():.2f} s after its end (bar 1)",
        f"an hour of the conversation trace, {requests:,} requests: {hour:.1f} s (bar 60)",
    ):
        console.print(line, highlight=False)


if __name__ == "__main__":
    main()
