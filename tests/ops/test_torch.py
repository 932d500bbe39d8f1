"""The reference executor on torch: the op table, goldens, 32 generations at once.

`pytest -m cuda` runs these on an NVIDIA GPU; without one they run on torch's CPU.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from runtime_py.artifact import Artifact
from runtime_py.errors import InvalidInput
from runtime_py.executors.base import Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.loading import check_goldens
from runtime_py.program import TensorFormat
from tests.artifact.small import small_model, write_small
from tests.ops.backends import Dtype, reference, reference_steps
from tests.ops.cases import all_cases, generation_cases, steps_cases
from tests.ops.cases.decoder import decoder
from tests.ops.cases.encoder import encoder, weights_of
from tests.ops.checks import check_output, check_values
from tests.ops.generation import generate
from tests.ops.test_generation import LIMITS, requests

pytestmark = pytest.mark.cuda

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ONE_STEP = {**all_cases(), **generation_cases()}
DTYPES: tuple[Dtype, ...] = ("float64", "float32")


@pytest.mark.parametrize("name", ONE_STEP)
def test_op(name: str) -> None:
    case = ONE_STEP[name]
    tokens, seqs = len(case.step.token_ids), len(case.step.seqs)
    for dtype in DTYPES:
        executor = reference(dtype, DEVICE)(case.program, case.weights(), tokens, seqs)
        result = executor.run(case.step)
        executor.close()
        check_values(np.asarray(result.output), case.expected(), case.rtol, case.atol)
        assert result.statuses == case.statuses


@pytest.mark.parametrize("name", steps_cases())
def test_steps(name: str) -> None:
    case = steps_cases()[name]
    for dtype in DTYPES:
        executor = reference_steps(dtype, DEVICE)(case)
        done = case.run(executor)
        executor.close()
        for (got, _), wanted in zip(done, case.expected(), strict=True):
            check_output(got, wanted, case.rtol, case.atol)
        assert tuple(statuses for _, statuses in done) == case.statuses


def test_goldens(tmp_path: Path) -> None:
    for scheme in ("f32", "i8", "i4"):
        artifact = Artifact.open(write_small(tmp_path / scheme, small_model(scheme)))
        for dtype in DTYPES:
            executor = ReferenceExecutor.from_weights(
                artifact.program, artifact.weights, dtype=dtype, device=DEVICE
            )
            assert check_goldens(artifact, executor) > 0.99999


@pytest.mark.parametrize("chunk", [16, 100])
def test_a_mixed_batch_of_32_generations(chunk: int) -> None:
    """The tokens that numpy generates for each request by itself."""
    program, parts = decoder(TensorFormat.I8B32, 16, window=40)
    weights = weights_of(program, parts)
    on_numpy = ReferenceExecutor.from_weights(program, weights, limits=LIMITS)
    on_torch = ReferenceExecutor.from_weights(program, weights, limits=LIMITS, device=DEVICE)
    asked = requests()
    assert len(asked) == 32
    preempt = {(4, 0), (9, 7), (12, 20)}
    assert generate(on_torch, asked, chunk=chunk, preempt=preempt) == generate(on_numpy, asked)


def test_the_weights_are_on_the_device() -> None:
    program, parts = encoder(TensorFormat.F32)
    executor = ReferenceExecutor.from_weights(program, weights_of(program, parts), device=DEVICE)
    assert {t.device.type for t in executor._tensors} == {DEVICE}
    case = all_cases()["rope-partial24"]
    other = ReferenceExecutor.from_weights(case.program, case.weights(), device=DEVICE)
    output = other.run(Step(case.step.token_ids, case.step.seqs)).output
    assert output.format == "f"
    assert output.c_contiguous


def test_a_device_that_torch_does_not_have() -> None:
    program, parts = encoder(TensorFormat.F32)
    weights = weights_of(program, parts)
    for device in ("abacus", "cuda:99"):
        with pytest.raises(InvalidInput, match=f"device is '{device}'") as caught:
            ReferenceExecutor.from_weights(program, weights, device=device)
        assert "\n" not in str(caught.value)
