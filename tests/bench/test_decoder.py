"""The decoder benchmark's arithmetic: what bounds a step, and what a workload counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from bench.decoder import workload
from bench.decoder.bounds import Work, work_of
from bench.kernels.programs import decoder_program
from runtime_py.program import TensorFormat

LAYERS, WIDTH, QKV, FFN, VOCAB, KV = 30, 576, 960, 1536, 49152, 192
LINEAR = LAYERS * WIDTH * (QKV + WIDTH + 3 * FFN)
"""Weights of SmolLM2-135M's layers: 106 million."""
HEAD = VOCAB * WIDTH


@pytest.mark.parametrize(("bits", "dots"), [(8, 1), (16, 2)])
@pytest.mark.parametrize("rows", [1, 8])
def test_work_of_a_step_that_decodes(bits: int, dots: int, rows: int) -> None:
    """4-bit codes with two f16 per block of 32, the head's 8-bit ones with one; activations
    of 16 bits cost two dots."""
    work = work_of(decoder_program(TensorFormat.I4B32, bits), rows, rows, rows * 100)
    assert work.read == LINEAR * 20 // 32 + HEAD * 34 // 32 + LAYERS * 2 * 4 * KV * rows * 100
    assert work.operations == 2 * dots * rows * (LINEAR + HEAD)


def test_work_of_a_prompt_is_without_the_head() -> None:
    work = work_of(decoder_program(TensorFormat.I4B32, 8), 256, 1, 0)
    assert work.operations == 2 * (256 * LINEAR + HEAD)


def test_what_bounds_a_step() -> None:
    assert Work(100, 10).seconds(10, 10) == (10, "bytes")
    assert Work(100, 300).seconds(10, 10) == (30, "operations")


def test_workloads(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    file = tmp_path / "workload.json"
    workload.write(file, tokenizer, chunk=128)
    written = json.loads(file.read_text())
    assert len(written["long"]) == 512
    assert [len(ids) for ids in written["streams"]] == [workload.CONTEXT] * workload.STREAMS
    assert set(written["workloads"]) == {w.name for w in workload.WORKLOADS}
    assert [w.counted for w in workload.WORKLOADS] == [256, 512, 32, 128, 64]
    assert [w.rows for w in workload.WORKLOADS[2:]] == [1, 8, 1]
