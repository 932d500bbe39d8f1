"""The batching core: a pure, deterministic state machine (docs/design.md, 3.4).

Feed events to `BatchingCore`, carry out the decisions it returns. It does no I/O,
reads no clock and starts no thread; the asyncio engine, a simulator and the
JavaScript engine drive the same logic.
"""

from runtime_py.batching.config import QueuePolicy, SchedulerConfig, TimeoutAction
from runtime_py.batching.core import BatchingCore, CoreStats
from runtime_py.batching.events import (
    Decision,
    EmbeddingReady,
    Event,
    Idle,
    RequestAborted,
    RequestArrived,
    RequestFinished,
    StepCompleted,
    StepScheduled,
    Tick,
)
from runtime_py.batching.trace import TraceRecorder, replay
from runtime_py.batching.types import (
    BoundBy,
    CostProfile,
    DeviceSpec,
    FinishReason,
    LaneSpec,
    SeqSlice,
    StepOutcome,
    StepShape,
    TrafficClass,
)

__all__ = [
    "BatchingCore",
    "BoundBy",
    "CoreStats",
    "CostProfile",
    "Decision",
    "DeviceSpec",
    "EmbeddingReady",
    "Event",
    "FinishReason",
    "Idle",
    "LaneSpec",
    "QueuePolicy",
    "RequestAborted",
    "RequestArrived",
    "RequestFinished",
    "SchedulerConfig",
    "SeqSlice",
    "StepCompleted",
    "StepOutcome",
    "StepScheduled",
    "StepShape",
    "Tick",
    "TimeoutAction",
    "TraceRecorder",
    "TrafficClass",
    "replay",
]
