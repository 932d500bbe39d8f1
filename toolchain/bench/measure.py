"""One row of the table: a model under a number of concurrent requests."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runtime_py import Model
from runtime_py.engine import EngineStats
from toolchain.bench.clients import Client, Observations
from toolchain.bench.closed_loop import Window, closed_loop

_TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of some times, in milliseconds."""

    p50: float
    p90: float
    p99: float
    mean: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Percentiles | None:
        """Nearest-rank percentiles; None of nothing."""
        if not values:
            return None
        ordered = sorted(values)

        def rank(percent: int) -> float:
            return round(ordered[max(-(-len(ordered) * percent // 100), 1) - 1], 3)

        mean = round(statistics.fmean(ordered), 3)
        return cls(rank(50), rank(90), rank(99), mean, round(ordered[-1], 3))


@dataclass(frozen=True, slots=True)
class Row:
    """What was seen with so many clients.

    Attributes:
        clients: requests in flight.
        seconds: how long the window was open.
        requests: that began in it.
        texts_per_s: encoders: texts that were embedded, per second.
        input_tokens_per_s, output_tokens_per_s: tokens that were read and written.
        latency, queue: of whole requests, and of their waits for a first step.
        ttft, tpot, itl: decoders: time to the first token, mean time between the tokens of
            an answer, and every time between two tokens.
        batch_seqs, batch_tokens: of a step, on average.
        steps_in_flight: device time over the window's: 1 is a device that never rests.
        prediction_error: the cost model's, relative.
    """

    clients: int
    seconds: float
    requests: int
    texts_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    latency: Percentiles | None
    queue: Percentiles | None
    ttft: Percentiles | None
    tpot: Percentiles | None
    itl: Percentiles | None
    batch_seqs: float
    batch_tokens: float
    steps_in_flight: float
    prediction_error: float

    def to_plain(self) -> dict[str, Any]:
        """JSON: what was not measured is left out."""
        return {k: v for k, v in asdict(self).items() if v is not None}


async def measure(
    model: Model,
    client: Client,
    clients: int,
    *,
    seconds: float,
    warmup: int = 1,
    progress: Callable[[float], object] = lambda share: None,
) -> Row:
    """Let ``clients`` clients send requests for ``seconds`` once all of them are warm.

    Args:
        warmup: requests of each client that do not count.
        progress: told the part of the window that has passed.

    Raises:
        VoleryError: a request failed.
    """
    window, seen = Window(clients, seconds), Observations()
    snapshots: list[tuple[float, EngineStats]] = []

    async def watch() -> None:
        await window.opened()
        snapshots.append((time.monotonic(), model.stats()))
        while window.is_open:
            progress(window.progress)
            await asyncio.sleep(min(_TICK_S, seconds))
        snapshots.append((time.monotonic(), model.stats()))

    watching = asyncio.ensure_future(watch())
    try:
        await closed_loop(window, clients, warmup, lambda i: client.request(i, window, seen))
        await watching
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    return _row(clients, seconds, seen, snapshots)


def _row(
    clients: int,
    seconds: float,
    seen: Observations,
    snapshots: list[tuple[float, EngineStats]],
) -> Row:
    (opened, before), (closed, after) = snapshots
    steps = max(after.steps - before.steps, 1)
    return Row(
        clients,
        seconds,
        seen.requests,
        round(seen.texts / seconds, 2),
        round(seen.input_tokens / seconds, 2),
        round(seen.output_tokens / seconds, 2),
        Percentiles.of(seen.latency),
        Percentiles.of(seen.queue),
        Percentiles.of(seen.ttft),
        Percentiles.of(seen.tpot),
        Percentiles.of(seen.itl),
        round((after.seqs - before.seqs) / steps, 2),
        round((after.tokens - before.tokens) / steps, 2),
        round((after.device_ms - before.device_ms) / ((closed - opened) * 1e3), 3),
        round(after.prediction_error, 4),
    )
