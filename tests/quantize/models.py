"""A small BERT as a float program, made op by op, for tests of quantization."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from runtime_py.program import (
    Activation,
    NormMode,
    Op,
    OpKind,
    PoolMode,
    Program,
    Rows,
    Slot,
    Tensor,
    TensorFormat,
    validate,
)

Floats = npt.NDArray[np.float32]

_X, _Q, _K, _V, _ATT, _FFN, _TMP, _POOLED, _OUT = range(9)


def bert_program(weights: Mapping[str, Floats], heads: int) -> Program:
    """The program of a BERT encoder with mean pooling, by the names of its ``weights``."""
    vocab, width = weights["word"].shape
    inner = next(w for n, w in weights.items() if n.endswith("up.weight")).shape[0]
    layers = sum(n.endswith("up.weight") for n in weights)
    names = list(weights)
    tensors = tuple(Tensor(n, TensorFormat.F32, weights[n].shape) for n in names)
    t = {n: i for i, n in enumerate(names)}
    tokens = Rows.TOKENS
    slots = (
        *(Slot(tokens, width) for _ in range(5)),
        Slot(tokens, inner),
        Slot(tokens, width),
        Slot(Rows.SEQS, width),
        Slot(Rows.SEQS, width),
    )

    def linear(name: str, x: int, out: int, act: Activation = Activation.NONE, res: int = -1) -> Op:
        parts = (t[name + ".weight"], t[name + ".bias"])
        return Op(OpKind.LINEAR, out, (x, res), parts, (act, 0))

    def norm(name: str, x: int) -> Op:
        parts = (t[name + ".weight"], t[name + ".bias"])
        return Op(OpKind.NORM, _X, (x, -1), parts, (NormMode.LAYER, 0), (1e-12,))

    dim = width // heads
    ops = [
        Op(OpKind.EMBED, _TMP, (), (t["word"], t["position"], t["type"]), (0,), (1.0,)),
        norm("norm", _TMP),
    ]
    for layer in range(layers):
        p = f"{layer}."
        ops += [linear(p + n, _X, s) for n, s in (("query", _Q), ("key", _K), ("value", _V))]
        uints = (heads, heads, dim, 0, 0, 0, 0)
        ops += [
            Op(OpKind.ATTENTION, _ATT, (_Q, _K, _V), (-1,), uints, (dim**-0.5, 0.0)),
            linear(p + "output", _ATT, _TMP, res=_X),
            norm(p + "attention_norm", _TMP),
            linear(p + "up", _X, _FFN, Activation.GELU),
            linear(p + "down", _FFN, _TMP, res=_X),
            norm(p + "norm", _TMP),
        ]
    ops += [
        Op(OpKind.POOL, _POOLED, (_X,), (), (PoolMode.MEAN, 0)),
        Op(OpKind.NORMALIZE, _OUT, (_POOLED,), (), (), (1e-12,)),
    ]
    positions = weights["position"].shape[0]
    return validate(Program(slots, tensors, tuple(ops), _OUT, vocab, positions))


def random_weights(
    rng: np.random.Generator,
    *,
    width: int = 64,
    layers: int = 2,
    vocab: int = 200,
    positions: int = 64,
) -> dict[str, Floats]:
    """Weights of a small encoder whose activations look like a trained model's."""

    def normal(*shape: int, scale: float) -> Floats:
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    def norm(name: str) -> dict[str, Floats]:
        gain = (1 + 0.2 * rng.standard_normal(width)).astype(np.float32)
        return {name + ".weight": gain, name + ".bias": normal(width, scale=0.1)}

    weights = {
        "word": normal(vocab, width, scale=0.05),
        "position": normal(positions, width, scale=0.02),
        "type": normal(width, scale=0.02),
        **norm("norm"),
    }
    for layer in range(layers):
        p = f"{layer}."
        for name, rows, columns in (
            ("query", width, width),
            ("key", width, width),
            ("value", width, width),
            ("output", width, width),
            ("up", 4 * width, width),
            ("down", width, 4 * width),
        ):
            weights[p + name + ".weight"] = normal(rows, columns, scale=columns**-0.5)
            weights[p + name + ".bias"] = normal(rows, scale=0.02)
        weights |= norm(p + "attention_norm") | norm(p + "norm")
    return weights
