"""Learns from a graph by running it: shapes, constants, masks, positions.

A transformer's graph is two graphs in one. The *data* path carries token vectors; the
*structural* part computes shapes, masks, positions and rotary tables from nothing but
the inputs' sizes and the attention mask, in a different spelling for every exporter.
Instead of matching spellings, the lowering runs the structural part on a few small
inputs and looks at what comes out: a tensor that always equals the padding mask is
the padding mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

from runtime_py.errors import ArtifactError, ArtifactUnsupported
from toolchain.lowering.errors import NotLowered
from toolchain.lowering.graph import Graph

Array = NDArray[Any]

# Batch and length differ between the two, by ratios that tell B, S and B * S apart.
SMALL = ((2, (5, 3)), (3, (7, 4, 1)))


class Dim(NamedTuple):
    """A dimension ``size * B**batch * S**length``."""

    size: int
    batch: int = 0
    length: int = 0


@dataclass(frozen=True)
class Probe:
    """One set of inputs: right-padded sequences of the given lengths."""

    feeds: dict[str, Array]
    lengths: tuple[int, ...]

    @property
    def batch(self) -> int:
        return len(self.lengths)

    @property
    def length(self) -> int:
        return max(self.lengths)

    @property
    def valid(self) -> NDArray[np.bool_]:
        """[B, S]: which tokens exist."""
        return np.arange(self.length) < np.array(self.lengths)[:, None]


class Prober:
    """Runs a graph, and every tensor of it, in ONNX Runtime without optimizations."""

    def __init__(self, graph: Graph, vocab_size: int, pad_token_id: int) -> None:
        self.graph = graph
        self._vocab, self._pad = vocab_size, pad_token_id
        self._session = _session(graph)
        self._constants: dict[str, Array] = {}
        self._long: dict[tuple[str, int], Array] = {}
        self._first: dict[str, str] = {}
        names = [o for n in graph.nodes for o in n.outputs if o and o not in graph.constants]
        self.probes = tuple(self._inputs(lengths) for _, lengths in SMALL)
        self._values: list[dict[str, Array]] = []
        for probe in self.probes:
            values: dict[str, Array] = dict(probe.feeds)
            values.update(zip(names, self._run(names, probe), strict=True))
            self._values.append(values)

    def _inputs(self, lengths: tuple[int, ...]) -> Probe:
        rng = np.random.default_rng(len(lengths))
        shape = (len(lengths), max(lengths))
        low = min(5, self._vocab - 1)
        ids = rng.integers(low, self._vocab, shape)
        ids[ids == self._pad] = low if low != self._pad else low + 1
        mask = (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int64)
        feeds = {
            "input_ids": np.where(mask == 1, ids, self._pad),
            "attention_mask": mask,
            "token_type_ids": np.zeros(shape, np.int64),
            "position_ids": np.broadcast_to(np.arange(shape[1]), shape).copy(),
        }
        dtypes = self.graph.dtypes
        return Probe(
            {k: v.astype(dtypes[k]) for k, v in feeds.items() if k in self.graph.inputs}, lengths
        )

    def _evaluate(self, name: str, probe: Probe) -> Array:
        """One tensor, by running only what it needs."""
        needed = self.graph.ancestors(name)
        used = {i for n in needed for i in n.reads}
        session = _session(self.graph, {o for n in needed for o in n.outputs if o}, used, [name])
        feeds = {k: v for k, v in probe.feeds.items() if k in used}
        return self._run([name], probe, session, feeds)[0]

    def _run(
        self,
        names: list[str],
        probe: Probe,
        session: Any = None,
        feeds: dict[str, Array] | None = None,
    ) -> list[Array]:
        try:
            return list(
                (session or self._session).run(names, probe.feeds if feeds is None else feeds)
            )
        except Exception as error:
            raise ArtifactUnsupported(
                f"{self.graph.path.name} does not run at batch {probe.batch}, length "
                f"{probe.length} ({_line(error)}); expected a graph with free batch and length, "
                "and positions and token ids up to the configured limits"
            ) from None

    def shape(self, name: str) -> tuple[Dim, ...]:
        """Symbolic shape of ``name``.

        Raises:
            NotLowered: a dimension is no product of batch, length and a constant.
        """
        if name in self.graph.constants:
            return tuple(Dim(d) for d in self.constant(name).shape)
        a, b = (v[name].shape for v in self._values)
        return tuple(_dim(x, y) for x, y in zip(a, b, strict=True))

    def small(self, name: str) -> tuple[Array, Array]:
        """Value of ``name`` in the two small probes."""
        if name in self.graph.constants:
            value = self.constant(name)
            return value, value
        return self._values[0][name], self._values[1][name]

    def constant(self, name: str) -> Array:
        """Value of a tensor that needs no input."""
        value = self.graph.initializer(name)
        if value is None:
            if name not in self._constants:
                self._constants[name] = self._evaluate(name, self.probes[0])
            value = self._constants[name]
        return value

    def find_constant(self, name: str) -> Array | None:
        """Value of ``name`` if it is the same for every input, else None."""
        if name in self.graph.constants:
            return self.constant(name)
        a, b = (v[name] for v in self._values)
        return a if a.shape == b.shape and np.array_equal(a, b) else None

    def long(self, name: str, length: int) -> Array:
        """Value of ``name`` for one full sequence of ``length`` tokens."""
        if name in self.graph.constants:
            return self.constant(name)
        name = self.first_like(name)
        key = (name, length)
        if key not in self._long:
            if name in self.graph.inputs:
                self._long[key] = self._inputs((length,)).feeds[name]
            else:
                self._long[key] = self._evaluate(name, self._inputs((length,)))
        return self._long[key]

    def first_like(self, name: str) -> str:
        """The earliest tensor that is computed like ``name``.

        Every layer spells the same mask and the same rotary tables again, often cut to the
        length of its own keys. Evaluated for the last layer, that would run the whole model.
        """
        if not self._first:
            self._first = self._number_values()
        return self._first.get(name, name)

    def _number_values(self) -> dict[str, str]:
        """Value numbering: tensor -> first tensor of the same operator over the same inputs.

        A shape, or a number made of shapes, is known by its value in both probes.
        """
        first: dict[str, str] = {}
        known: dict[object, str] = {}
        for node in self.graph.nodes:
            inputs = tuple(first.get(i, i) for i in node.inputs)
            attrs = tuple((k, _frozen(v)) for k, v in sorted(node.attrs.items()))
            for at, name in enumerate(node.outputs):
                key: object = (node.op, node.domain, attrs, inputs, at)
                if node.op == "Constant" and name in self.graph.constants:
                    key = ("constant", _frozen(self.constant(name)))
                elif name and name not in self.graph.constants:
                    values = [v[name] for v in self._values]
                    if all(v.ndim <= 1 and v.dtype.kind in "iub" for v in values):
                        key = ("number", *(_frozen(v) for v in values))
                if node.captured:
                    key = name  # a branch may compute anything
                first[name] = known.setdefault(key, name)
        return first

    def sample(self, lengths: tuple[int, ...], output: str) -> tuple[Probe, Array]:
        """Random inputs of ``lengths`` and the graph's ``output`` for them."""
        probe = self._inputs(lengths)
        (value,) = self._run([output], probe)
        return probe, value


def _session(
    graph: Graph,
    made: set[str] | None = None,
    used: set[str] | None = None,
    outputs: list[str] | None = None,
) -> Any:
    """A session over the nodes that make ``made`` (all), returning ``outputs`` (all)."""
    import onnxruntime as ort

    model = onnx.ModelProto()
    model.ir_version = graph.model.ir_version
    model.opset_import.extend(graph.model.opset_import)
    model.functions.extend(graph.model.functions)
    source, target = graph.model.graph, model.graph
    target.name = source.name or "graph"
    target.node.extend(n for n in source.node if made is None or any(o in made for o in n.output))
    target.initializer.extend(t for t in source.initializer if used is None or t.name in used)
    target.input.extend(
        i for i in source.input if i.name in graph.inputs and (used is None or i.name in used)
    )
    if outputs is None:
        outputs = [o for n in graph.nodes for o in n.outputs if o and o not in graph.constants]
    target.output.extend(onnx.ValueInfoProto(name=o) for o in outputs)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(Path(graph.path.parent))
    )
    try:
        return ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise ArtifactError(f"ONNX Runtime cannot load {graph.path.name}: {_line(error)}") from None


def _dim(a: int, b: int) -> Dim:
    (b0, l0), (b1, l1) = ((n, max(lengths)) for n, lengths in SMALL)
    for batch in (0, 1):
        for length in (0, 1, 2):
            ua, ub = b0**batch * l0**length, b1**batch * l1**length
            if a % ua == 0 and b % ub == 0 and a // ua == b // ub:
                return Dim(a // ua, batch, length)
    raise NotLowered(
        f"a dimension is {a} at batch {b0}, length {l0} and {b} at batch {b1}, length {l1}; "
        "expected a multiple of batch and length"
    )


def _frozen(value: Any) -> object:
    """``value`` of an attribute as something that can be compared and hashed."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return tuple(value) if isinstance(value, list) else str(value)


def _line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:300]
