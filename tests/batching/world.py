"""A virtual device that runs encoders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime_py.batching import (
    Decision,
    DeviceSpec,
    EmbeddingReady,
    FinishReason,
    LaneSpec,
    RequestArrived,
    RequestFinished,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    StepScheduled,
    TrafficClass,
)
from runtime_py.batching.lane import EncoderLane
from tests.batching.virtual import MS, AnyStep, VirtualWorld

__all__ = ["LANE", "MS", "World", "linear_cost"]
LANE = "m/embed"


def linear_cost(step: StepScheduled) -> int:
    """A device like a small CPU: 0.2 ms a step, 0.1 ms a token on one thread."""
    shape = step.shape
    return 200_000 + 50_000 * (shape.threads - 1) + 100_000 * shape.num_tokens // shape.threads


class World(VirtualWorld):
    """Runs encoder lanes.

    Attributes:
        steps: every `StepScheduled` so far.
        ready: request id -> items delivered, in order of delivery.
    """

    def __init__(
        self,
        *,
        config: SchedulerConfig | None = None,
        device: DeviceSpec | None = None,
        lanes: Sequence[LaneSpec] = (LaneSpec(LANE, 512, 64),),
        cost: Callable[[StepScheduled], int] = linear_cost,
        outcome: Callable[[StepScheduled], StepCompleted | None] | None = None,
        lines: list[str] | None = None,
    ) -> None:
        super().__init__(lanes, device, config, cost, outcome, lines)
        self.steps: list[StepScheduled] = []
        self.ready: dict[int, list[int]] = {}

    def arrive(
        self,
        *lengths: int,
        traffic: TrafficClass = TrafficClass.LATENCY,
        deadline_ms: float | None = None,
        target_ms: float = -1,
        tenant: str = "",
        lane: str = LANE,
        send: bool = True,
    ) -> int:
        """A request arrives now; returns its id. ``send=False`` only makes the event."""
        target = -1 if target_ms < 0 else int(target_ms * MS)
        event = RequestArrived(
            self.next_id, lane, lengths, traffic, self.deadline(deadline_ms), target, tenant
        )
        self.register(event)
        if send:
            self.handle(event)
        return event.request_id

    def arrive_together(self, *lengths: int, **options: object) -> list[int]:
        """One single-text request per length, in one call of the core."""
        ids = [self.arrive(n, send=False, **options) for n in lengths]  # type: ignore[arg-type]
        self.handle(*[self.arrived[i] for i in ids])
        return ids

    def complete(self, step_id: int, event: StepCompleted | None = None) -> None:
        ns = self.cost(self.running[step_id])
        self.handle(event or StepCompleted(step_id, StepOutcome.OK, ns))

    def begin(self, step: AnyStep) -> None:
        super().begin(step)
        assert isinstance(step, StepScheduled)
        self.steps.append(step)
        lane = next(lane for lane in self.core.lanes if lane.spec.name == step.lane)
        shape, config = step.shape, lane.config
        assert shape.sum_len_sq == sum(s.num_tokens**2 for s in step.seqs)
        assert shape.num_seqs <= min(lane.spec.max_seqs, config.max_batch_seqs or 10**9)
        assert shape.num_tokens <= min(lane.spec.max_tokens, config.max_batch_tokens or 10**9)
        assert len(set(step.seqs)) == len(step.seqs)
        for request_id, item, num_tokens in step.seqs:
            event = self.arrived[request_id]
            assert isinstance(event, RequestArrived)
            assert event.num_tokens[item] == num_tokens

    def take(self, decision: Decision) -> None:
        if isinstance(decision, EmbeddingReady):
            assert decision.request_id not in self.finished
            items = self.ready.setdefault(decision.request_id, [])
            new = range(decision.item, decision.item + decision.num_items)
            assert not set(items).intersection(new), "an item was delivered twice"
            items.extend(new)
        elif isinstance(decision, RequestFinished) and decision.reason is FinishReason.DONE:
            event = self.arrived[decision.request_id]
            assert isinstance(event, RequestArrived)
            assert sorted(self.ready[decision.request_id]) == list(range(len(event.num_tokens)))

    def check_idle(self) -> None:
        super().check_idle()
        for lane in self.core.lanes:
            assert isinstance(lane, EncoderLane)
            assert lane.next_retry() is None
