"""Moves what all rows of an embedding table share into the constant added to every token.

Trained tables have a few columns whose values lie far from zero in every row. They set
the scale of the whole row in the per-row format; without their mean, the step is finer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from runtime_py.program import OP_SPECS, OpKind, Program, Tensor, TensorFormat

Floats = npt.NDArray[np.float32]


def centre_tables(
    program: Program, weights: Mapping[str, Floats]
) -> tuple[Program, dict[str, Floats]]:
    """An equal program whose embedding tables have columns of mean zero.

    A table or a constant that another op uses too is left alone.
    """
    tensors, ops, values = list(program.tensors), list(program.ops), dict(weights)
    uses = [t for op in program.ops for t in op.tensors if t >= 0]
    for i, op in enumerate(program.ops):
        if op.kind is not OpKind.EMBED:
            continue
        table, old = op.tensor("table"), op.tensor("constant")
        if uses.count(table) > 1 or (old >= 0 and uses.count(old) > 1):
            continue
        name = tensors[table].name
        mean = values[name].mean(axis=0, dtype=np.float64)
        values[name] = (values[name] - mean).astype(np.float32)
        constant = op.float("scale") * mean
        if old >= 0:
            constant = constant + values[tensors[old].name]
            values[tensors[old].name] = constant.astype(np.float32)
            continue
        tensors.append(Tensor(f"{name}.column_mean", TensorFormat.F32, constant.shape))
        values[tensors[-1].name] = constant.astype(np.float32)
        position = OP_SPECS[OpKind.EMBED].tensors.index("?constant")
        padded = (*op.tensors, *(-1,) * 3)[:3]
        ops[i] = replace(
            op,
            tensors=(*padded[:position], len(tensors) - 1, *padded[position + 1 :]),
        )
    return replace(program, tensors=tuple(tensors), ops=tuple(ops)), values
