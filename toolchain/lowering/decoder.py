"""The other call: ONNX graph of a causal language model in, decoder program out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime_py.errors import ArtifactUnsupported
from runtime_py.program import FLAG_CAUSAL, OpKind, Rows, validate
from toolchain.lowering.check import check_against_graph
from toolchain.lowering.context import LONGEST_PROBE, Context
from toolchain.lowering.emit import emit_program
from toolchain.lowering.fuse import fuse
from toolchain.lowering.graph import Graph
from toolchain.lowering.interpret import interpret, token_output
from toolchain.lowering.ir import Ir, Node
from toolchain.lowering.lower import LoweredModel, vocabulary
from toolchain.lowering.probe import Prober

_LOGITS = ("logits", "last_hidden_state")
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length")
_WITHOUT_WINDOW = {"llama", "gemma", "gpt2", "gpt_neox", "phi"}
_SHORTEST_PROBE = 256
_ROW_WISE = {OpKind.LINEAR, OpKind.NORM, OpKind.GLU, OpKind.UNARY, OpKind.BINARY}


def lower_decoder(
    onnx_path: str | Path, config: Mapping[str, Any], *, cache: bool = True
) -> LoweredModel:
    """Lower the causal language model in ``onnx_path``, which has no key-value cache.

    The program is run by the reference executor on ragged prompts and must agree with
    ONNX Runtime on the graph. Rows of weights keep the graph's exact values.

    Args:
        config: the model's config.json; read are its position limit, sliding window,
            padding id and vocabulary.
        cache: False gives a program without a cache: attention over the step's own keys,
            and the logits of every token.

    Raises:
        ArtifactMissing, ArtifactCorrupt: the graph or its external data cannot be read.
        ArtifactUnsupported: the graph cannot be lowered; one line names the node, its
            operator and what was expected.
    """
    graph = Graph(Path(onnx_path))
    positions = next((int(config[k]) for k in _POSITIONS if config.get(k)), 0)
    prober = Prober(
        graph, int(config.get("vocab_size") or 64), int(config.get("pad_token_id") or 0)
    )
    output = token_output(graph, prober, _LOGITS)
    ctx = Context(
        graph, prober, positions, long_length=_probe_length(config, positions), keep_rows=True
    )
    ir = interpret(ctx, output)
    fuse(ir, keep_rows=True)
    vocab = vocabulary(ir, config.get("vocab_size"))
    if ir.width(ir.output) != vocab:
        raise ArtifactUnsupported(
            f"output {output!r} is {ir.width(ir.output)} wide, expected logits of {vocab} tokens"
        )
    if cache:
        add_cache(ir)
        pick_rows(ir)
    program, weights = emit_program(ir, vocab, positions)
    worst = check_against_graph(validate(program), weights, prober, output)
    notes = [*ir.notes, f"logits differ from the graph by {worst:.2g} of the largest"]
    return LoweredModel(program, weights, notes)


def _probe_length(config: Mapping[str, Any], positions: int) -> int:
    """Tokens that show every window: a little more than the one that the model states."""
    if config.get("model_type") in _WITHOUT_WINDOW or config.get("use_sliding_window") is False:
        longest = _SHORTEST_PROBE
    elif "sliding_window" in config:
        longest = max(int(config["sliding_window"] or 0) + 2, _SHORTEST_PROBE)
    else:
        longest = LONGEST_PROBE + 64  # windows are powers of two, up to that as a rule
    return min(positions or longest, longest)


def add_cache(ir: Ir) -> None:
    """Let every attention read its keys and values from a cache that a CACHE op fills.

    Raises:
        ArtifactUnsupported: an attention sees keys after its query.
    """
    attentions = [n for n in ir.nodes if n.kind is OpKind.ATTENTION]
    for layer, node in enumerate(attentions):
        if not node.flags & FLAG_CAUSAL:
            raise ArtifactUnsupported(
                f"attention {layer} of {len(attentions)} is not causal, expected a causal "
                "language model; export an encoder for embeddings instead"
            )
        if "bias" in node.tensors:
            raise ArtifactUnsupported(
                f"attention {layer} adds a bias per distance, which needs every key's position "
                "below a limit; expected rotary or learned positions"
            )
        same = ("kv_heads", "head_dim")
        uints = {k: node.uints[k] for k in (*same, "k_offset", "v_offset")} | {"layer": layer}
        write = Node(OpKind.CACHE, -1, {k: node.ins.pop(k) for k in ("k", "v")}, uints=uints)
        ir.nodes.insert(ir.nodes.index(node), write)
        node.uints.update(k_offset=0, v_offset=0, cache=layer + 1)


def pick_rows(ir: Ir) -> None:
    """Compute what follows the last mixing of tokens for the wanted rows only.

    Every op whose result only reaches the output row by row moves behind ROWS ops: the
    head and the last norm, and the last layer from its attention on.
    """
    uses = ir.uses()
    late: set[int] = set()
    for node in reversed(ir.nodes):
        readers = uses.get(node.out, []) + uses.get(node.out2, [])
        in_place = node.kind is OpKind.NORM and node.uints.get("columns", 0) > 0
        if (
            node.kind in _ROW_WISE
            and not in_place
            and (node.out == ir.output or readers)
            and all(id(r) in late for r in readers)
        ):
            late.add(id(node))
    picked: dict[int, int] = {}
    made: list[Node] = []
    for node in ir.nodes:
        if id(node) in late:
            for name, value in node.ins.items():
                if value not in picked:
                    picked[value] = ir.value(Rows.PICKED, ir.width(value))
                    made.append(Node(OpKind.ROWS, picked[value], {"x": value}))
                node.ins[name] = picked[value]
            for value in (node.out, node.out2):
                if value >= 0:
                    picked[value] = ir.value(Rows.PICKED, ir.width(value))
            node.out, node.out2 = picked[node.out], picked.get(node.out2, -1)
        made.append(node)
    if ir.output not in picked:
        picked[ir.output] = ir.value(Rows.PICKED, ir.width(ir.output))
        made.append(Node(OpKind.ROWS, picked[ir.output], {"x": ir.output}))
    ir.nodes, ir.output = made, picked[ir.output]
