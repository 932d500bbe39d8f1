"""Every op case on every backend, against the float64 reference; and the reference
against formulas that share nothing with it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from runtime_py.executors.base import ModelExecutor, Step
from tests.ops.backends import BACKENDS, STEPS
from tests.ops.cases import Case, all_cases, generation_cases, steps_cases
from tests.ops.checks import check_output, check_values

ONE_STEP = {**all_cases(), **generation_cases()}


def check(case: Case, output: memoryview, wanted: np.ndarray) -> None:
    check_values(np.asarray(output), wanted, case.rtol, case.atol)


@pytest.mark.parametrize("name", ONE_STEP)
def test_reference_equals_the_independent_formula(name: str) -> None:
    case = ONE_STEP[name]
    expected, truth = case.expected(), case.truth()
    check(case, memoryview(np.where(np.isfinite(expected), expected, np.nan)), truth)


@pytest.mark.parametrize("name", ONE_STEP)
@pytest.mark.parametrize("backend", BACKENDS)
def test_op(
    backend: str, name: str, bench: Callable[[str, str, ModelExecutor, Step], None]
) -> None:
    case = ONE_STEP[name]
    tokens, seqs = len(case.step.token_ids), len(case.step.seqs)
    executor = BACKENDS[backend](case.program, case.weights(), tokens, seqs)
    try:
        threads = executor.limits.threads
        step = Step(case.step.token_ids, case.step.seqs, threads)
        result = executor.run(step)
        check(case, result.output, case.expected())
        assert result.statuses == case.statuses
        bench(backend, name, executor, step)
    finally:
        executor.close()


@pytest.mark.parametrize("name", steps_cases())
def test_reference_equals_the_independent_formula_step_by_step(name: str) -> None:
    case = steps_cases()[name]
    for got, wanted in zip(case.expected(), case.truth(), strict=True):
        check_output(got, wanted, case.rtol, case.atol)


@pytest.mark.parametrize("name", steps_cases())
@pytest.mark.parametrize("backend", STEPS)
def test_steps(
    backend: str, name: str, bench: Callable[[str, str, ModelExecutor, Step], None]
) -> None:
    case = steps_cases()[name]
    executor = STEPS[backend](case)
    try:
        done = case.run(executor, executor.limits.threads)
        bench(backend, name, executor, case.steps[-1])  # writes again what it wrote
    finally:
        executor.close()
    for (got, _), wanted in zip(done, case.expected(), strict=True):
        check_output(got, wanted, case.rtol, case.atol)
    assert tuple(statuses for _, statuses in done) == case.statuses


def test_every_op_format_and_enum_member_has_a_case() -> None:
    from runtime_py.program import Activation, BinaryOp, NormMode, OpKind, PoolMode, TensorFormat

    seen: set[object] = set()
    enums = {
        (OpKind.LINEAR, "activation"): Activation,
        (OpKind.UNARY, "activation"): Activation,
        (OpKind.NORM, "mode"): NormMode,
        (OpKind.POOL, "mode"): PoolMode,
        (OpKind.BINARY, "op"): BinaryOp,
    }
    for case in (*ONE_STEP.values(), *steps_cases().values()):
        seen.update(t.format for t in case.program.tensors)
        for op in case.program.ops:
            seen.add(op.kind)
            for (kind, field), enum in enums.items():
                if op.kind is kind:
                    seen.add((kind, enum(op.uint(field))))
    wanted = {*OpKind, *TensorFormat}
    for (kind, _), enum in enums.items():
        wanted.update((kind, member) for member in enum)
    assert wanted <= seen, f"without a case: {wanted - seen}"
