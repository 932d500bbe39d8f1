"""Two servers on one device: an embedding server and a language model server.

Neither knows of the other. Their steps queue for the device in the order in which they became
ready, which is what two processes on one accelerator get at best; a server sees its step take
as long as it waited and ran.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from runtime_py.batching import (
    Decision,
    DecoderStepScheduled,
    EmbeddingReady,
    Event,
    GenerationArrived,
    Idle,
    LaneKind,
    RequestArrived,
    StepCompleted,
    StepScheduled,
    TokenEmitted,
)
from toolchain.simulate.simulation import Policy

_Step = StepScheduled | DecoderStepScheduled


class SharedDevice:
    """Gives the device to one step at a time, first come first served.

    Args:
        servers: by the kind of request that they take.
    """

    def __init__(self, servers: dict[LaneKind, Policy]) -> None:
        self._servers = servers
        self._ready: deque[tuple[LaneKind, _Step, int]] = deque()
        self._running: tuple[LaneKind, int, int] | None = None
        self._inner_ids: dict[int, int] = {}
        self._wakes: dict[LaneKind, int] = dict.fromkeys(servers, -1)
        self._next_step = 0

    def handle_all(self, events: Sequence[Event], now_ns: int) -> list[Decision]:
        """Events in, decisions out; see `Policy`."""
        inboxes: dict[LaneKind, list[Event]] = {kind: [] for kind in self._servers}
        for event in events:
            if isinstance(event, StepCompleted):
                assert self._running is not None
                kind, inner, ready_ns = self._running
                self._running = None
                inboxes[kind].append(event._replace(step_id=inner, device_ns=now_ns - ready_ns))
            elif isinstance(event, RequestArrived):
                inboxes[LaneKind.ENCODER].append(event)
            elif isinstance(event, GenerationArrived):
                inboxes[LaneKind.DECODER].append(event)
        out: list[Decision] = []
        for kind, server in self._servers.items():
            wake_ns = self._wakes[kind]
            if inboxes[kind] or 0 <= wake_ns <= now_ns:
                self._ask(kind, server, inboxes[kind], now_ns, out)
        if self._running is None and self._ready:
            kind, step, ready_ns = self._ready.popleft()
            self._running = (kind, step.step_id, ready_ns)
            out.append(step._replace(step_id=self._next_step))
            self._inner_ids[step.step_id] = self._next_step
            self._next_step += 1
        wakes = [ns for ns in self._wakes.values() if ns >= 0]
        out.append(Idle(min(wakes, default=-1)))
        return out

    def _ask(
        self,
        kind: LaneKind,
        server: Policy,
        events: list[Event],
        now_ns: int,
        out: list[Decision],
    ) -> None:
        for decision in server.handle_all(events, now_ns):
            if isinstance(decision, (StepScheduled, DecoderStepScheduled)):
                self._ready.append((kind, decision, now_ns))
            elif isinstance(decision, Idle):
                self._wakes[kind] = decision.wake_at_ns
            elif isinstance(decision, (TokenEmitted, EmbeddingReady)):
                step_id = self._inner_ids.get(decision.step_id, decision.step_id)
                out.append(decision._replace(step_id=step_id))
            else:
                out.append(decision)
