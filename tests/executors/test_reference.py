"""The reference executor's own options."""

from __future__ import annotations

import re

import numpy as np
import pytest

from runtime_py.errors import ArtifactCorrupt, ArtifactMissing
from runtime_py.executors.reference import ReferenceExecutor, dequantize
from runtime_py.executors.weights import MemoryWeights, RowRange
from runtime_py.program import OpKind, Tensor, TensorFormat
from tests.ops.cases import make_step, normal
from tests.ops.cases.encoder import FFN, WIDTH, encoder, weights_of
from tests.ops.cases.formats import store, values_of

BLOCKS = (TensorFormat.I8B32, TensorFormat.I4B32)


def ranged(tensor: Tensor, parts: tuple[np.ndarray, ...], rows: int) -> list[RowRange]:
    return [
        RowRange(
            at,
            len(parts[0][at : at + rows]),
            *(memoryview(p[at : at + rows]).cast("B") for p in parts),
        )
        for at in range(0, tensor.shape[0], rows)
    ]


@pytest.mark.parametrize("fmt", TensorFormat, ids=lambda f: f.name)
def test_dequantize_in_pieces(fmt: TensorFormat) -> None:
    values = normal(1, 37, 50)
    tensor, parts = Tensor("w", fmt, (37, 50)), store(values, fmt)
    exact = dequantize(tensor, ranged(tensor, parts, 8), np.float64)
    np.testing.assert_array_equal(exact, values_of(parts, fmt, 50))
    single = dequantize(tensor, ranged(tensor, parts, 40))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, exact, rtol=1e-6, atol=1e-7)


def test_dequantize_refuses_missing_rows() -> None:
    tensor = Tensor("w", TensorFormat.F32, (16, 4))
    pieces = ranged(tensor, store(normal(1, 16, 4), tensor.format), 8)
    with pytest.raises(ArtifactCorrupt, match="has 8 rows, expected 16"):
        dequantize(tensor, pieces[:1])
    with pytest.raises(ArtifactCorrupt, match="rows 8 to 15 after row -1"):
        dequantize(tensor, pieces[1:])
    with pytest.raises(ArtifactCorrupt, match="without its scale"):
        dequantize(Tensor("w", TensorFormat.I8R, (16, 4)), pieces)


def test_observer_sees_the_rows_of_every_linear_op() -> None:
    program, parts = encoder(TensorFormat.I8B32)
    seen: dict[int, np.ndarray] = {}
    executor = ReferenceExecutor.from_weights(
        program, weights_of(program, parts), observer=lambda i, x: seen.update({i: x.copy()})
    )
    executor.run(make_step([5, 3], ids=[1] * 8))
    linear = [i for i, op in enumerate(program.ops) if op.kind is OpKind.LINEAR]
    assert list(seen) == linear
    widths = [seen[i].shape for i in linear]
    assert widths == [(8, WIDTH), (8, WIDTH), (8, WIDTH), (8, FFN)] * 2
    assert seen[linear[0]].dtype == np.float64


@pytest.mark.parametrize("fmt", BLOCKS, ids=lambda f: f.name)
def test_unquantized_activations_compute_with_the_stored_weights(fmt: TensorFormat) -> None:
    program, parts = encoder(fmt)
    weights = weights_of(program, parts)
    step = make_step([9, 4], ids=list(range(13)))
    plain, rounded = (
        np.asarray(
            ReferenceExecutor.from_weights(program, weights, quantize_activations=q)
            .run(step)
            .output
        )
        for q in (False, True)
    )
    # the same program with its weights dequantized beforehand
    exact, floats = encoder(TensorFormat.F32)
    for mine, other in zip(program.tensors, exact.tensors, strict=True):
        stored = tuple(parts[p] for p in mine.parts)
        if len(mine.shape) == 2:
            floats[other.name] = values_of(stored, mine.format, mine.shape[1]).astype(np.float32)
    truth = np.asarray(
        ReferenceExecutor.from_weights(exact, weights_of(exact, floats)).run(step).output
    )
    np.testing.assert_allclose(plain, truth, atol=2e-6)
    assert 1e-5 < np.abs(rounded - truth).max() < 0.1


def test_missing_weights_are_an_error() -> None:
    program, parts = encoder(TensorFormat.I8B32)
    scale = next(t for t in program.tensors if t.format in BLOCKS).parts[1]
    del parts[scale]
    with pytest.raises(ArtifactMissing, match=re.escape(scale)):
        ReferenceExecutor.from_weights(program, weights_of(program, parts))
    with pytest.raises(ArtifactMissing, match="is missing"):
        ReferenceExecutor.from_weights(program, MemoryWeights(program, {}))
