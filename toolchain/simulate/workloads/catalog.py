"""The workloads by name."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from runtime_py.batching import LaneKind, TrafficClass
from runtime_py.errors import InvalidInput
from toolchain.simulate.profile import DeviceProfile
from toolchain.simulate.requests import Slo
from toolchain.simulate.workloads import arrivals
from toolchain.simulate.workloads.azure import SAMPLES, ScaledTrace, read_trace
from toolchain.simulate.workloads.base import Workload
from toolchain.simulate.workloads.closed_loop import ClosedLoop
from toolchain.simulate.workloads.source import (
    Size,
    Source,
    alone_ns,
    capacity,
    chats,
    decode_ns,
    mixture,
    prefill_ns,
    texts,
)

_BULK_ITEMS = 32
_TENANTS = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """What a workload is made from.

    Attributes:
        profiles: of the device, by lane: one, or an encoder's and a decoder's.
        load: work offered, relative to what the device can do.
        duration_s: for which requests arrive.
        seed: of everything random.
        threads: of the device.
        slo_scale: an SLO is so many times what the mean request takes alone.
        slo_ms: the latency SLO instead, 0 = by scale.
        clients, think_s: of the closed loop.
        trace: a file to replay instead of a shipped sample.
        time_scale: by which a trace's times are multiplied; 0 = so that the load is right.
    """

    profiles: dict[str, DeviceProfile]
    load: float = 0.8
    duration_s: float = 60.0
    seed: int = 0
    threads: int = 1
    slo_scale: float = 10.0
    slo_ms: float = 0.0
    clients: int = 1
    think_s: float = 0.0
    trace: Path | None = None
    time_scale: float = 0.0

    def rng(self, name: str) -> random.Random:
        """Every part of a workload has numbers of its own."""
        return random.Random(f"{name} {self.seed}")


@dataclass(frozen=True, slots=True)
class Built:
    """A workload that is ready to run.

    Attributes:
        workload: yields the requests; for one run.
        sources: that it is made of.
        notes: what a reader of the report has to know.
    """

    workload: Workload
    sources: tuple[Source, ...]
    notes: tuple[str, ...] = ()


Shape = Callable[[float, float, random.Random], Iterator[int]]


def _sources(plan: Plan) -> list[Source]:
    """One plain source per lane, with its SLO."""
    make = {LaneKind.ENCODER: texts, LaneKind.DECODER: chats}
    return [_due(make[p.kind](lane, p), plan) for lane, p in plan.profiles.items()]


def _due(source: Source, plan: Plan) -> Source:
    """With the SLO that the plan asks for: a multiple of what the mean request takes alone."""
    sizes, profile = source.samples(), source.profile
    scale = plan.slo_scale / len(sizes)
    if profile.kind is LaneKind.ENCODER:
        mean_ms = scale * sum(alone_ns(profile, s) for s in sizes) / 1e6
        bulk = source.traffic is TrafficClass.THROUGHPUT
        return replace(source, slo=Slo(latency_ms=mean_ms if bulk else plan.slo_ms or mean_ms))
    ttft_ms = scale * sum(prefill_ns(profile, s) for s in sizes) / 1e6
    # A stream among others is in time when it is as fast as people read
    tpot_ms = 0.5 * scale * sum(decode_ns(profile, s) for s in sizes) / 1e6
    return replace(source, slo=Slo(ttft_ms=plan.slo_ms or ttft_ms, tpot_ms=tpot_ms))


def _rate(source: Source, load: float, plan: Plan) -> float:
    return load * plan.threads * capacity(source)


def _shaped(shape: Shape) -> Callable[[Plan], Built]:
    """Each lane gets an equal part of the load, with arrivals of this shape."""

    def build(plan: Plan) -> Built:
        sources = _sources(plan)
        parts = []
        for source in sources:
            rate = _rate(source, plan.load / len(sources), plan)
            rng = plan.rng(f"{source.lane} arrivals")
            times = shape(rate, plan.duration_s, rng)
            parts.append((source, times, plan.rng(f"{source.lane} sizes")))
        return Built(mixture(parts), tuple(sources))

    return build


def _closed_loop(plan: Plan) -> Built:
    source = _only(plan)
    workload = ClosedLoop(
        source,
        clients=plan.clients,
        think_s=plan.think_s,
        duration_s=plan.duration_s,
        rng=plan.rng("closed loop"),
    )
    clients = f"{plan.clients} client{'s' if plan.clients > 1 else ''}"
    note = f"closed loop: {clients}, {plan.think_s:g} s between an answer and the next request"
    return Built(workload, (source,), (note,))


def _only(plan: Plan) -> Source:
    sources = _sources(plan)
    if len(sources) > 1:
        raise InvalidInput("this workload is for one model; expected one --profile")
    return sources[0]


def _classes(plan: Plan, latency: float, bulk: float) -> Built:
    """Poisson arrivals of both traffic classes with the given loads."""
    parts, sources = [], []
    for source in _sources(plan):
        lists = source
        if source.profile.kind is LaneKind.ENCODER:
            lists = texts(source.lane, source.profile, _BULK_ITEMS)
        lists = _due(replace(lists, traffic=TrafficClass.THROUGHPUT), plan)
        for part, load in ((source, latency), (lists, bulk)):
            name = f"{part.lane} {part.traffic.name}"
            rate = _rate(part, load / len(plan.profiles), plan)
            times = arrivals.poisson(rate, plan.duration_s, plan.rng(name))
            parts.append((part, times, plan.rng(f"{name} sizes")))
            sources.append(part)
    note = (
        f"load {latency:g} of the latency class and {bulk:g} of the throughput class, whose "
        f"texts come in lists of {_BULK_ITEMS}"
    )
    return Built(mixture(parts), tuple(sources), (note,))


def _mixed(plan: Plan) -> Built:
    """Half of the load in latency requests, half in the throughput class."""
    return _classes(plan, plan.load / 2, plan.load / 2)


def _bulk_flood(plan: Plan) -> Built:
    """The load in latency requests, and twice what the device can do in bulk work."""
    return _classes(plan, plan.load, 2.0)


def _bulk_trickle(plan: Plan) -> Built:
    """The load in latency requests, and a twentieth of what the device can do in bulk work."""
    return _classes(plan, plan.load, 0.05)


def _huge_request(plan: Plan) -> Built:
    """A steady load, and every second a list of long texts."""
    source = _only(plan)
    if source.profile.kind is LaneKind.ENCODER:
        size = Size((source.profile.max_tokens,) * 4)
        what = f"4 texts of {source.profile.max_tokens} tokens"
    else:
        long = source.profile.max_tokens * 3 // 4
        size, what = Size((long,), 16, 64), f"a prompt of {long} tokens"
    huge = _due(replace(source, draw=lambda rng: size, tenant="huge"), plan)
    rate = _rate(source, plan.load, plan)
    parts = [
        (source, arrivals.poisson(rate, plan.duration_s, plan.rng("small")), plan.rng("sizes")),
        (huge, arrivals.every(1.0, plan.duration_s), plan.rng("huge")),
    ]
    return Built(mixture(parts), (source, huge), (f"every second also {what}",))


def _flooding_tenant(plan: Plan) -> Built:
    """One tenant asks for more than the device can do, the others for a little."""
    source = _only(plan)
    parts, sources = [], []
    loads = [1.5, *[plan.load / 2 / (_TENANTS - 1)] * (_TENANTS - 1)]
    for i, load in enumerate(loads):
        tenant = replace(source, tenant="flood" if not i else f"tenant {i}")
        name = tenant.tenant
        rate = _rate(tenant, load, plan)
        times = arrivals.poisson(rate, plan.duration_s, plan.rng(name))
        parts.append((tenant, times, plan.rng(f"{name} sizes")))
        sources.append(tenant)
    note = f"one tenant offers a load of 1.5, {_TENANTS - 1} others {plan.load / 2:g} together"
    return Built(mixture(parts), tuple(sources), (note,))


def _trace(name: str) -> Callable[[Plan], Built]:
    def build(plan: Plan) -> Built:
        parts, sources, notes = [], [], []
        rows = read_trace(plan.trace or SAMPLES[name])
        for source in _sources(plan):
            scaled = ScaledTrace(rows, source.profile, plan.seed)
            sampled = replace(source, draw=scaled.sample)
            due = _due(sampled, plan)
            rate = _rate(due, plan.load / len(plan.profiles), plan)
            stretch = plan.time_scale or scaled.rate / rate
            replay = replace(due, draw=scaled.replay())
            parts.append((replay, scaled.times(stretch, plan.duration_s), plan.rng(name)))
            sources.append(due)
            notes.append(f"{name}: times multiplied by {stretch:.4g}, {scaled.scaling}")
        return Built(mixture(parts), tuple(sources), tuple(notes))

    return build


WORKLOADS: dict[str, Callable[[Plan], Built]] = {
    "poisson": _shaped(arrivals.poisson),
    "bursts": _shaped(arrivals.mmpp),
    "closed-loop": _closed_loop,
    "diurnal": _shaped(arrivals.diurnal),
    "flash-crowd": _shaped(arrivals.flash_crowd),
    "huge-request": _huge_request,
    "flooding-tenant": _flooding_tenant,
    "mixed": _mixed,
    "bulk-flood": _bulk_flood,
    "bulk-trickle": _bulk_trickle,
    "azure-code": _trace("azure-code"),
    "azure-conv": _trace("azure-conv"),
}


def build_workload(name: str, plan: Plan) -> Built:
    """A workload by name."""
    if name not in WORKLOADS:
        raise InvalidInput(f"no workload {name!r}, expected one of {', '.join(WORKLOADS)}")
    return WORKLOADS[name](plan)
