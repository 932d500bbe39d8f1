"""Appends what follows the transformer: pooling, dense layers, norms, normalization."""

from __future__ import annotations

from runtime_py.errors import ArtifactCorrupt
from runtime_py.program import NormMode, OpKind, Rows
from toolchain.lowering.ir import Ir, Weight
from toolchain.sources.pipeline import Dense, EmbeddingPipeline, LayerNorm, Normalize, Pooling


def append_head(ir: Ir, pipeline: EmbeddingPipeline) -> None:
    """Extend ``ir`` so that its output is one embedding per sequence.

    Raises:
        ArtifactCorrupt: the graph's vectors have another width than the pipeline's.
    """
    width = ir.width(ir.output)
    if width != pipeline.hidden_size:
        raise ArtifactCorrupt(
            f"the graph's token vectors have {width} features, config.json says "
            f"{pipeline.hidden_size}; the graph belongs to another model"
        )
    value = ir.output
    for module in pipeline.modules:
        width = ir.width(value)
        match module:
            case Pooling(modes):
                value = ir.emit(
                    OpKind.POOL,
                    width * len(modes),
                    {"x": value},
                    rows=Rows.SEQS,
                    modes=tuple(int(m) for m in modes),
                )
            case Dense(weight, bias, activation, name):
                tensors = {"weight": Weight(weight, f"{name}.linear.weight")}
                if bias is not None:
                    tensors["bias"] = Weight(bias, f"{name}.linear.bias")
                value = ir.emit(
                    OpKind.LINEAR,
                    weight.shape[0],
                    {"x": value},
                    tensors,
                    {"activation": activation},
                    rows=Rows.SEQS,
                )
            case LayerNorm(weight, bias, eps, name):
                value = ir.emit(
                    OpKind.NORM,
                    width,
                    {"x": value},
                    {
                        "gamma": Weight(weight, f"{name}.norm.weight"),
                        "beta": Weight(bias, f"{name}.norm.bias"),
                    },
                    {"mode": NormMode.LAYER},
                    {"eps": eps},
                    rows=Rows.SEQS,
                )
            case Normalize(eps):
                value = ir.emit(
                    OpKind.NORMALIZE, width, {"x": value}, floats={"eps": eps}, rows=Rows.SEQS
                )
    ir.output = value
