"""A source of requests, and workloads that are mixtures of sources."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from runtime_py.batching import LaneKind, StepShape, TrafficClass
from toolchain.simulate.profile import DeviceProfile
from toolchain.simulate.requests import NO_SLO, SimRequest, Slo
from toolchain.simulate.workloads.base import OpenWorkload
from toolchain.simulate.workloads.lengths import Lengths, answers, prompts, sentences

_SAMPLES = 2000  # texts or prompts
_FULL_STEP_NS = 50e6  # a busy device shares a step's fixed cost among what fits into this
_STREAMS = 8  # ... or among so many streams


class Size(NamedTuple):
    """How large a request is; see `SimRequest`."""

    num_tokens: tuple[int, ...]
    output_tokens: int = 0
    max_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """Requests of one kind, without their times.

    Attributes:
        lane: that they are for.
        profile: of its device.
        draw: the size of the next one.
        traffic, tenant: of all of them.
        slo: what their owners call in time.
    """

    lane: str
    profile: DeviceProfile
    draw: Callable[[random.Random], Size]
    traffic: TrafficClass = TrafficClass.LATENCY
    tenant: str = ""
    slo: Slo = NO_SLO

    def samples(self) -> list[Size]:
        """Sizes to take means over: the same in every run."""
        rng = random.Random("sizes")
        first = self.draw(rng)
        return [first, *(self.draw(rng) for _ in range(_SAMPLES // len(first.num_tokens)))]

    def request(self, request_id: int, arrival_ns: int, size: Size, client: int = -1) -> SimRequest:
        """A request of this source."""
        return SimRequest(
            request_id,
            arrival_ns,
            self.lane,
            self.profile.kind,
            size.num_tokens,
            self.traffic,
            self.slo,
            self.tenant,
            size.output_tokens,
            size.max_tokens,
            client,
        )


def alone_ns(profile: DeviceProfile, size: Size) -> float:
    """What a request takes on an idle device."""
    if profile.kind is LaneKind.ENCODER:
        pairs = sum([n * n for n in size.num_tokens])
        return profile.step_ns(StepShape(len(size.num_tokens), sum(size.num_tokens), pairs))
    return prefill_ns(profile, size) + (size.output_tokens - 1) * decode_ns(profile, size)


def prefill_ns(profile: DeviceProfile, size: Size) -> float:
    """What a prompt takes on an idle device: its time to the first token."""
    n = size.num_tokens[0]
    return profile.step_ns(StepShape(1, n, n * n, n))


def decode_ns(profile: DeviceProfile, size: Size) -> float:
    """What the average next token takes on an idle device."""
    context = size.num_tokens[0] + size.output_tokens // 2
    return profile.step_ns(StepShape(1, 1, context, context))


def device_ns(profile: DeviceProfile, size: Size) -> float:
    """What a request costs a busy device, which shares steps' fixed costs among many."""
    whole, fixed = alone_ns(profile, size), profile.cost.step_ns
    if profile.kind is LaneKind.ENCODER:
        return (whole - fixed) * (1 + fixed / _FULL_STEP_NS)
    return whole - fixed * size.output_tokens * (1 - 1 / _STREAMS)


def capacity(source: Source) -> float:
    """Requests of a source per second that a device with one thread can serve."""
    sizes = source.samples()
    return 1e9 * len(sizes) / sum(device_ns(source.profile, size) for size in sizes)


def texts(lane: str, profile: DeviceProfile, items: int = 1) -> Source:
    """Embedding requests of ``items`` sentences each."""
    lengths = sentences(profile.max_tokens)

    def draw(rng: random.Random) -> Size:
        return Size(tuple([lengths.draw(rng) for _ in range(items)]))

    return Source(lane, profile, draw)


def chats(lane: str, profile: DeviceProfile) -> Source:
    """Generation requests. Owners set a limit of twice to eight times what they get."""
    prompt, answer = prompts(profile.max_tokens), answers(profile.max_tokens)

    def draw(rng: random.Random) -> Size:
        n, out = prompt.draw(rng), answer.draw(rng)
        return Size((n,), out, token_limit(out, n, profile, rng))

    return Source(lane, profile, draw)


def token_limit(output: int, prompt: int, profile: DeviceProfile, rng: random.Random) -> int:
    """What an owner sets as the most new tokens: a power of two above what it will get."""
    limit = 16
    while limit < 2 * output:
        limit *= 2
    limit *= rng.choice((1, 2, 4))
    return max(min(limit, profile.max_tokens - prompt), output)


def mixture(parts: Iterable[tuple[Source, Iterator[int], random.Random]]) -> OpenWorkload:
    """Sources with their arrival times, merged in order of arrival."""

    def timed(
        index: int, source: Source, times: Iterator[int], rng: random.Random
    ) -> Iterator[tuple[int, int, Source, Size]]:
        for at in times:
            yield at, index, source, source.draw(rng)

    streams = [timed(i, *part) for i, part in enumerate(parts)]
    merged = heapq.merge(*streams, key=lambda entry: entry[:2])
    return OpenWorkload(
        source.request(request_id, at, size)
        for request_id, (at, _, source, size) in enumerate(merged)
    )


__all__ = [
    "Lengths",
    "Size",
    "Source",
    "alone_ns",
    "capacity",
    "chats",
    "decode_ns",
    "device_ns",
    "mixture",
    "prefill_ns",
    "texts",
    "token_limit",
]
