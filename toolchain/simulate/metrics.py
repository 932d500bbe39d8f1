"""What a run says about its policy, in numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from runtime_py.batching import LaneKind
from toolchain.simulate.log import Log, RequestLog, StepLog
from toolchain.simulate.policies import PAIRS, POLICIES
from toolchain.simulate.scenario import Run

_WINDOWS = 120
_SHORTEST_WINDOW_S = 1.0
_LEARNING_STEPS = 10  # after which a prediction counts


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution, in the unit of its name."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Group:
    """Requests that have something in common.

    Attributes:
        offered, done, in_time: how many.
        refused: by the reason for which they ended without a result.
        goodput: requests per second that were in time.
        attainment: their part of those offered.
        latency_ms: from arrival to the whole result, of those done.
        ttft_ms, tpot_ms, longest_gap_ms: of those that generate; None for the others.
        served_tokens: of those done.
        fair_share: what they were served, of what max-min fairness between tenants would have
            given them; None where there is one tenant.
    """

    offered: int
    done: int
    in_time: int
    refused: dict[str, int]
    goodput: float
    attainment: float
    latency_ms: Spread | None
    ttft_ms: Spread | None
    tpot_ms: Spread | None
    longest_gap_ms: Spread | None
    served_tokens: int
    fair_share: float | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """What the device ran.

    Attributes:
        count: steps.
        seqs, tokens: of a step.
        ms: time of a step.
        batch_sizes: steps by their number of sequences.
        bound: steps by what kept them from growing.
        computed_tokens: with padding and recomputation.
        padding: part of them that was padding.
        padding_avoided: tokens that padding every batch to its longest would have added, as
            a part of those computed.
        device_use: part of the device's thread time in which it was busy.
        prediction_error: mean relative error of predicted step times; None = no predictions.
    """

    count: int
    seqs: Spread | None
    tokens: Spread | None
    ms: Spread | None
    batch_sizes: dict[int, int]
    bound: dict[str, int]
    computed_tokens: int
    padding: float
    padding_avoided: float
    device_use: float
    prediction_error: float | None


@dataclass(frozen=True, slots=True)
class Series:
    """The run over time, in windows of equal length.

    Attributes:
        seconds: the middle of each window.
        offered, goodput: requests per second.
        waiting: most requests that waited when a step started.
        latency_p99_ms: of the requests that ended in the window; None without any.
    """

    seconds: list[float]
    offered: list[float]
    goodput: list[float]
    waiting: list[int]
    latency_p99_ms: list[float | None]


@dataclass(frozen=True, slots=True)
class Summary:
    """One policy's run in numbers."""

    policy: str
    title: str
    duration_s: float
    slo: dict[str, dict[str, float]]
    total: Group
    classes: dict[str, Group]
    tenants: dict[str, Group]
    lanes: dict[str, Group]
    throughput: float
    tokens_per_s: float
    preemptions: int
    recomputed_tokens: int
    steps: Steps
    series: Series
    calls: int

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def summarize(run: Run) -> Summary:
    """The numbers of a run."""
    log, duration_s = run.log, run.scenario.plan.duration_s
    requests = log.requests
    shares = fair_shares(requests)
    span_s = max(log.end_ns / 1e9, 1e-9)
    done = [r for r in requests if r.done]

    def group(entries: Sequence[RequestLog], share: float | None = None) -> Group:
        return _group(entries, duration_s, share)

    return Summary(
        policy=run.policy,
        title={**POLICIES, **PAIRS}[run.policy].title,
        duration_s=duration_s,
        slo={
            f"{s.lane} {s.traffic.name.lower()}": {k: v for k, v in s.slo._asdict().items() if v}
            for s in run.built.sources
        },
        total=group(requests),
        classes={
            name: group(entries)
            for name, entries in _by(requests, lambda r: r.request.traffic.name.lower())
        },
        tenants={
            name: group(entries, shares.get(name))
            for name, entries in _by(requests, lambda r: r.request.tenant)
            if name
        },
        lanes={name: group(entries) for name, entries in _by(requests, lambda r: r.request.lane)},
        throughput=len(done) / span_s,
        tokens_per_s=sum(_tokens(r) for r in done) / span_s,
        preemptions=sum(r.preemptions for r in requests),
        recomputed_tokens=sum(r.recomputed for r in requests),
        steps=_steps(log, run.scenario.plan.threads),
        series=_series(log, duration_s),
        calls=log.num_calls,
    )


def _by(
    requests: Iterable[RequestLog], key: Callable[[RequestLog], str]
) -> list[tuple[str, list[RequestLog]]]:
    groups: dict[str, list[RequestLog]] = {}
    for request in requests:
        groups.setdefault(key(request), []).append(request)
    return sorted(groups.items())


def _group(requests: Sequence[RequestLog], duration_s: float, share: float | None) -> Group:
    done = [r for r in requests if r.done]
    in_time = sum(1 for r in done if r.in_time)
    streams = [r for r in done if r.request.kind is LaneKind.DECODER]
    refused: dict[str, int] = {}
    for r in requests:
        if not r.done:
            reason = r.reason.value if r.reason is not None else "unfinished"
            refused[reason] = refused.get(reason, 0) + 1
    return Group(
        offered=len(requests),
        done=len(done),
        in_time=in_time,
        refused=refused,
        goodput=in_time / duration_s,
        attainment=in_time / len(requests) if requests else 1.0,
        latency_ms=_spread([r.latency_ns / 1e6 for r in done]),
        ttft_ms=_spread([r.ttft_ns / 1e6 for r in streams]),
        tpot_ms=_spread([r.tpot_ns / 1e6 for r in streams if r.num_tokens > 1]),
        longest_gap_ms=_spread([r.max_gap_ns / 1e6 for r in streams if r.num_tokens > 1]),
        served_tokens=sum(_tokens(r) for r in done),
        fair_share=share,
    )


def _tokens(r: RequestLog) -> int:
    return sum(r.request.num_tokens) + r.num_tokens


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    x = np.asarray(values, dtype=np.float64)
    p50, p90, p95, p99 = np.percentile(x, (50, 90, 95, 99))
    return Spread(*(float(v) for v in (x.mean(), p50, p90, p95, p99, x.max())))


def fair_shares(requests: Sequence[RequestLog]) -> dict[str, float]:
    """Served tokens of each tenant over those of a max-min fair division of the same total."""
    tenants = _by(requests, lambda r: r.request.tenant)
    if len(tenants) < 2:
        return {}
    demand = {name: float(sum(sum(r.request.num_tokens) for r in rs)) for name, rs in tenants}
    served = {
        name: float(sum(sum(r.request.num_tokens) for r in rs if r.done)) for name, rs in tenants
    }
    left, open_names, fair = sum(served.values()), sorted(demand, key=demand.__getitem__), {}
    while open_names:
        name = open_names.pop(0)
        fair[name] = min(demand[name], left / (len(open_names) + 1))
        left -= fair[name]
    return {name: served[name] / fair[name] if fair[name] else 1.0 for name in demand}


def _steps(log: Log, threads: int) -> Steps:
    steps = log.steps
    sizes: dict[int, int] = {}
    bound: dict[str, int] = {}
    for step in steps:
        sizes[step.num_seqs] = sizes.get(step.num_seqs, 0) + 1
        bound[step.bound.value] = bound.get(step.bound.value, 0) + 1
    computed = sum(step.charged_tokens for step in steps)
    real = sum(step.num_tokens for step in steps)
    busy = sum((step.end_ns - step.start_ns) * step.threads for step in steps)
    errors = [
        abs((s.end_ns - s.start_ns) / s.predicted_ns - 1)
        for s in steps[_LEARNING_STEPS:]
        if s.predicted_ns > 0
    ]
    return Steps(
        count=len(steps),
        seqs=_spread([s.num_seqs for s in steps]),
        tokens=_spread([s.num_tokens for s in steps]),
        ms=_spread([(s.end_ns - s.start_ns) / 1e6 for s in steps]),
        batch_sizes=dict(sorted(sizes.items())),
        bound=dict(sorted(bound.items())),
        computed_tokens=computed,
        padding=(computed - real) / computed if computed else 0.0,
        padding_avoided=_part(sum(s.padding_avoided for s in steps if _encodes(s)), computed),
        device_use=busy / max(log.end_ns * threads, 1),
        prediction_error=float(np.mean(errors)) if errors else None,
    )


def _encodes(step: StepLog) -> bool:
    return step.lane.endswith("/embed")


def _part(value: int, of: int) -> float:
    return value / of if of else 0.0


def _series(log: Log, duration_s: float) -> Series:
    span_s = max(duration_s, log.end_ns / 1e9)
    count = max(min(_WINDOWS, int(span_s / _SHORTEST_WINDOW_S)), 1)
    width = span_s / count

    def window(ns: int) -> int:
        return min(int(ns / 1e9 / width), count - 1)

    offered, good, waiting = [0] * count, [0] * count, [0] * count
    latencies: list[list[float]] = [[] for _ in range(count)]
    for r in log.requests:
        offered[window(r.request.arrival_ns)] += 1
        if r.done:
            w = window(r.finish_ns)
            latencies[w].append(r.latency_ns / 1e6)
            good[w] += r.in_time
    for step in log.steps:
        w = window(step.start_ns)
        waiting[w] = max(waiting[w], step.num_waiting)
    return Series(
        seconds=[(i + 0.5) * width for i in range(count)],
        offered=[n / width for n in offered],
        goodput=[n / width for n in good],
        waiting=waiting,
        latency_p99_ms=[float(np.percentile(v, 99)) if v else None for v in latencies],
    )
