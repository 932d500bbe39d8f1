"""The one call: ONNX graph and pipeline in, program and weights out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runtime_py.errors import ArtifactUnsupported
from runtime_py.program import OpKind, Program, validate
from toolchain.lowering.check import check_against_graph
from toolchain.lowering.context import Context
from toolchain.lowering.emit import emit_program
from toolchain.lowering.fuse import fuse
from toolchain.lowering.graph import Graph
from toolchain.lowering.head import append_head
from toolchain.lowering.interpret import interpret, token_output
from toolchain.lowering.ir import Ir
from toolchain.lowering.probe import Prober
from toolchain.sources.pipeline import EmbeddingPipeline


@dataclass(frozen=True, slots=True)
class LoweredModel:
    """A program with its weights, all f32.

    Attributes:
        program: validated; every tensor has format F32.
        weights: tensor name -> f32 array of the tensor's shape, C-contiguous.
        notes: what a reader of the report should know.
    """

    program: Program
    weights: dict[str, NDArray[np.float32]]
    notes: list[str] = field(default_factory=list)


def lower(
    onnx_path: str | Path, pipeline: EmbeddingPipeline, *, vocab_size: int | None = None
) -> LoweredModel:
    """Lower the encoder in ``onnx_path`` and append the pipeline's head.

    The token-level program is run by the reference executor on padded batches and must
    agree with ONNX Runtime on the graph before the head is appended.

    Args:
        vocab_size: rows of the embedding table to expect; None takes the table's own.

    Raises:
        ArtifactMissing, ArtifactCorrupt: the graph or its external data cannot be read.
        ArtifactUnsupported: the graph cannot be lowered; one line names the node, its
            operator and what was expected.
    """
    graph = Graph(Path(onnx_path))
    known = vocab_size or pipeline.vocab_size
    prober = Prober(graph, known or 64, pipeline.pad_token_id or 0)
    output = token_output(graph, prober)
    ir = interpret(Context(graph, prober, pipeline.max_positions), output)
    fuse(ir)
    vocab = vocabulary(ir, known if vocab_size is not None else None)
    program, weights = emit_program(ir, vocab, pipeline.max_positions)
    worst = check_against_graph(validate(program), weights, prober, output)
    append_head(ir, pipeline)
    fuse(ir)
    program, weights = emit_program(ir, vocab, pipeline.max_positions)
    notes = [*pipeline.notes, *ir.notes, f"token vectors differ from the graph by {worst:.2g}"]
    return LoweredModel(validate(program), weights, notes)


def vocabulary(ir: Ir, expected: int | None) -> int:
    """Rows of the embedding table.

    Raises:
        ArtifactUnsupported: there is no one number of them, or not the expected one.
    """
    sizes = {len(n.tensors["table"].array) for n in ir.nodes if n.kind is OpKind.EMBED}
    if len(sizes) != 1:
        raise ArtifactUnsupported(
            f"the graph looks token ids up in tables of {sorted(sizes)} rows, expected one size"
        )
    (size,) = sizes
    if expected is not None and size != expected:
        raise ArtifactUnsupported(
            f"the embedding table has {size} rows, expected {expected}; "
            "graph and tokenizer belong to different models"
        )
    return size
