"""The quantized model as an ONNX graph of standard operators.

Weights are stored as their codes, scales and minima, and a few nodes in front of the graph
turn them back: ``Cast``, ``Mul``, ``Add``. Any engine that runs ONNX runs it, so it is an
oracle for a quantized program that shares none of our lowering or kernels. Activations
stay f32.

A graph's weights are found in the program by their content, as its lowering keeps rows but
concatenates and turns tensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from runtime_py.errors import ArtifactError
from runtime_py.program import BLOCK, Program, Tensor, TensorFormat
from toolchain.export.graph_file import EXTERNAL_DATA_BYTES, write_graph

Floats = npt.NDArray[np.float32]
Parts = Mapping[str, npt.NDArray[Any]]


def write_quantized_graph(
    graph_path: Path, out: Path, program: Program, parts: Parts, weights: Mapping[str, Floats]
) -> Path:
    """Write the graph in ``graph_path`` with the weights of ``program`` to ``out``.

    Args:
        parts: the stored parts of the program's tensors.
        weights: the f32 weights of its tensors, which ``parts`` were made of.

    Raises:
        ArtifactError: weights of the program are not in the graph.
    """
    model = onnx.load(str(graph_path), load_external_data=False)
    base = str(graph_path.parent)
    index = _RowIndex(program, weights)
    kept: list[TensorProto] = []
    nodes: list[onnx.NodeProto] = []
    owners: dict[tuple[str, bytes], str] = {}  # rows of a tensor -> the weight that holds them
    for initializer in model.graph.initializer:
        if initializer.data_type == TensorProto.FLOAT and len(initializer.dims) == 2:
            values = numpy_helper.to_array(initializer, base)
            match = index.find(values)
            if match is not None:
                tensor, rows, turned = match
                owner = owners.setdefault((tensor.name, rows.tobytes()), initializer.name)
                made = _Dequantize(initializer.name, owner, tensor, values.shape, turned)
                kept += made.constants
                if owner == initializer.name:  # a head that is the embedding shares its codes
                    kept += made.stored(parts, rows)
                nodes += made.nodes
                continue
        if uses_external_data(initializer):
            load_external_data_for_tensor(initializer, base)
            initializer.data_location = TensorProto.DEFAULT
            del initializer.external_data[:]
        kept.append(initializer)
    index.check_complete()
    nodes += model.graph.node
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend(kept)
    model.graph.node.extend(nodes)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_graph(model, out, EXTERNAL_DATA_BYTES)
    return out


class _RowIndex:
    """Where the rows of the program's rounded matrices are, by content."""

    def __init__(self, program: Program, weights: Mapping[str, Floats]) -> None:
        self._tensors = [
            t for t in program.tensors if t.format is not TensorFormat.F32 and len(t.shape) == 2
        ]
        self._weights = [weights[t.name] for t in self._tensors]
        self._found = [np.zeros(t.shape[0], np.bool_) for t in self._tensors]
        self._rows: dict[bytes, list[tuple[int, int]]] = {}
        for i, weight in enumerate(self._weights):
            for row, values in enumerate(np.ascontiguousarray(weight)):
                self._rows.setdefault(_key(values), []).append((i, row))

    def find(self, values: Floats) -> tuple[Tensor, npt.NDArray[np.intp], bool] | None:
        """The tensor that holds every row (or, turned, every column) of a graph's weight.

        Returns:
            The tensor, the row of it that each row of ``values`` is, and whether
            ``values`` had to be turned; None where no tensor holds it.
        """
        for turned in (False, True):
            rows = np.ascontiguousarray(values.T if turned else values)
            places = [self._rows.get(_key(row)) for row in rows]
            first = places[0] if places else None
            for tensor, _ in first or ():
                at = [next((r for t, r in p or () if t == tensor), -1) for p in places]
                if min(at) >= 0 and np.array_equal(self._weights[tensor][at], rows):
                    self._found[tensor][at] = True
                    return self._tensors[tensor], np.array(at, np.intp), turned
        return None

    def check_complete(self) -> None:
        """Every row was found.

        Raises:
            ArtifactError: names the first tensor that was not.
        """
        for tensor, found in zip(self._tensors, self._found, strict=True):
            # equal rows may have been found in their first place only
            missing = [r for r in np.flatnonzero(~found) if not self._has_twin(tensor, int(r))]
            if missing:
                raise ArtifactError(
                    f"row {missing[0]} of {tensor.name!r} is no weight of the graph, expected "
                    "the lowering to keep rows; please report the model"
                )

    def _has_twin(self, tensor: Tensor, row: int) -> bool:
        i = self._tensors.index(tensor)
        places = self._rows[_key(self._weights[i][row])]
        return any(self._found[t][r] for t, r in places)


class _Dequantize:
    """The nodes that make one f32 weight of its stored parts.

    Args:
        name: of the weight in the graph; the last node's output.
        owner: of the weight beside which the parts are stored.
        shape: of the weight in the graph.
        turned: the program has it transposed.
    """

    def __init__(
        self, name: str, owner: str, tensor: Tensor, shape: tuple[int, ...], turned: bool
    ) -> None:
        self._name, self._owner, self._tensor = name, owner, tensor
        self._rows, self._columns = shape[::-1] if turned else shape
        self.constants: list[TensorProto] = []
        self.nodes: list[onnx.NodeProto] = []
        value = self._codes()
        if tensor.format is not TensorFormat.F16:
            value = self._emit("Mul", value, self._float("scale"))
            if len(tensor.parts) == 3:
                value = self._emit("Add", value, self._float("min"))
            value = self._emit("Reshape", value, self._integers("rows", [self._rows, -1]))
            if self._columns % BLOCK:
                ends = self._integers("columns", [self._columns])
                start, axis = self._integers("zero", [0]), self._integers("one", [1])
                value = self._emit("Slice", value, start, ends, axis)
        last = "Transpose" if turned else "Identity"
        options = {"perm": [1, 0]} if turned else {}
        self.nodes.append(helper.make_node(last, [value], [name], **options))

    def stored(self, parts: Parts, rows: npt.NDArray[np.intp]) -> list[TensorProto]:
        """The parts' rows as the nodes expect them."""
        blocks = -(-self._columns // BLOCK)
        made = []
        for part, suffix in zip(self._tensor.parts, ("codes", "scale", "min"), strict=False):
            values = np.ascontiguousarray(parts[part][rows])
            if self._tensor.format is not TensorFormat.F16:
                values = values.reshape(len(rows), blocks, -1)
            made.append(numpy_helper.from_array(values, f"{self._owner}/{suffix}"))
        return made

    def _codes(self) -> str:
        """The codes as f32, in blocks of 32 columns; an f16 weight itself."""
        codes = f"{self._owner}/codes"
        if self._tensor.format is TensorFormat.I4B32:
            sixteen = self._constant("sixteen", np.array(16, np.uint8))
            four = self._constant("four", np.array(4, np.uint8))
            low = self._emit("Mod", codes, sixteen)
            high = self._emit("BitShift", codes, four, direction="RIGHT")
            codes = self._emit("Concat", low, high, axis=2)
        return self._emit("Cast", codes, to=TensorProto.FLOAT)

    def _float(self, suffix: str) -> str:
        return self._emit("Cast", f"{self._owner}/{suffix}", to=TensorProto.FLOAT)

    def _integers(self, suffix: str, values: list[int]) -> str:
        return self._constant(suffix, np.array(values, np.int64))

    def _constant(self, suffix: str, value: npt.NDArray[Any]) -> str:
        name = f"{self._name}/{suffix}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def _emit(self, op: str, *inputs: str, **options: Any) -> str:
        output = f"{self._name}/{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], **options))
        return output


def _key(row: Floats) -> bytes:
    return hashlib.blake2b((row + np.float32(0)).data, digest_size=16).digest()
