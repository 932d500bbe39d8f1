"""Record and replay: JSON lines of every call, with a digest of every decision.

The first line is the header (version, lanes, device, config), then one line per call::

    {"d":[[decision], ...],"e":[[event], ...],"t":now_ns}

Events and decisions are arrays of a tag and the fields in order. Decisions hold
integers and strings only, and are written with sorted keys and no spaces, so every
host writes the same bytes. The digest is SHA-256 over the decision arrays, one line
each; two engines agree exactly when their digests do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from runtime_py.batching.config import SchedulerConfig
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
from runtime_py.batching.types import (
    CostProfile,
    DeviceSpec,
    LaneKind,
    LaneSpec,
    StepOutcome,
    TrafficClass,
)
from runtime_py.errors import ArtifactCorrupt, ArtifactUnsupported

TRACE_VERSION = 2

_TAGS: dict[type, str] = {
    RequestArrived: "arrived",
    GenerationArrived: "generate",
    SampleStopped: "stopped",
    RequestAborted: "aborted",
    StepCompleted: "completed",
    Tick: "tick",
    StepScheduled: "step",
    DecoderStepScheduled: "decoder_step",
    TokenEmitted: "token",
    SampleFinished: "sample",
    EmbeddingReady: "ready",
    RequestFinished: "finished",
    Idle: "idle",
}


class TraceRecorder:
    """Give one to `BatchingCore`; it writes lines and keeps the digest.

    Args:
        write: receives each line, with its line feed; None keeps the digest only.
    """

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self._write = write
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Hexadecimal SHA-256 of all decisions so far."""
        return self._hash.hexdigest()

    def start(self, lanes: Sequence[LaneSpec], device: DeviceSpec, config: SchedulerConfig) -> None:
        """Write the header."""
        if self._write is not None:
            header = {
                "volery_trace": TRACE_VERSION,
                "lanes": [_lane_plain(lane) for lane in lanes],
                "device": device._asdict(),
                "config": config.to_plain(),
            }
            self._write(_dumps(header) + "\n")

    def record(self, events: Sequence[Event], now_ns: int, decisions: Sequence[Decision]) -> None:
        """Write one call of `BatchingCore.handle_all`."""
        made = _dumps([_plain(d) for d in decisions])
        self._hash.update(made.encode() + b"\n")
        if self._write is not None:
            seen = _dumps([_plain(e) for e in events])
            self._write(f'{{"d":{made},"e":{seen},"t":{now_ns}}}\n')


def replay(lines: Iterable[str]) -> str:
    """Feed a recorded trace to a fresh core.

    Returns:
        The digest of the decisions, which are the recorded ones.

    Raises:
        ArtifactCorrupt: the trace is malformed, or this core decides otherwise; the
            message names the line.
        ArtifactUnsupported: a newer version of the format.
    """
    numbered = enumerate(lines, 1)
    _, first = next(numbered, (1, ""))
    recorder = TraceRecorder()
    core = _core_of(_loads(first, 1), recorder)
    for number, line in numbered:
        record = _loads(line, number)
        try:
            events = [_event(e) for e in record["e"]]
            decisions = core.handle_all(events, record["t"])
            recorded = record["d"]
        except (KeyError, TypeError, ValueError, IndexError) as e:
            raise ArtifactCorrupt(f"trace line {number} is malformed: {e!r}") from None
        made = _dumps([_plain(d) for d in decisions])
        if made != _dumps(recorded):
            raise ArtifactCorrupt(
                f"trace line {number} records the decisions {_dumps(recorded)}, this core "
                f"makes {made}; the trace is from another version of the scheduler"
            )
    return recorder.digest


def _core_of(header: dict[str, Any], recorder: TraceRecorder) -> BatchingCore:
    if header.get("volery_trace") != TRACE_VERSION:
        raise ArtifactUnsupported(
            f"trace version is {header.get('volery_trace')!r}, this runtime reads {TRACE_VERSION}"
        )
    try:
        lanes = [_lane(plain) for plain in header["lanes"]]
        device = DeviceSpec(**header["device"])
        config = SchedulerConfig.from_plain(header["config"])
    except (KeyError, TypeError, ValueError) as e:
        raise ArtifactCorrupt(f"trace header is malformed: {e!r}") from None
    return BatchingCore(lanes, device, config, recorder)


def _lane_plain(lane: LaneSpec) -> dict[str, Any]:
    config = None if lane.config is None else lane.config.to_plain()
    return {**lane._asdict(), "profile": lane.profile._asdict(), "config": config}


def _lane(plain: dict[str, Any]) -> LaneSpec:
    config = plain["config"]
    return LaneSpec(
        **{
            **plain,
            "profile": CostProfile(**plain["profile"]),
            "kind": LaneKind(plain["kind"]),
            "config": None if config is None else SchedulerConfig.from_plain(config),
        }
    )


def _event(plain: list[Any]) -> Event:
    match plain:
        case ["arrived", request_id, lane, num_tokens, traffic, *rest]:
            return RequestArrived(request_id, lane, tuple(num_tokens), TrafficClass(traffic), *rest)
        case ["generate", request_id, lane, tokens, max_tokens, stops, n, salt, traffic, *rest]:
            return GenerationArrived(
                request_id,
                lane,
                tuple(tokens),
                max_tokens,
                tuple(stops),
                n,
                salt,
                TrafficClass(traffic),
                *rest,
            )
        case ["stopped", request_id, sample]:
            return SampleStopped(request_id, sample)
        case ["aborted", request_id]:
            return RequestAborted(request_id)
        case ["completed", step_id, outcome, device_ns, non_finite, *rest]:
            return StepCompleted(
                step_id, StepOutcome(outcome), device_ns, tuple(non_finite), *map(tuple, rest)
            )
        case ["tick"]:
            return Tick()
    raise ValueError(f"unknown event {plain!r}")


def _plain(record: Event | Decision) -> list[Any]:
    return [_TAGS[type(record)], *record]


def _dumps(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _loads(line: str, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ArtifactCorrupt(f"trace line {number} is not a JSON object")
    return value
