"""What a bare ``model.onnx`` says about itself when no config.json lies beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from runtime_py.errors import ArtifactUnsupported
from toolchain.export.graph_file import read_graph


def config_from_graph(path: Path) -> dict[str, Any]:
    """``hidden_size``, ``vocab_size``, ``max_position_embeddings`` and ``model_type`` as a
    config.json would give them, read off the graph's embedding tables.

    Raises:
        ArtifactMissing, ArtifactCorrupt: the graph cannot be read.
        ArtifactUnsupported: it looks no token ids up.
    """
    graph = read_graph(path).graph
    tables = {t.name: tuple(t.dims) for t in graph.initializer if len(t.dims) == 2}
    words = _table(graph, tables, "input_ids")
    if words is None:
        raise ArtifactUnsupported(
            f"{path.name} has no embedding table for input_ids; put the model's config.json "
            "beside it"
        )
    width = _output_width(graph) or words[1]
    config: dict[str, Any] = {"hidden_size": width, "vocab_size": words[0]}
    positions = [
        shape[0] for name, shape in tables.items() if "position" in name and shape[1] == words[1]
    ]
    if positions:
        rows = min(positions)
        # RoBERTa's tables have two rows more than positions: 514, 1026, ...
        offset = 2 if rows > 2 and (rows - 2) & (rows - 3) == 0 else 0
        config["max_position_embeddings"] = rows - offset
    return config


def _table(
    graph: onnx.GraphProto, tables: dict[str, tuple[int, ...]], ids: str
) -> tuple[int, ...] | None:
    """Shape of the table that tensor ``ids`` indexes, directly or through casts."""
    names = {ids}
    for node in graph.node:
        if node.op_type in ("Cast", "Identity", "Reshape") and node.input[0] in names:
            names.update(node.output)
        if node.op_type == "Gather" and node.input[0] in tables and node.input[1] in names:
            return tables[node.input[0]]
        if node.op_type == "EmbedLayerNormalization" and node.input[0] in names:
            return tables.get(node.input[2])
    return None


def _output_width(graph: onnx.GraphProto) -> int:
    for output in graph.output:
        dims = output.type.tensor_type.shape.dim
        if len(dims) == 3 and dims[2].dim_value > 0:
            return int(dims[2].dim_value)
    return 0
