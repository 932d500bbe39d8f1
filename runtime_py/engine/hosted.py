"""What a device needs to know of the models on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from runtime_py._compat import default_threads
from runtime_py.batching import (
    DecoderStepScheduled,
    DeviceSpec,
    LaneKind,
    LaneSpec,
    RequestFinished,
    SchedulerConfig,
    StepScheduled,
)
from runtime_py.errors import InvalidInput, InvalidType
from runtime_py.executors.base import ExecutorLimits, StepResult

_MAX_THREADS = 256


class Hosted(Protocol):
    """A model on the device: what `Engine` is to `Device`."""

    spec: LaneSpec
    limits: ExecutorLimits

    def start(self, scheduled: StepScheduled | DecoderStepScheduled) -> None:
        """Run a step of this model's lane."""
        ...

    def landed(self, result: StepResult | BaseException) -> None:
        """A step of this model's lane ended; the core does not know yet."""
        ...

    def finish(self, finished: RequestFinished, cause: BaseException | None) -> None:
        """The end of one of its requests; ``cause`` is what the step to blame raised."""
        ...

    def changed(self) -> None:
        """The core has taken something in: there may be room, or nothing left to do."""
        ...

    async def close(self) -> None: ...


def checked_threads(threads: int | None) -> int:
    """``threads``, or the default.

    Raises:
        InvalidInput: no whole number from 1 to 256.
    """
    if threads is None:
        return default_threads()
    if isinstance(threads, bool) or not isinstance(threads, int) or not 0 < threads <= _MAX_THREADS:
        raise InvalidInput(f"threads is {threads!r}, expected 1 to {_MAX_THREADS}")
    return threads


def checked_config(config: SchedulerConfig | None) -> SchedulerConfig:
    """``config``, or the default.

    Raises:
        InvalidType: it is something else.
    """
    if config is None:
        return SchedulerConfig()
    if not isinstance(config, SchedulerConfig):
        raise InvalidType(f"config is {type(config).__name__}, expected SchedulerConfig")
    return config


def device_spec(models: Sequence[Hosted]) -> DeviceSpec:
    """What every one of ``models`` can take: a step never has more threads than any of
    their pools; where a pool's threads share no memory, each runs steps of its own. A decoder
    takes one step at a time whatever the device allows."""
    threads = min(max(m.limits.threads, m.limits.concurrent_steps) for m in models)
    encoders = [m.limits for m in models if m.spec.kind is LaneKind.ENCODER]
    steps = min([limits.concurrent_steps for limits in encoders], default=len(models))
    step_threads = min(model.limits.threads for model in models)
    return DeviceSpec(
        threads,
        min(steps, threads) if len(models) > 1 else steps,
        step_threads if step_threads < threads else 0,
    )
