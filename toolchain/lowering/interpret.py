"""Walks the graph once, in order, and emits fused ops for the data path."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime_py.errors import ArtifactUnsupported
from toolchain.lowering.context import Context
from toolchain.lowering.errors import NotLowered, unsupported
from toolchain.lowering.graph import Graph, GraphNode
from toolchain.lowering.ir import Ir
from toolchain.lowering.probe import Prober
from toolchain.lowering.rules import RULES
from toolchain.lowering.rules.embedding import is_token_ids
from toolchain.lowering.values import Data

_SHAPE_ONLY = {"Shape", "Size"}
TOKEN_VECTORS = ("last_hidden_state", "token_embeddings", "hidden_states")


def interpret(ctx: Context, output: str) -> Ir:
    """The ops that compute ``output`` [batch, sequence, hidden] from token ids.

    Raises:
        ArtifactUnsupported: names the node that no rule understands.
    """
    graph = ctx.graph
    for node in graph.ancestors(output):
        if node.op in _SHAPE_ONLY or not _on_data_path(ctx, node):
            continue
        ctx.node = node
        _step(ctx, node)
    if output not in ctx.values:
        raise ArtifactUnsupported(
            f"output {output!r} does not depend on the token ids; expected token vectors"
        )
    ctx.node = graph.producer[output]
    try:
        view = ctx.as_view(ctx.values[output])
        if [a for axis in view.axes for a in axis if isinstance(a, str)] != ["B", "S"]:
            raise NotLowered(f"output has axes {view.axes}, expected batch, sequence, features")
        ctx.ir.output = ctx.dense(view)
    except NotLowered as error:
        raise unsupported(ctx.node.label, ctx.node.full_op, str(error)) from None
    return ctx.ir


def _on_data_path(ctx: Context, node: GraphNode) -> bool:
    if any(i in ctx.values for i in node.reads):
        return True
    if node.op == "EmbedLayerNormalization":
        return True
    if node.op != "Gather" or node.inputs[0] not in ctx.graph.constants:
        return False
    table = ctx.prober.constant(node.inputs[0])
    return table.dtype.kind == "f" and is_token_ids(ctx, node.inputs[1])


def _step(ctx: Context, node: GraphNode) -> None:
    rule = RULES.get((node.domain, node.op))
    if rule is None:
        known = sorted({op for domain, op in RULES if domain == node.domain})
        raise unsupported(
            node.label, node.full_op, f"no rule for this operator; expected one of {known}"
        )
    try:
        made = rule(ctx, node)
    except NotLowered as error:
        raise unsupported(node.label, node.full_op, str(error)) from None
    outputs: list[Data] = made if isinstance(made, list) else [made]
    for name, value in zip(node.outputs, outputs, strict=False):
        if name and value is not None:
            ctx.values[name] = value


def token_output(graph: Graph, prober: Prober, preferred: Sequence[str] = TOKEN_VECTORS) -> str:
    """The output that holds a row per token: f32 [batch, sequence, constant].

    Args:
        preferred: names to look for first.

    Raises:
        ArtifactUnsupported: there is none.
    """
    for name in sorted(graph.outputs, key=lambda n: preferred.index(n) if n in preferred else 99):
        a, b = prober.small(name)
        if (
            a.ndim == 3
            and a.shape[:2] == prober.probes[0].valid.shape
            and b.shape[:2] == prober.probes[1].valid.shape
            and a.shape[2] == b.shape[2]
            and np.issubdtype(a.dtype, np.floating)
        ):
            return name
    raise ArtifactUnsupported(
        f"{graph.path.name} has outputs {list(graph.outputs)}, none of shape "
        f"[batch, sequence, hidden]; export it with {preferred[0]}"
    )
