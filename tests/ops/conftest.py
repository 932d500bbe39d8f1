"""`--bench`: time every op case on every backend."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from runtime_py.executors.base import ModelExecutor, Step

_TIMES = pytest.StashKey[dict[tuple[str, str], float]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bench", action="store_true", help="print the time of every op case")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TIMES] = {}


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Callable[[str, str, ModelExecutor, Step], None]:
    """Call with (backend, case, executor, step) to time the step when asked to."""

    def measure(backend: str, case: str, executor: ModelExecutor, step: Step) -> None:
        if request.config.getoption("--bench", default=False):
            best = float("inf")
            for _ in range(20):
                start = time.perf_counter()
                executor.run(step)
                best = min(best, time.perf_counter() - start)
            request.config.stash[_TIMES][case, backend] = best

    return measure


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    times = terminalreporter.config.stash.get(_TIMES, {})
    if not times:
        return
    backends = list(dict.fromkeys(backend for _, backend in times))
    terminalreporter.section("best of 20 runs, microseconds")
    terminalreporter.write_line("".join(f"{b:>16}" for b in backends) + "  case")
    for case in dict.fromkeys(case for case, _ in times):
        row = (
            f"{times[case, b] * 1e6:16.1f}" if (case, b) in times else " " * 16 for b in backends
        )
        terminalreporter.write_line("".join(row) + f"  {case}")
