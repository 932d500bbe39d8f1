"""What the command line asks for; cheap to import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Request:
    """The scenario, as it was typed; see ``toolchain simulate --help``."""

    workload: str
    profiles: tuple[str, ...]
    load: float
    duration_s: float
    seed: int
    slo_ms: float
    slo_scale: float
    clients: int
    think_s: float
    trace: Path | None
    time_scale: float
    threads: int
    concurrent_steps: int
    noise: float | None
    thermal: float
    stalls: float
    slow_at: tuple[str, ...]
    profile_error: float


@dataclass(frozen=True, slots=True)
class Runs:
    """Which policies run.

    Attributes:
        policies: by name; none = Volery.
        compare: all that can serve the workload.
        padded: those whose systems pad do.
    """

    policies: tuple[str, ...] = ()
    compare: bool = False
    padded: bool = False


@dataclass(frozen=True, slots=True)
class Outputs:
    """What comes out, besides a table.

    Attributes:
        folder: of plots and report.json.
        html: a page.
        json: JSON on standard output, no table.
        record: the trace of the first policy.
        explain: one request's life on standard output, no table.
        quiet: no progress.
    """

    folder: Path | None = None
    html: Path | None = None
    json: bool = False
    record: Path | None = None
    explain: int | None = None
    quiet: bool = False
