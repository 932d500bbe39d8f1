"""The ONNX graph as the lowering reads it: nodes, constants, and what depends on what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from runtime_py.errors import ArtifactUnsupported
from toolchain.export.graph_file import read_graph
from toolchain.export.repair import repair

Array = NDArray[Any]

_MOVES = ("Expand", "Unsqueeze", "Reshape", "Transpose", "Identity", "Slice", "Cast")
_INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One ONNX node with its attributes decoded.

    ``captured``: outer tensors that its subgraphs (If, Loop) read.
    """

    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]
    captured: tuple[str, ...] = ()

    def input(self, index: int) -> str:
        """Name of input ``index``, or "" when it is absent."""
        return self.inputs[index] if index < len(self.inputs) else ""

    @property
    def reads(self) -> tuple[str, ...]:
        """Every tensor that it depends on."""
        return tuple(i for i in (*self.inputs, *self.captured) if i)

    @property
    def label(self) -> str:
        return self.name or (self.outputs[0] if self.outputs else "?")

    @property
    def full_op(self) -> str:
        return f"{self.domain}.{self.op}" if self.domain else self.op


class Graph:
    """A graph in topological order.

    Attributes:
        model: the protobuf, external data not loaded, repaired.
        path: where it lies (external data is relative to it).
        inputs: names of the inputs that a caller feeds.
        outputs: names of the outputs.
        dtypes: numpy dtype of every input.
        nodes: all nodes.
        constants: names computable without any input.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model = repair(read_graph(path))
        graph = self.model.graph
        self._initializers = {t.name: t for t in graph.initializer}
        self.inputs = tuple(i.name for i in graph.input if i.name not in self._initializers)
        self.outputs: tuple[str, ...] = tuple(o.name for o in graph.output)
        self.dtypes = {
            i.name: helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
            for i in graph.input
        }
        self.nodes = tuple(_node(n) for n in graph.node)
        self.producer = {out: n for n in self.nodes for out in n.outputs if out}
        self.constants = set(self._initializers)
        for n in self.nodes:
            if all(i in self.constants for i in n.reads) and not n.op.startswith("Random"):
                self.constants.update(o for o in n.outputs if o)
        unknown = [i for i in self.inputs if i not in _INPUT_NAMES]
        if unknown or "input_ids" not in self.inputs:
            raise ArtifactUnsupported(
                f"{path.name} takes inputs {list(self.inputs)}, expected input_ids and at most "
                f"{', '.join(_INPUT_NAMES[1:])}"
            )

    def initializer(self, name: str) -> Array | None:
        """The array of initializer ``name`` (memory-mapped for external data), or None."""
        tensor = self._initializers.get(name)
        if tensor is None:
            node = self.producer.get(name)
            value = node.attrs.get("value") if node and node.op == "Constant" else None
            return value if isinstance(value, np.ndarray) else None
        return np.asarray(numpy_helper.to_array(tensor, str(self.path.parent)))

    def is_initializer(self, name: str) -> bool:
        return name in self._initializers

    def dims(self, name: str) -> tuple[int, ...]:
        """Shape of initializer ``name``."""
        return tuple(self._initializers[name].dims)

    def table_behind(self, name: str) -> str:
        """Name of the table that tensor ``name`` was looked up in, or ""."""
        for _ in range(8):
            made = self.producer.get(name)
            if made is None:
                return name if self.is_initializer(name) else ""
            if made.op == "Gather":
                return made.inputs[0]
            if made.op not in _MOVES:
                return ""
            name = made.inputs[0]
        return ""

    def origin(self, name: str) -> str:
        """The one initializer with dimensions that constant ``name`` is made of, or ``name``.

        A norm's gamma may be spelled ``1 + weight``.
        """
        found: set[str] = set()
        stack = [name]
        while stack:
            at = stack.pop()
            if self.is_initializer(at):
                found.update({at} if self.dims(at) else set())
            elif at in self.producer:
                stack.extend(self.producer[at].reads)
        return found.pop() if len(found) == 1 else name

    def ancestors(self, output: str) -> tuple[GraphNode, ...]:
        """The nodes that ``output`` needs, in topological order."""
        needed: set[int] = set()
        stack = [output]
        while stack:
            node = self.producer.get(stack.pop())
            if node is not None and id(node) not in needed:
                needed.add(id(node))
                stack.extend(node.reads)
        return tuple(n for n in self.nodes if id(n) in needed)


def _node(proto: onnx.NodeProto) -> GraphNode:
    attrs = {}
    for a in proto.attribute:
        value = helper.get_attribute_value(a)
        if isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        attrs[a.name] = value.decode() if isinstance(value, bytes) else value
    captured = [c for a in proto.attribute for g in (a.g, *a.graphs) for c in _free_names(g)]
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    return GraphNode(
        proto.name,
        proto.op_type,
        domain,
        tuple(proto.input),
        tuple(proto.output),
        attrs,
        tuple(captured),
    )


def _free_names(graph: onnx.GraphProto) -> list[str]:
    """Names that a subgraph reads from outside."""
    known = {t.name for t in graph.initializer} | {i.name for i in graph.input}
    free: list[str] = []
    for node in graph.node:
        nested = [c for a in node.attribute for g in (a.g, *a.graphs) for c in _free_names(g)]
        free.extend(i for i in (*node.input, *nested) if i and i not in known)
        known.update(node.output)
    return free + [o.name for o in graph.output if o.name not in known]
