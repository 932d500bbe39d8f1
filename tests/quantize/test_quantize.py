"""Whole programs through quantization, against the float64 reference."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from runtime_py.errors import InvalidInput, NonFinite
from runtime_py.executors.base import SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.program import OpKind, Program, TensorFormat
from tests.quantize.models import bert_program, random_weights
from toolchain.quantize import SCHEMES, QuantizedModel, find_scheme, quantize
from toolchain.quantize.centring import centre_tables
from toolchain.quantize.corpus import CALIBRATION, EVALUATION, texts
from toolchain.quantize.ordering import hidden_units, order_units
from toolchain.quantize.smoothing import smooth, smoothable
from toolchain.verify.measure import memory_weights
from toolchain.verify.numerics import compare

Weights = Mapping[str, np.ndarray]


def sequences(seed: int, count: int = 40) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 200, rng.integers(2, 30)).tolist() for _ in range(count)]


def outlier_weights() -> dict[str, np.ndarray]:
    """E11: two channels of every norm's output are sixty times as large as the others."""
    weights = random_weights(np.random.default_rng(8), vocab=200)
    for name, value in weights.items():
        if name.endswith("norm.weight") and value.ndim == 1:
            value[[5, 40]] *= 60
    for name, value in weights.items():
        if name.endswith(("query.weight", "key.weight", "value.weight", "up.weight")):
            value[:, [5, 40]] /= 20
    return weights


def run(model: QuantizedModel, ids: list[list[int]], dtype: str = "float64") -> np.ndarray:
    executor = ReferenceExecutor.from_weights(model.program, memory_weights(model), dtype=dtype)  # type: ignore[arg-type]
    packed, rows = array("i"), []
    for text in ids:
        rows.append(SeqRow(len(packed), len(text)))
        packed.extend(text)
    return np.array(executor.run(Step(packed, rows)).output)


def float_model(program: Program, weights: Weights) -> QuantizedModel:
    return quantize(program, dict(weights), find_scheme("f32"))


def worst(model: QuantizedModel, truth: np.ndarray, ids: list[list[int]]) -> float:
    report = compare(run(model, ids), truth.astype(np.float64), backend="x", gate=0)
    return report.worst_cosine


@pytest.mark.parametrize(
    ("scheme", "floor"), [("f32", 1 - 1e-9), ("f16", 0.99999), ("i8", 0.999), ("i4", 0.97)]
)
def test_schemes_stay_close_to_the_float_program(scheme: str, floor: float) -> None:
    weights = random_weights(np.random.default_rng(0))
    program = bert_program(weights, heads=4)
    ids = sequences(1)
    truth = run(float_model(program, weights), ids)
    model = quantize(program, weights, find_scheme(scheme), sequences(2, 80))
    assert worst(model, truth, ids) >= floor


@pytest.mark.parametrize(("scheme", "floor"), [("i8", 0.999), ("i4", 0.96)])
def test_E11_outlier_channels_do_not_collapse_accuracy(scheme: str, floor: float) -> None:
    weights = outlier_weights()
    program = bert_program(weights, heads=4)
    ids = sequences(3)
    truth = run(float_model(program, weights), ids)
    found = worst(quantize(program, weights, find_scheme(scheme), sequences(4, 80)), truth, ids)
    plain = worst(quantize(program, weights, find_scheme(scheme)), truth, ids)
    assert found >= floor
    assert 1 - found < 0.5 * (1 - plain)


def test_E11_extreme_codes_are_exact() -> None:
    """Weights on the 7-bit grid, +-127 activations: the integer part loses nothing."""
    weights = random_weights(np.random.default_rng(9), layers=1)
    program = bert_program(weights, heads=4)
    model = quantize(program, weights, find_scheme("i8"), sequences(5))
    for name, part in model.parts.items():
        if part.dtype == np.uint8:
            assert part.max() <= 127, name
        if part.dtype == np.int8:
            assert part.min() >= -127, name


def test_calibration_beats_none() -> None:
    weights = random_weights(np.random.default_rng(10))
    program = bert_program(weights, heads=4)
    ids = sequences(6)
    truth = run(float_model(program, weights), ids)
    four = find_scheme("i4")
    calibrated = worst(quantize(program, weights, four, sequences(7, 80)), truth, ids)
    assert calibrated > worst(quantize(program, weights, four), truth, ids)


def test_quantization_is_deterministic_and_leaves_its_input_alone() -> None:
    weights = random_weights(np.random.default_rng(11))
    before = {n: w.copy() for n, w in weights.items()}
    program = bert_program(weights, heads=4)
    first, second = (quantize(program, weights, find_scheme("i4"), sequences(8)) for _ in range(2))
    assert first.program == second.program
    for name, part in first.parts.items():
        np.testing.assert_array_equal(part, second.parts[name])
    for name, value in before.items():
        np.testing.assert_array_equal(value, weights[name])


def test_smoothing_and_centring_change_no_result() -> None:
    weights = outlier_weights()
    program = bert_program(weights, heads=4)
    ids = sequences(12)
    truth = run(float_model(program, weights), ids)
    groups = smoothable(program)
    assert [len(g) for g in groups.values()] == [3, 1, 3, 1]
    channel_max = {first: np.linspace(0, 60, 64).astype(np.float32) ** 2 for first in groups}
    smoothed, moved = smooth(program, weights, channel_max)
    assert sum(op.kind is OpKind.BINARY for op in smoothed.ops) == len(groups)
    np.testing.assert_allclose(run(float_model(smoothed, moved), ids), truth, atol=1e-5)
    centred, shifted = centre_tables(program, weights)
    assert np.abs(shifted["word"].mean(axis=0)).max() < 1e-6
    np.testing.assert_allclose(run(float_model(centred, shifted), ids), truth, atol=1e-6)


def test_ordering_hidden_units_changes_no_result() -> None:
    weights = random_weights(np.random.default_rng(18))
    program = bert_program(weights, heads=4)
    found = hidden_units(program)
    names = [
        (program.tensors[program.ops[w].tensor("weight")].name, program.tensors[t].name)
        for r, w in found.items()
        for t in (program.ops[r].tensor("weight"),)
    ]
    assert names == [("0.up.weight", "0.down.weight"), ("1.up.weight", "1.down.weight")]
    energy = {r: np.random.default_rng(r).random(256).astype(np.float32) for r in found}
    ordered = order_units(program, weights, energy)
    assert not np.array_equal(ordered["0.up.bias"], weights["0.up.bias"])
    ids = sequences(19)
    np.testing.assert_allclose(
        run(float_model(program, ordered), ids), run(float_model(program, weights), ids), atol=1e-6
    )


def test_centring_adds_a_constant_where_there_is_none() -> None:
    weights = random_weights(np.random.default_rng(13))
    weights["word"] += 0.4
    del weights["type"]
    with_type = bert_program({**weights, "type": np.zeros(64, np.float32)}, heads=4)
    index = [t.name for t in with_type.tensors].index("type")
    bare = tuple(
        replace(op, tensors=tuple(-1 if t == index else t for t in op.tensors))
        for op in with_type.ops
    )
    program = replace(with_type, ops=bare)
    weights["type"] = np.zeros(64, np.float32)
    ids = sequences(14)
    centred, shifted = centre_tables(program, weights)
    assert len(centred.tensors) == len(program.tensors) + 1
    np.testing.assert_allclose(
        run(float_model(centred, shifted), ids), run(float_model(program, weights), ids), atol=1e-6
    )


def test_formats_follow_the_scheme() -> None:
    weights = random_weights(np.random.default_rng(15))
    program = bert_program(weights, heads=4)
    for name, chosen in SCHEMES.items():
        model = quantize(program, weights, chosen)
        formats = {t.name: t.format for t in model.program.tensors}
        assert formats["0.up.weight"] is chosen.linear, name
        assert formats["word"] is chosen.embedding
        assert formats["position"] is chosen.positions
        assert formats["0.up.bias"] is formats["norm.weight"] is TensorFormat.F32
        assert set(model.parts) == {p for t in model.program.tensors for p in t.parts}


def test_weights_too_large_for_f16_stay_f32() -> None:
    weights = random_weights(np.random.default_rng(16))
    weights["0.up.weight"][0, 0] = 70000.0
    model = quantize(bert_program(weights, heads=4), weights, find_scheme("f16"))
    formats = {t.name: t.format for t in model.program.tensors}
    assert formats["0.up.weight"] is TensorFormat.F32
    assert formats["1.up.weight"] is TensorFormat.F16


def test_bad_weights_are_named() -> None:
    weights = random_weights(np.random.default_rng(17))
    program = bert_program(weights, heads=4)
    nan = {**weights, "word": np.full_like(weights["word"], np.nan)}
    with pytest.raises(NonFinite, match="'word'"):
        quantize(program, nan, find_scheme("i8"))
    with pytest.raises(InvalidInput, match=r"'norm\.bias' is missing"):
        quantize(program, {n: w for n, w in weights.items() if n != "norm.bias"}, find_scheme("i8"))
    with pytest.raises(InvalidInput, match="expected one of"):
        find_scheme("i2")


def test_the_corpora_share_nothing() -> None:
    calibration, evaluation = texts(CALIBRATION, 400), texts(EVALUATION, 600)
    assert len(calibration) == 400
    assert len(evaluation) == 600
    assert len(set(calibration)) == 400
    assert not set(calibration) & set(evaluation)
    assert texts(EVALUATION, 50) == evaluation[:50]
    assert min(map(len, evaluation)) < 5
    assert max(map(len, evaluation)) > 1000
