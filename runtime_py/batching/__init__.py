"""The batching core: a pure, deterministic state machine (docs/design.md, 3.4).

Feed events to `BatchingCore`, carry out the decisions it returns. It does no I/O,
reads no clock and starts no thread; the asyncio engine, a simulator and the
JavaScript engine drive the same logic.
"""

from runtime_py.batching.config import QueuePolicy, SchedulerConfig, TimeoutAction
from runtime_py.batching.core import BatchingCore
from runtime_py.batching.events import (
    Decision,
    DecoderStepScheduled,
    EmbeddingReady,
    Event,
    GenerationArrived,
    Idle,
    RequestAborted,
    RequestArrived,
    RequestFinished,
    SampleFinished,
    SampleStopped,
    StepCompleted,
    StepScheduled,
    Tick,
    TokenEmitted,
)
from runtime_py.batching.stats import CoreStats
from runtime_py.batching.trace import TraceRecorder, replay
from runtime_py.batching.types import (
    BoundBy,
    CostProfile,
    DecoderSlice,
    DeviceSpec,
    FinishReason,
    LaneKind,
    LaneSpec,
    SeqSlice,
    StepOutcome,
    StepShape,
    TrafficClass,
    Turn,
    Why,
)

__all__ = [
    "BatchingCore",
    "BoundBy",
    "CoreStats",
    "CostProfile",
    "Decision",
    "DecoderSlice",
    "DecoderStepScheduled",
    "DeviceSpec",
    "EmbeddingReady",
    "Event",
    "FinishReason",
    "GenerationArrived",
    "Idle",
    "LaneKind",
    "LaneSpec",
    "QueuePolicy",
    "RequestAborted",
    "RequestArrived",
    "RequestFinished",
    "SampleFinished",
    "SampleStopped",
    "SchedulerConfig",
    "SeqSlice",
    "StepCompleted",
    "StepOutcome",
    "StepScheduled",
    "StepShape",
    "Tick",
    "TimeoutAction",
    "TokenEmitted",
    "TraceRecorder",
    "TrafficClass",
    "Turn",
    "Why",
    "replay",
]
