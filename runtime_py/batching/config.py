"""Every knob of the scheduler, with a default that needs no tuning."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from runtime_py.errors import InvalidInput

_MAX_KNOB = 10**9


class TimeoutAction(StrEnum):
    """What happens to a request that waited longer than its class allows."""

    REJECT = "reject"
    """It ends with a typed error."""
    DEMOTE = "demote"
    """It moves to the throughput class and keeps its arrival time."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """Limits of one traffic class's queue.

    Attributes:
        max_queue_size: most sequences that may wait. A list of 30 texts counts 30,
            exactly like 30 single texts. Beyond it a request is `Overloaded`.
        timeout_ms: longest wait for the first step; 0 = unlimited. This is not a
            deadline: it says nothing about when the result arrives.
        timeout_action: what then happens.
        max_queue_ms: most work, in predicted time, that may wait; 0 = unlimited. Beyond
            it a request is `Overloaded`, so that a crowd leaves no long queue behind.
    """

    max_queue_size: int = 16_384
    timeout_ms: int = 0
    timeout_action: TimeoutAction = TimeoutAction.REJECT
    max_queue_ms: int = 0

    def __post_init__(self) -> None:
        _check_int("max_queue_size", self.max_queue_size, 1)
        _check_int("max_queue_ms", self.max_queue_ms, 0)
        _check_int("timeout_ms", self.timeout_ms, 0)
        object.__setattr__(self, "timeout_action", TimeoutAction(self.timeout_action))


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """How the batching core behaves. Times are whole milliseconds.

    Attributes:
        latency_target_ms: a latency request without a deadline is due this long after
            its arrival plus the time it needs alone, unless it names a target of its own.
            Orders requests and shapes steps; sheds nothing.
        ttft_target_ms: the same for the first token of a generation.
        step_target_ms: how long one step may take by prediction (one sequence always
            runs, however long). The time for which a newcomer may find the device busy.
        step_overhead_percent: while latency requests wait or are expected, a step takes no
            longer than a quarter of the latency target, or as long as makes its fixed cost
            this part of it, whichever is more; 0 = always up to ``step_target_ms``.
        max_batch_tokens: most tokens in a step; 0 = whatever the backend holds.
        max_batch_seqs: most sequences in a step; 0 = whatever the backend holds.
        fill_percent: by how much bulk sequences may lengthen a step that carries
            latency sequences.
        deadline_margin_percent: the time kept free before a deadline, in percent of the
            cost model's measured error: who runs on the brink is late half the time.
        tenant_lead_ms: within a class, device time by which a tenant may be ahead of the
            least served one that waits, before it has to let others go first.
        energy_saving: start a step only when it is full, when a request's slack ends, or
            when nobody else is expected before that. Fewer and larger steps for the same
            work; every request waits for most of its target.
        latency: queue limits of the latency class.
        throughput: queue limits of the throughput class.
        throughput_max_wait_ms: while bulk work waits, some of it runs at least this
            often, whatever the latency class asks for.
        throughput_max_skips: the same bound counted in steps.
        throughput_share_percent: the part of a step's time that such a turn may take.
        warmup_steps: first steps per thread count that the cost model ignores: they pay
            for compilation and cold caches.
        cost_memory_steps: steps after which an old sample weighs about a third.
        arrival_window_ms: window of the arrival-rate estimate.
        tpot_target_ms: decoders: how long a step may take by prediction, and so the time
            between two tokens of a stream while others join. The tightest target among the
            running streams counts.
        prefill_share_percent: decoders: the part of that time which prompts get even if
            the running streams alone take all of it.
        max_partial_prefills: decoders: most prompts that are prefilled in chunks side by
            side, so that a short one never waits for a long one.
        max_preemptions: decoders: how often a sequence loses its blocks to others, as
            long as anything else can run.
        prefix_caching: decoders: whether prompts that begin alike are computed once.
        memory_recovery_steps: steps without an allocation failure after which a token
            budget that memory pressure halved doubles again.
    """

    latency_target_ms: int = 50
    ttft_target_ms: int = 200
    step_target_ms: int = 50
    step_overhead_percent: int = 2
    max_batch_tokens: int = 0
    max_batch_seqs: int = 0
    fill_percent: int = 25
    deadline_margin_percent: int = 200
    tenant_lead_ms: int = 100
    energy_saving: bool = False
    latency: QueuePolicy = field(default_factory=QueuePolicy)
    throughput: QueuePolicy = field(default_factory=QueuePolicy)
    throughput_max_wait_ms: int = 500
    throughput_max_skips: int = 16
    throughput_share_percent: int = 50
    warmup_steps: int = 1
    cost_memory_steps: int = 32
    arrival_window_ms: int = 1000
    memory_recovery_steps: int = 32
    tpot_target_ms: int = 100
    prefill_share_percent: int = 25
    max_partial_prefills: int = 2
    max_preemptions: int = 3
    prefix_caching: bool = True

    def __post_init__(self) -> None:
        for name, low in _LOWEST.items():
            _check_int(name, getattr(self, name), low)
        for name in ("latency", "throughput"):
            if not isinstance(getattr(self, name), QueuePolicy):
                raise InvalidInput(f"{name} is {getattr(self, name)!r}, expected a QueuePolicy")
        for name in ("throughput_share_percent", "prefill_share_percent", "step_overhead_percent"):
            if getattr(self, name) > 100:
                raise InvalidInput(f"{name} is {getattr(self, name)}, expected at most 100")
        for name in ("prefix_caching", "energy_saving"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInput(f"{name} is {getattr(self, name)!r}, expected a bool")

    def to_plain(self) -> dict[str, Any]:
        """Integers, strings and flags only: the header of a trace."""
        plain: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("latency", "throughput"):
            policy = plain[name]
            plain[name] = {f.name: getattr(policy, f.name) for f in fields(policy)}
        return plain

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> SchedulerConfig:
        """The inverse of `to_plain`."""
        values = dict(plain)
        for name in ("latency", "throughput"):
            values[name] = QueuePolicy(**values[name])
        return cls(**values)


_LOWEST = {
    "latency_target_ms": 0,
    "ttft_target_ms": 0,
    "step_target_ms": 1,
    "step_overhead_percent": 0,
    "max_batch_tokens": 0,
    "max_batch_seqs": 0,
    "fill_percent": 0,
    "deadline_margin_percent": 0,
    "tenant_lead_ms": 0,
    "throughput_max_wait_ms": 0,
    "throughput_max_skips": 0,
    "throughput_share_percent": 1,
    "warmup_steps": 0,
    "cost_memory_steps": 2,
    "arrival_window_ms": 1,
    "memory_recovery_steps": 1,
    "tpot_target_ms": 1,
    "prefill_share_percent": 1,
    "max_partial_prefills": 2,
    "max_preemptions": 0,
}


def _check_int(name: str, value: object, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= _MAX_KNOB:
        raise InvalidInput(
            f"{name} is {value!r}, expected a whole number from {low} to {_MAX_KNOB}"
        )
