"""A snapshot of an engine for people and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime_py.batching import FinishReason, StepShape
from runtime_py.batching.decoder_lane import DecoderLane
from runtime_py.batching.kv import KVStats
from runtime_py.batching.lane import Lane


@dataclass(slots=True)
class Counters:
    """What an engine counts of its own model; see `EngineStats`."""

    finished: dict[FinishReason, int] = field(default_factory=dict)
    steps: int = 0
    seqs: int = 0
    tokens: int = 0
    batch_sizes: dict[int, int] = field(default_factory=dict)
    device_ns: int = 0

    def scheduled(self, shape: StepShape) -> None:
        """A step begins."""
        self.steps += 1
        self.seqs += shape.num_seqs
        self.tokens += shape.num_tokens
        self.batch_sizes[shape.num_seqs] = self.batch_sizes.get(shape.num_seqs, 0) + 1


@dataclass(frozen=True, slots=True)
class EngineStats:
    """`Engine.stats`, counted since the model was loaded.

    Attributes:
        queued_seqs, queued_tokens: what waits now.
        running_steps: steps on the device now.
        requests: requests in the core now.
        finished: how many ended, by reason (``"done"``, ``"overloaded"``, ...).
        steps, seqs, tokens: what was scheduled.
        batch_sizes: number of sequences in a step -> number of such steps.
        device_ms: time of all steps inside the backend.
        prediction_error: decayed mean of the cost model's relative error.
        prediction_errors: steps by how far their prediction was off: percent of the time
            they took, rounded down to 0, 5, 10, 20, 50 or 100 -> number of steps.
        arrivals_per_s: sequences that arrived in the last second, or about.
        late_completions: steps of the device that ended when nobody wanted them any more.
        running_seqs: a decoder's sequences that hold blocks now.
        recomputed_tokens: what preemptions made a decoder compute again.
        kv: its key-value cache: blocks, hits, evictions, preemptions.
    """

    queued_seqs: int
    queued_tokens: int
    running_steps: int
    requests: int
    finished: Mapping[str, int]
    steps: int
    seqs: int
    tokens: int
    batch_sizes: Mapping[int, int]
    device_ms: float
    prediction_error: float
    arrivals_per_s: float
    late_completions: int
    running_seqs: int = 0
    recomputed_tokens: int = 0
    kv: KVStats | None = None
    prediction_errors: Mapping[int, int] = field(default_factory=dict)

    @property
    def mean_batch_seqs(self) -> float:
        """Sequences per step."""
        return self.seqs / self.steps if self.steps else 0.0


def snapshot(
    counters: Counters,
    lane: Lane | None,
    *,
    now_ns: int,
    window_ms: int,
    running_steps: int,
    requests: int,
    late_completions: int,
) -> EngineStats:
    """`EngineStats` of what was counted and what the scheduler knows.

    Args:
        lane: None before the first request.
        window_ms: of the lane's arrival rate.
    """
    residents = lane.residents if isinstance(lane, DecoderLane) else None
    arrived = lane.arrivals.in_window(now_ns) if lane else 0
    return EngineStats(
        queued_seqs=lane.queue.num_seqs if lane else 0,
        queued_tokens=lane.queue.num_tokens if lane else 0,
        running_steps=running_steps,
        requests=requests,
        finished={reason.value: n for reason, n in counters.finished.items()},
        steps=counters.steps,
        seqs=counters.seqs,
        tokens=counters.tokens,
        batch_sizes=dict(counters.batch_sizes),
        device_ms=counters.device_ns / 1e6,
        prediction_error=lane.cost.error if lane else 0.0,
        arrivals_per_s=arrived * 1000 / window_ms,
        late_completions=late_completions,
        running_seqs=len(residents.running) if residents else 0,
        recomputed_tokens=residents.recomputed if residents else 0,
        kv=residents.kv.stats if residents else None,
        prediction_errors=dict(lane.predictions.prediction_errors) if lane else {},
    )
