"""Corrects graphs that break the operators' specification, as exporters write them.

torch.onnx gives `RotaryEmbedding` tables of batch 1; without position ids the operator
wants one row of tables per batch row (ONNX operator docs, RotaryEmbedding-23), and
engines refuse the graph at batch 2.
"""

from __future__ import annotations

import onnx
from onnx import helper, numpy_helper

_MARK = "volery/rotary/"


def repair(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model``, changed in place, with every rotary table expanded to its batch."""
    graph = model.graph
    nodes: list[onnx.NodeProto] = []
    changed = False
    for node in graph.node:
        if (
            node.op_type == "RotaryEmbedding"
            and node.domain in ("", "ai.onnx")
            and len([i for i in node.input if i]) == 3
            and not node.input[1].startswith(_MARK)
        ):
            nodes.extend(_expanded(node))
            changed = True
        nodes.append(node)
    if changed:
        import numpy as np

        graph.initializer.append(
            numpy_helper.from_array(np.array([1, 1], np.int64), _MARK + "ones")
        )
        del graph.node[:]
        graph.node.extend(nodes)
    return model


def _expanded(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    base = _MARK + node.output[0]
    made = [
        helper.make_node("Shape", [node.input[0]], [base + "/batch"], start=0, end=1),
        helper.make_node("Concat", [base + "/batch", _MARK + "ones"], [base + "/shape"], axis=0),
    ]
    for at, name in ((1, "/cos"), (2, "/sin")):
        made.append(helper.make_node("Expand", [node.input[at], base + "/shape"], [base + name]))
        node.input[at] = base + name
    return made
