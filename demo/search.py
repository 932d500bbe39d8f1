"""Index facts about birds, search them by meaning, and watch the batcher work.

python demo/search.py ARTIFACT             # what `make demo` shows
python demo/search.py ARTIFACT "a query"   # your own question
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from statistics import median, quantiles

import numpy as np
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

import runtime_py as rt
from runtime_py.engine import EngineStats

CORPUS = Path(__file__).with_name("birds.txt")
QUERIES = (
    "How do birds find their way in the dark?",
    "the fastest animal",
    "Which father keeps an egg warm?",
    "a nest that many families share",
    "Where does the pink colour come from?",
)
TOP = 3
BUSY_SECONDS = 4.0
QUERY_PAUSE_S = 0.02
BAR_WIDTH = 24

console = Console(highlight=False)


class Index:
    """Passages and their vectors; vectors have length 1, so a dot product is the cosine."""

    def __init__(self, passages: list[str], vectors: np.ndarray) -> None:
        self.passages, self._vectors = passages, vectors

    def search(self, query: np.ndarray) -> list[tuple[float, str]]:
        scores = self._vectors @ query
        best = np.argsort(-scores)[:TOP]
        return [(float(scores[i]), self.passages[i]) for i in best]


async def main(artifact: str, queries: list[str]) -> None:
    started = time.perf_counter()
    async with await rt.load(artifact) as model:
        show_model(model, time.perf_counter() - started)
        index = await build_index(model)
        for query in queries or QUERIES:
            show_hits(query, index.search(await model.embed(query)))
        if not queries:
            await show_two_classes(model, index.passages)
            show_batches(model.stats())
            console.print(
                f"\nAsk your own: [bold]{here(sys.executable)} demo/search.py {artifact} "
                "'birds that live underground'[/]",
                soft_wrap=True,
            )


def here(path: str) -> str:
    """``path`` as one would type it in this folder."""
    folder = str(Path.cwd()) + "/"
    return path.removeprefix(folder)


def show_model(model: rt.Model, seconds: float) -> None:
    info = model.info
    build = f" ({info.variant})" if info.variant else ""
    threads = f"{info.threads} thread{'s' * (info.threads > 1)}"
    console.print(Rule("[bold]Volery[/]"))
    console.print(
        f"[bold]{info.id}[/], {info.quantization} weights, {info.dimensions} dimensions\n"
        f"loaded and self-checked in {seconds:.2f} s on {info.executor}{build}, {threads}"
    )


async def build_index(model: rt.Model) -> Index:
    passages = CORPUS.read_text(encoding="utf-8").splitlines()
    started = time.perf_counter()
    result = await model.embed_with_info(passages, traffic="throughput")
    seconds = time.perf_counter() - started
    console.print(
        f"indexed {len(passages)} facts about birds ({sum(result.token_counts):,} tokens) in "
        f"{seconds * 1e3:.0f} ms, {len(passages) / seconds:,.0f} texts/s"
    )
    return Index(passages, result.vectors)


def show_hits(query: str, hits: list[tuple[float, str]]) -> None:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="cyan")
    table.add_column()
    for score, passage in hits:
        table.add_row(f"{score:.2f}", Text(passage))
    console.print(Text(f"\n? {query}", style="bold"))
    console.print(table)


async def show_two_classes(model: rt.Model, passages: list[str]) -> None:
    """Queries in the latency class, first on an idle device, then beside a bulk job."""
    console.print(Rule("somebody searches while everything is indexed again and again"))
    idle = [await timed_query(model, n) for n in range(30)]
    bulk = Bulk(model, passages)
    busy: list[float] = []
    while bulk.seconds < BUSY_SECONDS or not bulk.count:
        busy.append(await timed_query(model, len(busy)))
        await asyncio.sleep(QUERY_PAUSE_S)
    await bulk.stop()
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("idle device", justify="right")
    table.add_column("while indexing", justify="right")
    table.add_row("query, median", f"{median(idle):.1f} ms", f"{median(busy):.1f} ms")
    table.add_row("query, 95th percentile", f"{p95(idle):.1f} ms", f"{p95(busy):.1f} ms")
    table.add_row("bulk job", "-", f"{bulk.rate:,.0f} texts/s")
    console.print(table)
    console.print(
        f"[dim]{len(busy)} queries in the latency class overtook the throughput class, which "
        f"used what they left.[/]"
    )


class Bulk:
    """A bulk job that indexes the passages over and over until it is stopped."""

    def __init__(self, model: rt.Model, passages: list[str]) -> None:
        self._started = time.perf_counter()
        self.count = 0
        self._task = asyncio.ensure_future(self._run(model, passages))

    async def _run(self, model: rt.Model, passages: list[str]) -> None:
        async for _ in model.embed_stream(cycle(passages), traffic="throughput", window=64):
            self.count += 1

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    async def stop(self) -> None:
        self.rate = self.count / self.seconds
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


async def timed_query(model: rt.Model, n: int) -> float:
    """Milliseconds for one query."""
    started = time.perf_counter()
    await model.embed(QUERIES[n % len(QUERIES)], traffic="latency")
    return (time.perf_counter() - started) * 1e3


def p95(values: list[float]) -> float:
    return quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


def show_batches(stats: EngineStats) -> None:
    """How many texts the batcher packed into a step, without anybody asking it to."""
    console.print(Rule("what the batcher did"))
    console.print(
        f"{stats.seqs:,} texts, {stats.tokens:,} tokens in {stats.steps:,} steps: on average "
        f"{stats.seqs / stats.steps:.1f} texts and {stats.tokens / stats.steps:.0f} tokens a step; "
        f"step times predicted within {stats.prediction_error:.0%}"
    )
    groups: dict[int, int] = {}
    for size, steps in stats.batch_sizes.items():
        low = 1 << (size.bit_length() - 1)
        groups[low] = groups.get(low, 0) + steps
    table = Table(box=None, pad_edge=False)
    table.add_column("texts in a step", justify="right")
    table.add_column("steps", justify="right")
    table.add_column("")
    for low, steps in sorted(groups.items()):
        label = str(low) if low == 1 else f"{low} to {2 * low - 1}"
        bar = "█" * max(round(BAR_WIDTH * steps / max(groups.values())), 1)
        table.add_row(label, f"{steps:,}", Text(bar, style="cyan"))
    console.print(table)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
