"""What happened in a simulation: one record per request and per step."""

from __future__ import annotations

from typing import NamedTuple

from runtime_py.batching import BoundBy, FinishReason
from toolchain.simulate.requests import SimRequest


class RequestLog:
    """One request's life.

    Attributes:
        request: what was asked for.
        first_step_ns: when its first step started, -1 = never.
        first_token_ns: decoder: when its first token was there, -1 = never.
        last_token_ns: decoder: when the latest was.
        max_gap_ns: decoder: longest time between two tokens.
        num_tokens: decoder: tokens generated.
        finish_ns: when it ended, -1 = it has not.
        reason: how, or None.
        num_steps: steps that it took part in.
        preemptions: how often computed context was thrown away.
        recomputed: tokens that were computed again because of that.
        computed: tokens of its context in the cache, by its latest step.
    """

    __slots__ = (
        "computed",
        "finish_ns",
        "first_step_ns",
        "first_token_ns",
        "last_token_ns",
        "max_gap_ns",
        "num_steps",
        "num_tokens",
        "preemptions",
        "reason",
        "recomputed",
        "request",
    )

    def __init__(self, request: SimRequest) -> None:
        self.request = request
        self.first_step_ns = -1
        self.first_token_ns = -1
        self.last_token_ns = -1
        self.max_gap_ns = 0
        self.num_tokens = 0
        self.finish_ns = -1
        self.reason: FinishReason | None = None
        self.num_steps = 0
        self.preemptions = 0
        self.recomputed = 0
        self.computed = 0

    @property
    def done(self) -> bool:
        """It ended with its whole result."""
        return self.reason is FinishReason.DONE

    @property
    def latency_ns(self) -> int:
        """From arrival to its end."""
        return self.finish_ns - self.request.arrival_ns

    @property
    def ttft_ns(self) -> int:
        """From arrival to the first token."""
        return self.first_token_ns - self.request.arrival_ns

    @property
    def tpot_ns(self) -> float:
        """Mean time between two tokens; 0 with fewer than two."""
        if self.num_tokens < 2:
            return 0.0
        return (self.last_token_ns - self.first_token_ns) / (self.num_tokens - 1)

    @property
    def in_time(self) -> bool:
        """It is done, and as fast as its owner calls in time."""
        if not self.done:
            return False
        slo = self.request.slo
        return not (
            (slo.latency_ms and self.latency_ns > slo.latency_ms * 1e6)
            or (slo.ttft_ms and self.ttft_ns > slo.ttft_ms * 1e6)
            or (slo.tpot_ms and self.tpot_ns > slo.tpot_ms * 1e6)
        )


class StepLog(NamedTuple):
    """One step on the device.

    Attributes:
        step_id, lane: which.
        start_ns, end_ns: when it ran.
        num_seqs: its sequences.
        num_bulk: those of the throughput class among them.
        num_tokens: their tokens.
        charged_tokens: tokens that the device computed: with padding, if the policy pads.
        longest: tokens of its longest sequence.
        threads: that ran it.
        predicted_ns: what the policy expected it to take, 0 = it does not predict.
        bound: what kept it from growing, as the policy says.
        num_waiting: requests that had arrived and were not in a step yet.
    """

    step_id: int
    lane: str
    start_ns: int
    end_ns: int
    num_seqs: int
    num_bulk: int
    num_tokens: int
    charged_tokens: int
    longest: int
    threads: int
    predicted_ns: int
    bound: BoundBy
    num_waiting: int

    @property
    def padding_avoided(self) -> int:
        """Tokens that padding its sequences to the longest would have added."""
        return max(self.longest * self.num_seqs - self.charged_tokens, 0)


class Log:
    """A whole run.

    Attributes:
        requests: in arrival order.
        steps: in the order in which they ended.
        end_ns: when the last thing happened.
        num_calls: calls of the policy.
    """

    def __init__(self) -> None:
        self.requests: list[RequestLog] = []
        self.steps: list[StepLog] = []
        self.end_ns = 0
        self.num_calls = 0
