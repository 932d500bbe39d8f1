"""A small device with round numbers, and a hand-driven policy."""

from __future__ import annotations

from runtime_py.batching import (
    CostProfile,
    Decision,
    DecoderStepScheduled,
    DeviceSpec,
    Event,
    GenerationArrived,
    Idle,
    LaneKind,
    LaneSpec,
    RequestArrived,
    RequestFinished,
    StepCompleted,
    StepScheduled,
    Tick,
    TrafficClass,
)
from toolchain.simulate.policies import LaneSetup, Setup
from toolchain.simulate.profile import DeviceProfile
from toolchain.simulate.requests import FIRST_ID, STOP_ID, Slo
from toolchain.simulate.simulation import Policy

MS = 1_000_000

# 1 ms a step and 0.1 ms a token
ENCODER = DeviceProfile(
    "small", LaneKind.ENCODER, "test", CostProfile(1e6, 0, 0, 1e5, 0, 0), max_tokens=100
)
DECODER = DeviceProfile(
    "talker",
    LaneKind.DECODER,
    "test",
    CostProfile(1e6, 0, 0, 1e5, 0, 0),
    max_tokens=256,
    kv_blocks=32,
)


def setup(
    profile: DeviceProfile = ENCODER,
    *,
    slo: Slo = Slo(latency_ms=100),  # noqa: B008
    max_seqs: int = 64,
    kv_blocks: int = 0,
    padded: bool = False,
) -> Setup:
    """One lane on one thread."""
    decoder = profile.kind is LaneKind.DECODER
    spec = LaneSpec(
        name=f"{profile.name}/{'generate' if decoder else 'embed'}",
        max_tokens=4096,
        max_seqs=max_seqs,
        profile=profile.cost,
        kind=profile.kind,
        kv_blocks=kv_blocks or profile.kv_blocks,
        block_size=16 if decoder else 32,
        max_context=profile.max_tokens if decoder else 0,
    )
    return Setup((LaneSetup(spec, profile, slo, 10.0, padded),), DeviceSpec())


class Hand:
    """Drives a policy by hand: time and the ends of steps are the test's."""

    def __init__(self, policy: Policy, lane: str = "small/embed") -> None:
        self.policy = policy
        self.lane = lane
        self.now = 0
        self.wake = -1
        self.step: StepScheduled | DecoderStepScheduled | None = None
        self.ended: dict[int, str] = {}
        self.tokens: dict[int, int] = {}
        self._started = 0

    def at(self, ms: float, *events: Event) -> StepScheduled | DecoderStepScheduled | None:
        """Time is now ``ms``; the step that starts in this call, if any."""
        self.now = int(ms * MS)
        return self._take(self.policy.handle_all(events or (Tick(),), self.now))

    def arrive(
        self,
        ms: float,
        request_id: int,
        *num_tokens: int,
        traffic: TrafficClass = TrafficClass.LATENCY,
    ) -> StepScheduled | DecoderStepScheduled | None:
        """An embedding request."""
        return self.at(ms, RequestArrived(request_id, self.lane, num_tokens or (10,), traffic))

    def prompt(
        self, ms: float, request_id: int, length: int, max_tokens: int
    ) -> StepScheduled | DecoderStepScheduled | None:
        """A generation request."""
        tokens = tuple(range(FIRST_ID, FIRST_ID + length))
        event = GenerationArrived(request_id, self.lane, tokens, max_tokens, stop_ids=(STOP_ID,))
        return self.at(ms, event)

    def end(
        self, ms: float, stop: tuple[int, ...] = ()
    ) -> StepScheduled | DecoderStepScheduled | None:
        """The running step ends; requests in ``stop`` get their stop token."""
        step, self.step = self.step, None
        assert step is not None
        sampled: tuple[int, ...] = ()
        if isinstance(step, DecoderStepScheduled):
            wanted = [seq.request_id for seq in step.seqs if seq.wanted]
            sampled = tuple(STOP_ID if r in stop else FIRST_ID for r in wanted)
        took = int(ms * MS) - self._started
        return self.at(ms, StepCompleted(step.step_id, device_ns=took, sampled=sampled))

    def _take(self, decisions: list[Decision]) -> StepScheduled | DecoderStepScheduled | None:
        assert isinstance(decisions[-1], Idle)
        self.wake = decisions[-1].wake_at_ns
        started = [d for d in decisions if isinstance(d, (StepScheduled, DecoderStepScheduled))]
        for d in decisions:
            if isinstance(d, RequestFinished):
                assert d.request_id not in self.ended
                self.ended[d.request_id] = d.reason.value
        if not started:
            return None
        assert len(started) == 1
        assert self.step is None
        self.step, self._started = started[0], self.now
        return started[0]


def ids(step: StepScheduled | DecoderStepScheduled | None) -> list[int]:
    """The requests of a step, in order."""
    return [seq.request_id for seq in step.seqs] if step is not None else []


def slices(step: StepScheduled | DecoderStepScheduled | None) -> list[tuple[int, int]]:
    """(request, tokens) of a step, in order."""
    return [(seq.request_id, seq.num_tokens) for seq in step.seqs] if step is not None else []
