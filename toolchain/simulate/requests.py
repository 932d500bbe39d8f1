"""What a workload asks for: the part that a server is told, and the part that it is not."""

from __future__ import annotations

from typing import NamedTuple

from runtime_py.batching import (
    GenerationArrived,
    LaneKind,
    RequestArrived,
    TrafficClass,
)
from runtime_py.batching.types import NS_PER_MS

STOP_ID = 2
"""Ends every simulated generation; no other token has this id."""
FIRST_ID = 16
"""Prompts are made of ids from here on."""
VOCABULARY = 32_000


class Slo(NamedTuple):
    """What its owner calls in time. 0 = does not matter.

    Attributes:
        latency_ms: from arrival to the whole result.
        ttft_ms: from arrival to the first token.
        tpot_ms: mean time between two tokens of a stream.
    """

    latency_ms: float = 0.0
    ttft_ms: float = 0.0
    tpot_ms: float = 0.0


NO_SLO = Slo()


class SimRequest(NamedTuple):
    """One request of a workload.

    Attributes:
        request_id: ascending in arrival order.
        arrival_ns: when it arrives on the virtual clock.
        lane: name of the lane it is for.
        kind: encoder (texts in, vectors out) or decoder (a prompt in, a text out).
        num_tokens: encoder: tokens of each item; decoder: those of the prompt, one number.
        traffic: its class.
        slo: what its owner calls in time.
        tenant: whose it is.
        output_tokens: decoder: tokens that it will have generated when it stops by itself,
            the stop token included. No policy knows this.
        max_tokens: decoder: the limit that its owner sets, at least ``output_tokens``.
        client: closed loop: who waits for it, -1 = nobody.
    """

    request_id: int
    arrival_ns: int
    lane: str
    kind: LaneKind
    num_tokens: tuple[int, ...]
    traffic: TrafficClass = TrafficClass.LATENCY
    slo: Slo = NO_SLO
    tenant: str = ""
    output_tokens: int = 0
    max_tokens: int = 0
    client: int = -1

    @property
    def deadline_ns(self) -> int:
        """When its whole result stops being useful, -1 = never."""
        if not self.slo.latency_ms:
            return -1
        return self.arrival_ns + int(self.slo.latency_ms * NS_PER_MS)

    def event(self) -> RequestArrived | GenerationArrived:
        """Its arrival, as a server sees it.

        Prompts share no prefix, so no policy's prefix cache helps or hinders it.
        """
        if self.kind is LaneKind.ENCODER:
            return RequestArrived(
                self.request_id,
                self.lane,
                self.num_tokens,
                self.traffic,
                self.deadline_ns,
                tenant=self.tenant,
            )
        return GenerationArrived(
            self.request_id,
            self.lane,
            _prompt(self.request_id, self.num_tokens[0]),
            self.max_tokens,
            stop_ids=(STOP_ID,),
            traffic=self.traffic,
            deadline_ns=self.deadline_ns,
            ttft_target_ns=_target_ns(self.slo.ttft_ms),
            tpot_target_ns=_target_ns(self.slo.tpot_ms),
            tenant=self.tenant,
        )


def _target_ns(ms: float) -> int:
    return int(ms * NS_PER_MS) if ms else -1


def _prompt(request_id: int, length: int) -> tuple[int, ...]:
    """Ids that no other request begins with."""
    words = VOCABULARY - FIRST_ID
    head = (FIRST_ID + request_id % words, FIRST_ID + request_id // words % words)
    return (head + tuple(range(FIRST_ID, FIRST_ID + max(length - 2, 0))))[:length]
