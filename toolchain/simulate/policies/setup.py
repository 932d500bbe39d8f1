"""What an operator would set up a server with, who knows the device and the SLO."""

from __future__ import annotations

from dataclasses import dataclass

from runtime_py.batching import DeviceSpec, LaneKind, LaneSpec, StepShape
from toolchain.simulate.profile import DeviceProfile
from toolchain.simulate.requests import Slo

_LARGEST_BATCH = 64


@dataclass(frozen=True, slots=True)
class LaneSetup:
    """One model, its device profile, and what is expected of it.

    The systems that Volery is compared with get limits that suit the device, as if their
    operator had measured it: a full batch of average requests takes half of the latency SLO,
    and a step's prompt tokens take one TPOT target. With their defaults, made for GPUs, they
    would do far worse on a small device.

    Attributes:
        spec: the lane, as the batching core takes it.
        profile: what its steps cost.
        slo: what its latency requests call in time.
        mean_tokens: tokens of an average sequence.
        padded: its sequences are padded to the longest of a batch.
    """

    spec: LaneSpec
    profile: DeviceProfile
    slo: Slo
    mean_tokens: float
    padded: bool = False

    @property
    def kind(self) -> LaneKind:
        return self.profile.kind

    @property
    def max_batch(self) -> int:
        """Sequences of a batch: the largest power of two that takes at most half of the SLO."""
        n = int(self.mean_tokens)
        batch = 1
        while batch < min(_LARGEST_BATCH, self.spec.max_seqs):
            shape = StepShape(2 * batch, 2 * batch * n, 2 * batch * n * n)
            if self.profile.step_ns(shape) > self.slo.latency_ms * 1e6 / 2:
                break
            batch *= 2
        return batch

    @property
    def batch_tokens(self) -> int:
        """Tokens of a batch that takes half of the SLO; at least the longest sequence."""
        return max(int(self.max_batch * self.mean_tokens), self.profile.max_tokens)

    @property
    def chunk_tokens(self) -> int:
        """Prompt tokens that take one TPOT target; at least 16."""
        ns = self.slo.tpot_ms * 1e6 - self.profile.cost.step_ns
        return max(int(ns / max(self.profile.cost.token_ns, 1.0)), 16)


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that a policy is made from."""

    lanes: tuple[LaneSetup, ...]
    device: DeviceSpec

    def only(self, kind: LaneKind) -> Setup:
        """The same with the lanes of one kind."""
        return Setup(tuple(lane for lane in self.lanes if lane.kind is kind), self.device)
