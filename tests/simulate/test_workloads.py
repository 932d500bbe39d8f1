"""What arrives: rates, shapes, sizes, and the scaling of traces."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_py.batching import TrafficClass
from runtime_py.errors import ArtifactCorrupt, ArtifactMissing, InvalidInput
from tests.simulate.small import DECODER, ENCODER
from toolchain.simulate.requests import SimRequest
from toolchain.simulate.workloads import Workload, arrivals
from toolchain.simulate.workloads.azure import SAMPLES, ScaledTrace, read_trace
from toolchain.simulate.workloads.catalog import WORKLOADS, Plan, build_workload
from toolchain.simulate.workloads.lengths import sentences
from toolchain.simulate.workloads.source import Size, capacity, device_ns, texts

Process = Callable[[float, float, random.Random], Iterator[int]]
LANES = {"small/embed": ENCODER}


def counts(process: Process, rate: float, seconds: float, seed: int = 1) -> np.ndarray:
    """Arrivals in each second."""
    times = np.array(list(process(rate, seconds, random.Random(seed)))) / 1e9
    assert (np.diff(times) >= 0).all()
    return np.histogram(times, bins=int(seconds), range=(0, seconds))[0]


def drain(workload: Workload, limit: int = 10**6) -> list[SimRequest]:
    """All requests of an open workload."""
    requests = []
    while workload.next_ns() >= 0 and len(requests) < limit:
        requests.append(workload.pop())
    return requests


def test_poisson_has_its_rate_and_a_variance_equal_to_it() -> None:
    n = counts(arrivals.poisson, 50.0, 2000)
    assert n.mean() == pytest.approx(50, rel=0.01)
    assert n.var() / n.mean() == pytest.approx(1.0, rel=0.1)


def test_bursts_keep_the_mean_rate_and_are_far_from_poisson() -> None:
    n = counts(arrivals.mmpp, 50.0, 20_000)
    assert n.mean() == pytest.approx(50, rel=0.05)
    assert n.var() / n.mean() > 20
    # Ten times the rate in a tenth of the time: the two rates are 26 and 263
    assert np.percentile(n, 50) == pytest.approx(26.3, rel=0.15)
    assert np.percentile(n, 98) > 200


def test_diurnal_swings_around_its_mean() -> None:
    n = counts(arrivals.diurnal, 100.0, 400)
    assert n.mean() == pytest.approx(100, rel=0.03)
    nights, days = n[:10].mean(), n[90:110].mean()
    assert nights < 30
    assert days == pytest.approx(180, rel=0.1)


def test_a_flash_crowd_is_ten_times_as_dense_for_ten_seconds() -> None:
    n = counts(arrivals.flash_crowd, 40.0, 60)
    assert n[:20].mean() == pytest.approx(40, rel=0.1)
    assert n[20:30].mean() == pytest.approx(400, rel=0.05)
    assert n[30:].mean() == pytest.approx(40, rel=0.1)


@pytest.mark.parametrize("load", [0.3, 0.9])
@pytest.mark.parametrize("name", ["poisson", "diurnal", "azure-conv", "mixed"])
def test_a_load_is_the_part_of_the_device_that_the_requests_need(name: str, load: float) -> None:
    plan = Plan(LANES, load=load, duration_s=200, seed=3)
    built = build_workload(name, plan)
    requests = drain(built.workload)
    source = built.sources[0]
    sizes = [r.num_tokens for r in requests]
    work_s = sum(device_ns(source.profile, Size(n)) for n in sizes) / 1e9
    span_s = max(r.arrival_ns for r in requests) / 1e9
    # A trace's first minutes may be calmer than its whole
    assert work_s / span_s == pytest.approx(load, rel=0.35 if name.startswith("azure") else 0.1)


def test_capacity_is_what_a_busy_device_serves() -> None:
    # 100 ns a pair is nothing: 0.1 ms a token, and 1 ms a step shared by 50 ms of work
    source = texts("small/embed", ENCODER)
    mean = np.mean([s.num_tokens[0] for s in source.samples()])
    assert capacity(source) == pytest.approx(1000 / (0.1 * mean * 1.02), rel=0.02)


def test_sentences_are_short_with_a_long_tail() -> None:
    lengths, rng = sentences(256), random.Random(0)
    n = np.array([lengths.draw(rng) for _ in range(20_000)])
    assert np.median(n) == pytest.approx(25, abs=1)
    assert n.mean() == pytest.approx(32, abs=1)
    assert n.min() >= 4
    assert n.max() <= 256


def test_closed_loop_never_has_more_requests_than_clients() -> None:
    plan = Plan(LANES, duration_s=5, clients=3, think_s=0.01)
    workload = build_workload("closed-loop", plan).workload
    open_requests: list[SimRequest] = []
    now, served = 0, 0
    while workload.next_ns() >= 0 or open_requests:
        if len(open_requests) == 3 or workload.next_ns() < 0:
            now = max(now, open_requests[0].arrival_ns) + 5_000_000
            workload.finished(open_requests.pop(0), now)
            served += 1
        else:
            open_requests.append(workload.pop())
        assert len(open_requests) <= 3
    assert served > 300


def test_a_huge_request_comes_every_second() -> None:
    requests = drain(build_workload("huge-request", Plan(LANES, duration_s=10)).workload)
    huge = [r for r in requests if r.tenant == "huge"]
    assert [r.arrival_ns // 10**9 for r in huge] == list(range(10))
    assert {sum(r.num_tokens) for r in huge} == {400}


def test_one_tenant_floods() -> None:
    requests = drain(build_workload("flooding-tenant", Plan(LANES, duration_s=20)).workload)
    by_tenant = {t: sum(r.tenant == t for r in requests) for t in {r.tenant for r in requests}}
    flood = by_tenant.pop("flood")
    assert len(by_tenant) == 3
    assert flood > 5 * max(by_tenant.values())


def test_mixed_traffic_is_half_bulk_by_work() -> None:
    requests = drain(build_workload("mixed", Plan(LANES, duration_s=300)).workload)
    tokens = {t: sum(sum(r.num_tokens) for r in requests if r.traffic is t) for t in TrafficClass}
    assert tokens[TrafficClass.THROUGHPUT] / tokens[TrafficClass.LATENCY] == pytest.approx(1, 0.2)
    bulk = [r for r in requests if r.traffic is TrafficClass.THROUGHPUT]
    assert {len(r.num_tokens) for r in bulk} == {32}
    assert bulk[0].slo.latency_ms > requests[0].slo.latency_ms


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_samples_are_ten_minutes_of_real_requests(name: str) -> None:
    rows = read_trace(SAMPLES[name])
    assert len(rows) > 2000
    assert rows[0].at_s == 0
    assert 580 < rows[-1].at_s < 600
    assert all(a.at_s <= b.at_s for a, b in pairwise(rows))


def test_a_scaled_trace_keeps_its_shape_and_fits_the_model() -> None:
    rows = read_trace(SAMPLES["azure-conv"])
    scaled = ScaledTrace(rows, ENCODER, 0)
    lengths = np.array([s.num_tokens[0] for s in scaled.sizes])
    assert np.percentile(lengths, 99) == pytest.approx(100, abs=1)
    assert lengths.max() == 100
    original = np.array([r.context for r in rows])
    ordinary = (lengths > 5) & (lengths < 100)
    ratio = original[ordinary] / lengths[ordinary]
    assert ratio.std() / ratio.mean() < 0.1
    times = np.array(list(scaled.times(2.0, 1e9))) / 1e9
    assert times == pytest.approx(np.array([2 * r.at_s for r in rows]), abs=1e-6)
    assert "divided by" in scaled.scaling


def test_a_trace_for_a_language_model_leaves_room_for_answers() -> None:
    scaled = ScaledTrace(read_trace(SAMPLES["azure-code"]), DECODER, 0)
    for size in scaled.sizes:
        assert 1 <= size.output_tokens <= size.max_tokens
        assert size.num_tokens[0] + size.max_tokens <= DECODER.max_tokens
    assert "answers" in scaled.scaling


def test_an_original_trace_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:04.0319600,3180,8\n"
        "2023-11-16 18:17:03.9799600,4808,10\n"
    )
    rows = read_trace(path)
    assert [(r.context, r.generated) for r in rows] == [(4808, 10), (3180, 8)]
    assert rows[1].at_s == pytest.approx(0.052, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("TIMESTAMP,ContextTokens\n1,2\n3,4\n", "GeneratedTokens"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,1\n2,1,1\n", "row 2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,x,1\n2,1,1\n", "row 2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,1,1\n", "1 requests"),
        ("", "0 requests"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ArtifactCorrupt, match=what):
        read_trace(path)


def test_a_missing_trace_and_an_unknown_workload_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissing, match=r"none\.csv"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(InvalidInput, match="azure-code"):
        build_workload("azure", Plan(LANES))


@settings(max_examples=15)
@given(
    name=st.sampled_from([n for n in sorted(WORKLOADS) if n != "closed-loop"]),
    seed=st.integers(0, 10**6),
    load=st.floats(0.05, 3.0),
    decoder=st.booleans(),
)
def test_every_workload_is_ordered_and_repeatable(
    name: str, seed: int, load: float, decoder: bool
) -> None:
    profile = DECODER if decoder else ENCODER
    plan = Plan({"lane": profile}, load=load, duration_s=4, seed=seed)
    requests = drain(build_workload(name, plan).workload)
    assert requests == drain(build_workload(name, plan).workload)
    assert [r.request_id for r in requests] == list(range(len(requests)))
    for a, b in pairwise(requests):
        assert a.arrival_ns <= b.arrival_ns
    for r in requests:
        assert 0 <= r.arrival_ns < 4 * 10**9
        assert all(0 < n <= profile.max_tokens for n in r.num_tokens)
        if decoder:
            assert 1 <= r.output_tokens <= r.max_tokens
            assert r.num_tokens[0] + r.max_tokens <= profile.max_tokens
