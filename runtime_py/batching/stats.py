"""Counters of a core: what was scheduled, how requests ended, how good predictions were."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from runtime_py.batching.types import FinishReason

ERROR_BUCKETS = (0, 5, 10, 20, 50, 100)
"""Lower bounds, in percent, of `PredictionStats.prediction_errors`."""


@dataclass(slots=True)
class PredictionStats:
    """How good predictions were: of all steps, or of one lane's.

    Attributes:
        measured_steps: steps that ended well and told their time.
        predicted_ns, measured_ns: what those were expected to take, and took.
        prediction_errors: those steps by how far the prediction was off, in percent of the
            measured time: the largest of `ERROR_BUCKETS` that is not above it.
    """

    measured_steps: int = 0
    predicted_ns: int = 0
    measured_ns: int = 0
    prediction_errors: dict[int, int] = field(default_factory=dict)

    def ended(self, predicted_ns: int, measured_ns: int) -> None:
        """A step ended well; times that are not positive tell nothing."""
        if measured_ns <= 0:
            return
        self.measured_steps += 1
        self.predicted_ns += predicted_ns
        self.measured_ns += measured_ns
        percent = 100.0 * (abs(measured_ns - predicted_ns) / measured_ns)
        bucket = ERROR_BUCKETS[bisect_right(ERROR_BUCKETS, percent) - 1]
        self.prediction_errors[bucket] = self.prediction_errors.get(bucket, 0) + 1


@dataclass(slots=True)
class CoreStats(PredictionStats):
    """Counters since the start; `BatchingCore.stats`.

    Attributes:
        finished: requests by how they ended.
        steps, seqs, tokens: what was scheduled.
        batch_sizes: steps by their number of sequences.
        late_completions: steps that ended after nobody waited for them any more.
    """

    finished: dict[FinishReason, int] = field(default_factory=dict)
    steps: int = 0
    seqs: int = 0
    tokens: int = 0
    batch_sizes: dict[int, int] = field(default_factory=dict)
    late_completions: int = 0

    def started(self, num_seqs: int, num_tokens: int) -> None:
        """A step was scheduled."""
        self.steps += 1
        self.seqs += num_seqs
        self.tokens += num_tokens
        self.batch_sizes[num_seqs] = self.batch_sizes.get(num_seqs, 0) + 1
