"""A scenario: a device, a workload and policies, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from runtime_py.batching import DeviceSpec, LaneKind, LaneSpec
from runtime_py.errors import InvalidInput
from toolchain.simulate.device import NS_PER_S, Device, DeviceBehaviour
from toolchain.simulate.log import Log
from toolchain.simulate.policies import LaneSetup, Setup, make_policy, suited
from toolchain.simulate.profile import DeviceProfile
from toolchain.simulate.simulation import Observer, Policy, Simulation
from toolchain.simulate.workloads.catalog import Built, Plan, build_workload

_MAX_SEQS = {LaneKind.ENCODER: 64, LaneKind.DECODER: 16}
_MAX_STEP_TOKENS = {LaneKind.ENCODER: 4096, LaneKind.DECODER: 512}
_DRAIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything but the policy.

    Attributes:
        workload: its name.
        plan: what the workload is made from, the device profiles and the seed among it.
        behaviour: how the device departs from its profiles.
        concurrent_steps: most steps in flight.
        padded: policies whose systems pad in the usual set-up pad.
        profile_error: the device is so many times slower than the profile that policies
            are told of; only the clock knows.
    """

    workload: str
    plan: Plan
    behaviour: DeviceBehaviour = field(default_factory=DeviceBehaviour)
    concurrent_steps: int = 1
    padded: bool = False
    profile_error: float = 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """One policy's run."""

    policy: str
    scenario: Scenario
    built: Built
    setup: Setup
    log: Log


def lane_name(profile: DeviceProfile) -> str:
    """The lane of a model, as the engine would name it."""
    return f"{profile.name}/{'embed' if profile.kind is LaneKind.ENCODER else 'generate'}"


def setup_for(scenario: Scenario, built: Built, padded: bool = False) -> Setup:
    """What a policy is told of the models, the device and the SLOs."""
    lanes = []
    for lane, profile in scenario.plan.profiles.items():
        source = next(s for s in built.sources if s.lane == lane)
        sizes = source.samples()
        mean = sum(sum(s.num_tokens) / len(s.num_tokens) for s in sizes) / len(sizes)
        decoder = profile.kind is LaneKind.DECODER
        spec = LaneSpec(
            name=lane,
            max_tokens=max(_MAX_STEP_TOKENS[profile.kind], profile.max_tokens),
            max_seqs=_MAX_SEQS[profile.kind],
            profile=profile.cost,
            kind=profile.kind,
            kv_blocks=profile.kv_blocks,
            max_context=profile.max_tokens if decoder else 0,
        )
        lanes.append(LaneSetup(spec, profile, source.slo, mean, padded))
    device = DeviceSpec(scenario.plan.threads, scenario.concurrent_steps)
    return Setup(tuple(lanes), device)


def policies_for(scenario: Scenario) -> list[str]:
    """Names of the policies that can run the scenario, Volery first."""
    built = build_workload(scenario.workload, scenario.plan)
    return suited(setup_for(scenario, built))


def run(
    scenario: Scenario,
    policy: str,
    *,
    pads: bool = False,
    observers: Sequence[Observer] = (),
    progress: Callable[[int], None] | None = None,
    make: Callable[[str, Setup], Policy] = make_policy,
) -> Run:
    """Run one policy.

    The arrivals, and what befalls the device at which time, are the same for every policy.

    Args:
        scenario: what to run it in.
        policy: its name.
        pads: it pads its batches, whatever `Scenario.padded` says.
        observers: see every call of the policy.
        progress: told the virtual time now and then.
        make: makes the policy.
    """
    built = build_workload(scenario.workload, scenario.plan)
    setup = setup_for(scenario, built, pads)
    if policy not in (names := suited(setup, bounds=True)):
        raise InvalidInput(
            f"the policy {policy!r} cannot serve this, expected one of {', '.join(names)}"
        )
    device = Device(
        {
            lane: _slower(profile, scenario.profile_error)
            for lane, profile in scenario.plan.profiles.items()
        },
        scenario.behaviour,
        scenario.plan.seed,
    )
    simulation = Simulation(
        make(policy, setup),
        built.workload,
        device,
        threads=scenario.plan.threads,
        concurrent_steps=scenario.concurrent_steps,
        observers=observers,
        until_ns=int((scenario.plan.duration_s + _DRAIN_S) * NS_PER_S),
    )
    return Run(policy, scenario, built, setup, simulation.run(progress))


def _slower(profile: DeviceProfile, factor: float) -> DeviceProfile:
    cost = type(profile.cost)(*(c * factor for c in profile.cost))
    return replace(profile, cost=cost)
