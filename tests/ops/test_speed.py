"""Relations between speeds that must hold on any machine, with room for noise."""

from __future__ import annotations

from runtime_py.executors.base import ModelExecutor
from runtime_py.program import OpKind, TensorFormat
from tests.ops.backends import WASMTIME
from tests.ops.cases import Builder, make_step, normal
from tests.ops.cases.encoder import weights_of

K, N = 1024, 4096


def one_row(fmt: TensorFormat) -> ModelExecutor:
    b = Builder(1)
    x, y = b.input(normal(1, 1, K)), b.tokens(N)
    weight = b.tensor(normal(2, N, K) / 32, fmt)
    for _ in range(4):
        b.add(OpKind.LINEAR, y, x=x, weight=weight)
    program = b.program(b.add(OpKind.POOL, b.seqs(N), x=y))
    return WASMTIME["relaxed"](program, weights_of(program, b.parts), 1, 1)


def test_E15_fewer_bits_are_not_slower_for_one_row() -> None:
    """A matrix times one row is bound by memory: int4 reads half of what int8 does."""
    formats = (TensorFormat.F32, TensorFormat.I8B32, TensorFormat.I4B32)
    models = {fmt: one_row(fmt) for fmt in formats}
    best = dict.fromkeys(formats, float("inf"))
    for _ in range(40):  # in turns, so that noise meets all of them
        for fmt, model in models.items():
            best[fmt] = min(best[fmt], model.run(make_step([1])).device_ns)
    for model in models.values():
        model.close()
    assert best[TensorFormat.I4B32] < 1.3 * best[TensorFormat.I8B32]
    assert best[TensorFormat.I8B32] < best[TensorFormat.F32]
