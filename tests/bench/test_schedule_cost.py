"""What a scheduling decision costs, measured by the benchmark's own code in Pyodide."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.js.hosts import ROOT

BAR_US = 2000
"""Of a call of `schedule` with 64 running and 1,000 waiting sequences, in Pyodide."""


def test_a_decision_in_pyodide_is_far_below_its_bar() -> None:
    if not (ROOT / "demo" / "node_modules" / "pyodide").is_dir():
        pytest.skip("Pyodide is not installed; run `npm ci` in demo/")
    command = [sys.executable, "-m", "bench.batching.schedule_cost", "--pyodide"]
    command += ["--waiting", "1000", "--repeats", "40"]
    done = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120
    )
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [row[:2] for row in rows] == [["encoder", "1000"], ["decoder", "1000"]]
    assert all(float(row[3]) < BAR_US for row in rows), done.stdout
