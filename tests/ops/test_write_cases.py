"""The op cases as files say what the cases say."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from runtime_py.executors.base import SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import MemoryWeights
from runtime_py.program import Program
from tests.ops import write_cases
from tests.ops.cases import all_cases

NAMES = ("rope-partial24", "linear-i4b32-3x33x7", "g6-nan-stays-in-its-sequence-i8b32")


def test_files_hold_the_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {name: all_cases()[name] for name in NAMES}
    monkeypatch.setattr(write_cases, "all_cases", lambda: chosen)
    write_cases.write_cases(tmp_path)
    assert json.loads((tmp_path / "index.json").read_text()) == list(NAMES)
    for name in NAMES:
        folder = tmp_path / name
        program = Program.decode((folder / "program.bin").read_bytes())
        parts = load_file(folder / "weights.safetensors")
        case = json.loads((folder / "case.json").read_text())
        step = Step(array("i", case["token_ids"]), [SeqRow(*row) for row in case["seqs"]])
        assert (case["max_tokens"], case["max_seqs"]) == (len(step.token_ids), len(step.seqs))
        weights = MemoryWeights(program, {n: memoryview(a).cast("B") for n, a in parts.items()})
        result = ReferenceExecutor.from_weights(program, weights).run(step)
        assert list(result.statuses) == case["statuses"]
        wanted = np.array(case["expected"], np.float32)  # null becomes NaN
        np.testing.assert_array_equal(np.asarray(result.output), wanted)
