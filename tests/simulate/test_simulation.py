"""The virtual clock: conservation, determinism, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_py.batching import (
    Decision,
    Event,
    FinishReason,
    Idle,
    RequestArrived,
    RequestFinished,
    StepScheduled,
    StepShape,
)
from tests.simulate.small import DECODER, ENCODER, setup
from toolchain.simulate.device import Device, DeviceBehaviour
from toolchain.simulate.log import RequestLog
from toolchain.simulate.metrics import fair_shares, summarize
from toolchain.simulate.policies import PAIRS, POLICIES, Setup, make_policy
from toolchain.simulate.policies.iteration import IterationScheduler
from toolchain.simulate.requests import Slo
from toolchain.simulate.scenario import Run, Scenario, run
from toolchain.simulate.simulation import Policy, PolicyFault, Simulation
from toolchain.simulate.workloads import OpenWorkload
from toolchain.simulate.workloads.catalog import WORKLOADS, Plan
from toolchain.simulate.workloads.source import Size, texts

ONE = {"small/embed": ENCODER}
TALK = {"talker/generate": DECODER}
BOTH = {**ONE, **TALK}


def scenario(lanes: dict[str, object], workload: str, **plan: object) -> Scenario:
    return Scenario(workload, Plan(lanes, **plan), DeviceBehaviour(noise=0.05))  # type: ignore[arg-type]


def check(result: Run) -> None:
    """Whatever a policy does, this holds."""
    log = result.log
    for r in log.requests:
        assert r.reason is not None
        assert r.finish_ns >= r.request.arrival_ns
        if r.done:
            assert r.first_step_ns >= r.request.arrival_ns
            assert r.num_tokens == r.request.output_tokens
            if r.request.output_tokens:
                assert r.request.arrival_ns < r.first_token_ns <= r.last_token_ns <= r.finish_ns
    steps = sorted(log.steps, key=lambda s: s.start_ns)
    for a, b in pairwise(steps):
        assert a.end_ns <= b.start_ns  # one thread, one step
    for s in steps:
        assert 0 < s.num_seqs <= s.num_tokens <= s.charged_tokens
    for s in steps[::9]:
        unborn = [r for r in log.requests if not 0 <= r.first_step_ns <= s.start_ns]
        # Who arrives or ends in the very moment may have been seen or not
        sure = [r for r in unborn if r.request.arrival_ns < s.start_ns < r.finish_ns]
        maybe = [r for r in unborn if r.request.arrival_ns <= s.start_ns <= r.finish_ns]
        assert len(sure) <= s.num_waiting <= len(maybe)
    done = sum(sum(r.request.num_tokens) for r in log.requests if r.done)
    made = sum(r.num_tokens - 1 for r in log.requests if r.done and r.num_tokens)
    recomputed = sum(r.recomputed for r in log.requests)
    # Everything that was delivered was computed, and nothing twice but what was recomputed
    assert sum(s.num_tokens for s in steps) >= done + made
    if all(r.done for r in log.requests):
        assert sum(s.num_tokens for s in steps) == done + made + recomputed


@settings(max_examples=40)
@given(
    policy=st.sampled_from([n for n, i in POLICIES.items()]),
    workload=st.sampled_from(sorted(WORKLOADS)),
    load=st.floats(0.1, 2.5),
    seed=st.integers(0, 10**6),
)
def test_every_policy_conserves_requests_tokens_and_the_device(
    policy: str, workload: str, load: float, seed: int
) -> None:
    decodes = (policy == "volery" and seed % 2) or POLICIES[policy].kind is DECODER.kind
    plan = {"load": load, "duration_s": 3.0, "seed": seed, "clients": 4}
    check(run(scenario(TALK if decodes else ONE, workload, **plan), policy))


@pytest.mark.parametrize("policy", ["volery", *PAIRS])
def test_two_models_share_a_device(policy: str) -> None:
    result = run(scenario(BOTH, "mixed", load=0.8, duration_s=4.0), policy)
    check(result)
    assert {s.lane for s in result.log.steps} == set(BOTH)


@settings(max_examples=15)
@given(
    policy=st.sampled_from([n for n, i in POLICIES.items() if i.kind is DECODER.kind]),
    blocks=st.integers(16, 40),
    seed=st.integers(0, 1000),
)
def test_memory_is_given_back_when_little_of_it_is_left(
    policy: str, blocks: int, seed: int
) -> None:
    lanes = {"talker/generate": replace(DECODER, kv_blocks=blocks)}
    kept: list[Policy] = []

    def make(name: str, of: Setup) -> Policy:
        kept.append(make_policy(name, of))
        return kept[0]

    check(run(scenario(lanes, "poisson", load=1.5, duration_s=3.0, seed=seed), policy, make=make))
    (server,) = kept
    assert isinstance(server, IterationScheduler)
    assert server.free_blocks == server._all_blocks
    assert not server.running
    assert not server.waiting


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_the_same_seed_gives_the_same_report(workload: str) -> None:
    def report(seed: int) -> str:
        made = run(scenario(ONE, workload, duration_s=3.0, seed=seed, clients=3), "volery")
        return json.dumps(summarize(made).to_plain())

    assert report(1) == report(1)
    assert report(1) != report(2)


def test_every_policy_sees_the_same_requests() -> None:
    of = scenario(ONE, "bursts", duration_s=3.0, load=1.2)
    first, *others = [
        [r.request for r in run(of, policy).log.requests]
        for policy in ("volery", "triton", "bentoml", "tei")
    ]
    assert others == [first] * 3


def test_one_client_waits_for_nothing_but_the_device() -> None:
    """C2: with one client, nothing is added to what the bare model takes."""
    result = run(scenario(ONE, "closed-loop", duration_s=20.0, think_s=0.05), "volery")
    for r, s in zip(result.log.requests, result.log.steps, strict=True):
        assert r.latency_ns == s.end_ns - s.start_ns


def test_a_server_that_waits_adds_its_wait_to_one_client() -> None:
    result = run(scenario(ONE, "closed-loop", duration_s=20.0, think_s=0.05), "mosec")
    for r, s in zip(result.log.requests, result.log.steps, strict=True):
        assert r.latency_ns - (s.end_ns - s.start_ns) == 5_000_000


class Faulty:
    """Answers every call with the given decisions."""

    def __init__(self, *decisions: Decision) -> None:
        self._decisions = list(decisions)

    def handle_all(self, events: Sequence[Event], now_ns: int) -> list[Decision]:
        return self._decisions if isinstance(events[0], RequestArrived) else [Idle(-1)]


def step(request_id: int, threads: int = 1) -> StepScheduled:
    policy = make_policy("no-batching", setup())
    made = policy.handle_all([RequestArrived(request_id, "small/embed", (10,))], 0)
    (only,) = [d for d in made if isinstance(d, StepScheduled)]
    return only._replace(shape=StepShape(1, 10, 100, 0, threads))


@pytest.mark.parametrize(
    ("decisions", "what"),
    [
        ((), "expected Idle"),
        ((Idle(-1),), "never ended"),
        ((step(0, threads=2), Idle(-1)), "needs 2 threads"),
        ((step(7), Idle(-1)), "holds request 7"),
        ((RequestFinished(7, FinishReason.DONE), Idle(-1)), "never arrived"),
        ((RequestFinished(0, FinishReason.DONE), Idle(-1)), "1 of its items are not"),
    ],
)
def test_a_policy_that_breaks_the_rules_is_caught(
    decisions: tuple[Decision, ...], what: str
) -> None:
    source = texts("small/embed", ENCODER)
    workload = OpenWorkload([source.request(0, 0, source.samples()[0])])
    device = Device(ONE, DeviceBehaviour(), 0)
    with pytest.raises(PolicyFault, match=what):
        Simulation(Faulty(*decisions), workload, device).run()


def test_what_counts_as_in_time() -> None:
    of = scenario(ONE, "poisson", duration_s=5.0, load=0.9, slo_ms=6.0)
    result = run(of, "triton")
    slow = [r for r in result.log.requests if r.latency_ns > 6_000_000]
    assert slow
    assert not any(r.in_time for r in slow)
    summary = summarize(result)
    assert summary.total.in_time == len(result.log.requests) - len(slow)
    assert summary.total.goodput == pytest.approx(summary.total.in_time / 5.0)
    assert result.built.sources[0].slo == Slo(latency_ms=6.0)


def test_padding_is_computed_by_those_that_pad_and_counted_as_avoided_by_others() -> None:
    of = scenario(ONE, "poisson", duration_s=5.0, load=0.9)
    packed = summarize(run(of, "triton")).steps
    padded = summarize(run(of, "triton", pads=True)).steps
    assert packed.padding == 0
    assert packed.padding_avoided > 0.1
    assert padded.padding > 0.1
    assert padded.padding_avoided == 0
    assert padded.device_use > packed.device_use


def test_fair_shares_are_max_min() -> None:
    """Small demands are met whole; the rest is for the one that wants more than there is."""
    source = texts("small/embed", ENCODER)
    requests = []
    for tenant, count, served in (("flood", 10, 6), ("a", 1, 1), ("b", 1, 0)):
        for i in range(count):
            entry = RequestLog(replace(source, tenant=tenant).request(i, 0, Size((10,))))
            entry.reason = FinishReason.DONE if i < served else FinishReason.DEADLINE
            requests.append(entry)
    # 70 tokens were served: 10 each for a and b, 50 for the flood
    assert fair_shares(requests) == {"flood": 60 / 50, "a": 1.0, "b": 0.0}
