"""The op cases as files say what the cases say."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from runtime_py.executors.base import ExecutorLimits, Sampled, SamplingRow, SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import MemoryWeights
from runtime_py.program import Program
from tests.ops import write_cases
from tests.ops.cases import all_cases, steps_cases
from tests.ops.cases.steps import output_of
from tests.ops.checks import check_output

NAMES = ("rope-partial24", "linear-i4b32-3x33x7", "g6-nan-stays-in-its-sequence-i8b32")


def test_files_hold_the_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {name: all_cases()[name] for name in NAMES}
    monkeypatch.setattr(write_cases, "all_cases", lambda: chosen)
    monkeypatch.setattr(write_cases, "generation_cases", dict)
    monkeypatch.setattr(write_cases, "steps_cases", dict)
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


STEPS = (
    "cached-attention-f16-mixed",
    "cached-attention-forked",
    "sampling-adjusted-everything",
    "sampling-g6-not-finite",
)


def test_files_hold_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_cases, "all_cases", dict)
    monkeypatch.setattr(write_cases, "generation_cases", dict)
    monkeypatch.setattr(write_cases, "steps_cases", lambda: {n: steps_cases()[n] for n in STEPS})
    write_cases.write_cases(tmp_path)
    assert json.loads((tmp_path / "steps" / "index.json").read_text()) == list(STEPS)
    for name in STEPS:
        folder = tmp_path / "steps" / name
        program = Program.decode((folder / "program.bin").read_bytes())
        parts = load_file(folder / "weights.safetensors")
        case = json.loads((folder / "case.json").read_text())
        executor = ReferenceExecutor.from_weights(
            program,
            MemoryWeights(program, {n: memoryview(a).cast("B") for n, a in parts.items()}),
            limits=ExecutorLimits(
                case["max_tokens"],
                case["max_seqs"],
                threads=1,
                concurrent_steps=1,
                kv_blocks=case["kv_blocks"],
                max_wanted=case["max_wanted"],
            ),
            kv_format=case["kv_format"],
        )
        for stored, written in zip(case["steps"], steps_cases()[name].steps, strict=True):
            step = read_step(stored)
            assert step == written or step.sampling is not None
            result = executor.run(step)
            assert list(result.statuses) == stored["statuses"]
            wanted = (
                [read_sampled(s) for s in stored["sampled"]]
                if step.sampling is not None
                else np.array(stored["expected"], np.float64).reshape(
                    len(step.wanted), program.output.width
                )
            )
            check_output(output_of(program, step, result), wanted, 0, 1e-12)


def read_step(stored: dict) -> Step:
    sampling = None
    if stored["sampling"] is not None:
        sampling = []
        for row in stored["sampling"]:
            mask = row.pop("mask")
            bits = None if mask is None else np.array(mask, "<u4").tobytes()
            sampling.append(SamplingRow(**{**row, "seed": int(row["seed"]), "mask": bits}))
    return Step(
        array("i", stored["token_ids"]),
        [SeqRow(*row) for row in stored["seqs"]],
        block_tables=[array("i", table) for table in stored["block_tables"]],
        copies=tuple((a, b) for a, b in stored["copies"]),
        wanted=tuple(stored["wanted"]),
        sampling=sampling,
    )


def read_sampled(stored: dict) -> Sampled:
    logprob = float("nan") if stored["logprob"] is None else stored["logprob"]
    return Sampled(stored["token_id"], logprob, tuple((i, v) for i, v in stored["top"]))
