"""The Azure LLM inference traces of 2023, scaled to a small device.

Source: Azure/AzurePublicDataset, licence CC-BY 4.0; Patel et al., "Splitwise: Efficient
generative LLM inference using phase splitting", ISCA 2024. The toolchain ships ten minutes of
each; `read_trace` also reads the originals.

They were recorded on clusters of GPUs. To replay one on a small device, time is stretched by
one factor, so the pattern of arrivals keeps its shape, and lengths are divided by one factor,
so their distribution keeps its shape: the 99th percentile of the prompts becomes the longest
that the model takes (for a language model half of its context), and what is longer is clipped.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from runtime_py.batching import LaneKind
from runtime_py.errors import ArtifactCorrupt, ArtifactMissing
from toolchain.simulate.profile import DeviceProfile
from toolchain.simulate.workloads.source import Size, token_limit

_DATA = Path(__file__).parents[1] / "data"
SAMPLES = {
    "azure-code": _DATA / "azure_llm_2023_code_sample.csv",
    "azure-conv": _DATA / "azure_llm_2023_conv_sample.csv",
}
_MAX_GENERATED_PART = 8  # of the context, that the 99th percentile of answers becomes


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a trace.

    Attributes:
        at_s: seconds after the first one.
        context: tokens of the prompt.
        generated: tokens of the answer.
    """

    at_s: float
    context: int
    generated: int


def read_trace(path: Path) -> list[Row]:
    """Rows of a trace in order of arrival.

    Args:
        path: a CSV file with the columns TIMESTAMP (a date with a time, or seconds),
            ContextTokens and GeneratedTokens; lines that begin with # are comments.

    Raises:
        ArtifactMissing: the file cannot be read.
        ArtifactCorrupt: it is not such a file.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise ArtifactMissing(f"cannot read the trace {path}: {e}") from None
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    rows = []
    for number, line in enumerate(csv.DictReader(lines), 2):
        try:
            row = Row(
                _seconds(line["TIMESTAMP"]),
                int(line["ContextTokens"]),
                int(line["GeneratedTokens"]),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise ArtifactCorrupt(
                f"{path}, row {number}: {e!r}; expected the columns TIMESTAMP, ContextTokens "
                "and GeneratedTokens"
            ) from None
        rows.append(row)
    if len(rows) < 2:
        raise ArtifactCorrupt(f"{path} holds {len(rows)} requests, expected at least 2")
    rows.sort(key=lambda row: row.at_s)
    start = rows[0].at_s
    return [Row(row.at_s - start, row.context, row.generated) for row in rows]


def _seconds(timestamp: str) -> float:
    try:
        return float(timestamp)
    except ValueError:
        # Seven digits of a second's fraction are one more than Python reads
        whole, _, fraction = timestamp.partition(".")
        since = datetime.fromisoformat(whole) - datetime(2000, 1, 1)
        return since.total_seconds() + float(f"0.{fraction or 0}")


class ScaledTrace:
    """A trace with its lengths scaled to a model.

    Attributes:
        sizes: of its requests, in order.
        scaling: what was done, in words.
    """

    def __init__(self, rows: list[Row], profile: DeviceProfile, seed: int) -> None:
        self._rows = rows
        rng = random.Random(f"limits {seed}")
        encoder = profile.kind is LaneKind.ENCODER
        longest = profile.max_tokens if encoder else profile.max_tokens // 2
        divisor = max(_percentile([r.context for r in rows], 99) / longest, 1.0)
        lengths = [min(max(round(r.context / divisor), 1), longest) for r in rows]
        self.scaling = f"prompts divided by {divisor:.3g} and clipped to {longest} tokens"
        if encoder:
            self.sizes = [Size((n,)) for n in lengths]
            return
        most = max(profile.max_tokens // _MAX_GENERATED_PART, 1)
        shrink = max(_percentile([r.generated for r in rows], 99) / most, 1.0)
        self.sizes = []
        for n, row in zip(lengths, rows, strict=True):
            out = min(max(round(row.generated / shrink), 1), most)
            self.sizes.append(Size((n,), out, token_limit(out, n, profile, rng)))
        self.scaling += f", answers divided by {shrink:.3g} and clipped to {most}"

    def sample(self, rng: random.Random) -> Size:
        """The size of some request: for means."""
        return rng.choice(self.sizes)

    def replay(self) -> Callable[[random.Random], Size]:
        """Draws the sizes in their order, once."""
        sizes = iter(self.sizes)
        return lambda rng: next(sizes)

    @property
    def rate(self) -> float:
        """Requests per second as recorded."""
        return len(self._rows) / max(self._rows[-1].at_s, 1e-9)

    def times(self, stretch: float, duration_s: float) -> Iterator[int]:
        """Arrivals, ``stretch`` times as far apart, of the first ``duration_s`` seconds."""
        for row in self._rows:
            if row.at_s * stretch >= duration_s:
                return
            yield int(row.at_s * stretch * 1e9)


def _percentile(values: list[int], percent: int) -> int:
    ordered = sorted(values)
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]
