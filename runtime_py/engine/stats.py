"""A snapshot of an engine for people and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtime_py.batching.kv import KVStats


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
        arrivals_per_s: sequences that arrived in the last second, or about.
        late_completions: steps that ended when nobody wanted them any more.
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

    @property
    def mean_batch_seqs(self) -> float:
        """Sequences per step."""
        return self.seqs / self.steps if self.steps else 0.0
