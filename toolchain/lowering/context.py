"""The interpreter's state, and the helpers that rules share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from runtime_py.program import Activation, BinaryOp, OpKind
from toolchain.lowering.activations import recognise
from toolchain.lowering.columns import select
from toolchain.lowering.errors import NotLowered
from toolchain.lowering.graph import Graph, GraphNode
from toolchain.lowering.ir import Ir, Weight
from toolchain.lowering.layout import Axes, is_feature, spread
from toolchain.lowering.probe import Prober
from toolchain.lowering.values import Data, Mix, Pointwise, Struct, View

Floats = NDArray[np.float64]

UNLIMITED_PROBE = 2048
"""Length of the long probe for a model without a position limit."""
LONGEST_PROBE = 4096


class Context:
    """Everything a rule may use.

    Attributes:
        graph, prober, ir: the graph, what is known of it, and what was emitted.
        max_positions: positions of the model; 0 = unlimited.
        node: the node being interpreted.
        values: data-path tensors by name; a name that is absent is structural.
        long_length: tokens of the long probe: enough to see windows and every relative
            distance.
        keep_rows: leave the rows of linear layers as the graph has them, so that their
            quantized codes can be found again; factors stay ops.
    """

    def __init__(
        self,
        graph: Graph,
        prober: Prober,
        max_positions: int,
        *,
        long_length: int = 0,
        keep_rows: bool = False,
    ) -> None:
        self.graph, self.prober = graph, prober
        self.ir = Ir()
        self.max_positions = max_positions
        self.long_length = long_length or min(max_positions or UNLIMITED_PROBE, LONGEST_PROBE)
        self.keep_rows = keep_rows
        self.values: dict[str, Data] = {}
        self.node: GraphNode
        self.mask_cache: dict[object, object] = {}

    def get(self, name: str) -> Data:
        """What is known of tensor ``name``."""
        return self.values.get(name) or Struct(name)

    def operand(self, index: int) -> Data:
        """What is known of input ``index`` of the current node."""
        name = self.node.input(index)
        if not name:
            raise NotLowered(f"input {index} is absent")
        return self.get(name)

    def view(self, index: int) -> View:
        """Input ``index`` of the current node as a view, emitting what was pending."""
        return self.as_view(self.operand(index))

    def as_view(self, x: Data) -> View:
        """``x`` as a view; emits the op that it stands for if there is one.

        Raises:
            NotLowered: ``x`` is incomplete, or no token data at all.
        """
        if isinstance(x, View):
            return x
        if isinstance(x, Pointwise):
            return self.activate(x)
        if isinstance(x, Mix):
            from toolchain.lowering.rules.rotary import finish_rotary

            return finish_rotary(self, x)
        raise NotLowered(f"input is {describe(x)}, expected token vectors")

    def activate(self, x: Pointwise) -> View:
        """Emit the activation that a scalar function is."""
        found = recognise(x.function, x.alpha)
        if found is None:
            raise NotLowered("an element-wise function that is no known activation")
        if found.activation is Activation.NONE:
            view = x.base.scaled(found.factor * found.alpha)
        else:
            value = self.dense(x.base)
            out = self.ir.emit(
                OpKind.UNARY,
                self.ir.width(value),
                {"x": value},
                uints={"activation": found.activation},
                floats={"alpha": found.alpha},
            )
            view = self.fresh(out, x.base.axes).scaled(found.factor)
        if found.offset:
            view = self.add_constant(view, np.full(len(view.cols), found.offset), "")
        return view

    def fresh(self, value: int, axes: Axes) -> View:
        """All columns of ``value`` in order under ``axes``."""
        return View(value, axes, np.arange(self.ir.width(value)))

    def dense(self, view: View) -> int:
        """A value whose columns are exactly the features of ``view``, in order."""
        return select(self.ir, view.value, view.cols, view.coef)

    def add_constant(self, view: View, row: Floats, hint: str) -> View:
        """``view`` plus one number per feature."""
        value = self.dense(view)
        out = self.ir.emit(
            OpKind.BINARY,
            self.ir.width(value),
            {"a": value},
            {"constant": Weight(row, hint)},
            {"op": BinaryOp.ADD},
        )
        return self.fresh(out, view.axes)

    def module_weight(self, *ops: str) -> str:
        """``<module>.weight`` when the node's name is a module path and one of ``ops``."""
        path = self.node.name.strip("/").split("/")
        found = len(path) > 1 and path[-1].startswith(ops)
        return ".".join(path[:-1]) + ".weight" if found else ""

    def constant(self, x: Data) -> NDArray[np.float64] | None:
        """The array of a structural tensor that never changes, in float64, or None."""
        if not isinstance(x, Struct):
            return None
        found = self.prober.find_constant(x.name)
        return None if found is None else np.asarray(found, np.float64)

    def scalar(self, x: Data) -> float | None:
        """The number that a structural tensor always is, or None."""
        found = self.constant(x)
        return float(found.ravel()[0]) if found is not None and found.size == 1 else None

    def per_position(self, name: str, axes: Axes, length: int) -> Floats:
        """Structural tensor ``name`` over ``axes`` for one full sequence: [length, features].

        ``length`` positions of [B|1, S|1, ...]; features raveled in the order of ``axes``.
        """
        array = np.asarray(self.prober.long(name, length), np.float64)
        array = array.reshape((1,) * (len(axes) - array.ndim) + array.shape)
        at = next((i for i, axis in enumerate(axes) if "S" in axis), -1)
        rows = []
        for p in range(length):
            picked = array
            if at >= 0 and array.shape[at] != 1:
                if axes[at] not in (("S",), ("B", "S")):
                    raise NotLowered(f"positions lie under axes {axes}")
                picked = array.take([p], axis=at)
            rows.append(spread(picked, axes))
            if at < 0 or array.shape[at] == 1:
                return np.broadcast_to(rows[0], (length, len(rows[0])))
        return np.stack(rows)


def describe(x: Data) -> str:
    """What an abstract value is, for an error message."""
    if isinstance(x, Struct):
        return f"{x.name!r}, which depends on shapes and masks only"
    name = type(x).__name__
    return {"RowStat": "an unfinished norm", "Scores": "attention scores"}.get(name, name)


def token_axes(axes: Axes) -> bool:
    """Whether every axis but the last holds tokens, and the last holds features."""
    return is_feature(axes[-1]) and all(not any(isinstance(a, int) for a in x) for x in axes[:-1])


Rule = Callable[[Context, GraphNode], Data | list[Data]]
