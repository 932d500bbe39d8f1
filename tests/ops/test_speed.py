"""Relations between speeds that must hold on any machine, with room for noise."""

from __future__ import annotations

from runtime_py.executors.base import ModelExecutor
from runtime_py.program import OpKind, TensorFormat
from tests.ops.backends import WASMTIME
from tests.ops.cases import Builder, make_step, normal
from tests.ops.cases.encoder import weights_of

K, N = 1024, 4096
ROUNDS, RUNS = 10, 20


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

    def holds() -> bool:
        i4, i8, f32 = best[TensorFormat.I4B32], best[TensorFormat.I8B32], best[TensorFormat.F32]
        return i4 < 1.3 * i8 and i8 < f32

    for _ in range(ROUNDS):  # more of them only where the machine is busy
        for _ in range(RUNS):  # in turns, so that noise meets all of them
            for fmt, model in models.items():
                best[fmt] = min(best[fmt], model.run(make_step([1])).device_ns)
        if holds():
            break
    for model in models.values():
        model.close()
    assert holds(), best
