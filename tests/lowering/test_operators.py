"""Fused operators, one handmade graph each, against ONNX Runtime's own kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runtime_py.program import FLAG_CAUSAL, Activation, NormMode, Op, OpKind
from tests.lowering.running import every_pooling, onnx_tokens, pooled, random_sequences, run
from toolchain.lowering import LoweredModel, lower

VOCAB, C, H, D, LIMIT = 70, 24, 4, 6, 20
MS = "com.microsoft"


class GraphBuilder:
    """Nodes over ``x`` = the embedding [B, S, C]; ``mask`` is the attention mask."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.count = 0
        self.x = self("Gather", self.const(self.random(VOCAB, C)), "input_ids")

    def random(self, *shape: int) -> Any:
        return (self.rng.normal(size=shape) * 0.4).astype(np.float32)

    def const(self, value: Any) -> str:
        self.count += 1
        self.weights.append(numpy_helper.from_array(np.asarray(value), f"w{self.count}"))
        return f"w{self.count}"

    def __call__(
        self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: Any
    ) -> Any:
        self.count += 1
        names = [f"v{self.count}_{i}" for i in range(outputs)]
        self.nodes.append(
            helper.make_node(op, inputs, names, f"n{self.count}", domain=domain, **attrs)
        )
        return names[0] if outputs == 1 else names

    def linear(self, x: str, n: int = C) -> str:
        return str(self("MatMul", x, self.const(self.random(C, n))))

    def save(self, output: str, path: Path) -> Path:
        self.nodes.append(helper.make_node("Identity", [output], ["last_hidden_state"], "end"))
        ints = [
            helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "s"])
            for n in ("input_ids", "attention_mask")
        ]
        end = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["b", "s", C])
        graph = helper.make_graph(self.nodes, "g", ints, [end], self.weights)
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MS, 1)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 10
        path.write_bytes(model.SerializeToString())
        return path


def multi_head(g: GraphBuilder) -> str:
    q, k, v = (g.linear(g.x) for _ in range(3))
    key_mask = g("Cast", "attention_mask", to=TensorProto.INT32)
    bias = g.const(g.random(3 * C))
    a = g("MultiHeadAttention", q, k, v, bias, key_mask, domain=MS, num_heads=H)
    return str(g("Add", a, g.x))


def packed_attention(g: GraphBuilder) -> str:
    key_mask = g("Cast", "attention_mask", to=TensorProto.INT32)
    w, b = g.const(g.random(C, 3 * C)), g.const(g.random(3 * C))
    return str(g("Attention", g.x, w, b, key_mask, domain=MS, num_heads=H, scale=0.3))


def lengths_mask(g: GraphBuilder) -> str:
    key_mask = g("ReduceSum", "attention_mask", g.const(np.array([1])), keepdims=0)
    key_mask = g("Cast", key_mask, to=TensorProto.INT32)
    w, b = g.const(g.random(C, 3 * C)), g.const(g.random(3 * C))
    return str(g("Attention", g.x, w, b, key_mask, domain=MS, num_heads=H))


def onnx_attention_flat(g: GraphBuilder) -> str:
    q, k, v = g.linear(g.x), g.linear(g.x, 2 * D), g.linear(g.x, 2 * D)
    keep = g("Cast", "attention_mask", to=TensorProto.BOOL)
    keep = g("Unsqueeze", keep, g.const(np.array([1, 2])))
    one = g.const(np.array([1]))
    length = g("Shape", "attention_mask", start=1, end=2)
    keep = g("Expand", keep, g("Concat", one, one, length, one, axis=0))
    a = g("Attention", q, k, v, keep, q_num_heads=H, kv_num_heads=2, is_causal=1)
    return str(a)


def skip_rms(g: GraphBuilder) -> str:
    gamma, bias = g.const(1 + g.random(C)), g.const(g.random(C))
    y, _, _, total = g(
        "SkipSimplifiedLayerNormalization", g.linear(g.x), g.x, gamma, bias,
        outputs=4, domain=MS, epsilon=1e-6,
    )  # fmt: skip
    return str(g("Add", g.linear(y), total))


def skip_layer_norm_reads_its_sum_again(g: GraphBuilder) -> str:
    gamma, beta = g.const(1 + g.random(C)), g.const(g.random(C))
    y, _, _, total = g(
        "SkipLayerNormalization", g.x, g("Tanh", g.x), gamma, beta, outputs=4, domain=MS
    )
    return str(g("Add", g("Tanh", y), total))


def quick_gelu(g: GraphBuilder) -> str:
    return str(g("QuickGelu", g.linear(g.x), domain=MS))


def fast_gelu(g: GraphBuilder) -> str:
    return str(g("FastGelu", g.linear(g.x), g.const(g.random(C)), domain=MS))


def fused_matmul(g: GraphBuilder) -> str:
    w = g.const(g.random(C, C))
    return str(g("FusedMatMul", g.x, w, domain=MS, transB=1, alpha=0.5))


def gemm(g: GraphBuilder) -> str:
    flat = g("Reshape", g.x, g.const(np.array([-1, C])))
    y = g(
        "Gemm", flat, g.const(g.random(C, C)), g.const(g.random(C)),
        transB=1, alpha=0.5, beta=2.0,
    )  # fmt: skip
    return str(g("Reshape", y, g("Shape", g.x)))


def two_biases_and_a_scale(g: GraphBuilder) -> str:
    y = g("Add", g.linear(g.x), g.const(g.random(C)))
    y = g("Mul", y, g.const(np.float32(0.5)))
    return str(g("Add", g.const(g.random(C)), y))


def rotary(g: GraphBuilder, **attrs: Any) -> str:
    angle = np.arange(LIMIT)[:, None] * 50.0 ** -(np.arange(3) / 3)
    cos, sin = (g.const(f(angle).astype(np.float32)) for f in (np.cos, np.sin))
    length = g("Shape", g.x, start=1, end=2)
    at = g("Range", g.const(np.array(0)), g("Squeeze", length), g.const(np.array(1)))
    at = g("Expand", at, g("Shape", "input_ids"))
    q, k, v = (g.linear(g.x) for _ in range(3))
    q, k = (g("RotaryEmbedding", t, at, cos, sin, domain=MS, num_heads=H, **attrs) for t in (q, k))
    key_mask = g("Cast", "attention_mask", to=TensorProto.INT32)
    return str(g("MultiHeadAttention", q, k, v, "", key_mask, domain=MS, num_heads=H))


def rotary_interleaved(g: GraphBuilder) -> str:
    return rotary(g, interleaved=1)


def head_norms(g: GraphBuilder) -> str:
    split = g("Reshape", g.linear(g.x), g.const(np.array([0, 0, H, D])))
    y = g("RMSNormalization", split, g.const(1 + g.random(D)), axis=-1, epsilon=1e-6)
    return str(g("Reshape", y, g.const(np.array([0, 0, C]))))


def kinds(lowered: LoweredModel) -> list[OpKind]:
    return [o.kind for o in lowered.program.ops if o.kind is not OpKind.POOL]


def first(lowered: LoweredModel, kind: OpKind) -> Op:
    return next(o for o in lowered.program.ops if o.kind is kind)


EMBED, LINEAR, ATTENTION, NORM = OpKind.EMBED, OpKind.LINEAR, OpKind.ATTENTION, OpKind.NORM
CASES: list[tuple[Callable[[GraphBuilder], str], list[OpKind] | None]] = [
    (multi_head, None),
    (packed_attention, [EMBED, LINEAR, ATTENTION]),
    (lengths_mask, [EMBED, LINEAR, ATTENTION]),
    (onnx_attention_flat, [EMBED, LINEAR, ATTENTION]),
    (skip_rms, [EMBED, LINEAR, NORM, LINEAR]),
    (skip_layer_norm_reads_its_sum_again, None),
    (quick_gelu, [EMBED, LINEAR]),
    (fast_gelu, [EMBED, LINEAR]),
    (fused_matmul, [EMBED, LINEAR]),
    (gemm, [EMBED, LINEAR]),
    (two_biases_and_a_scale, [EMBED, LINEAR]),
    (rotary, [EMBED, LINEAR, OpKind.ROPE, ATTENTION]),
    (rotary_interleaved, [EMBED, LINEAR, OpKind.ROPE, ATTENTION]),
    (head_norms, [EMBED, LINEAR, NORM]),
]


def lowered_case(make: Callable[[GraphBuilder], str], folder: Path) -> LoweredModel:
    builder = GraphBuilder()
    path = builder.save(make(builder), folder / "g.onnx")
    lowered = lower(path, every_pooling(C, LIMIT))
    sequences = random_sequences((1, 6, LIMIT), VOCAB)
    want = np.stack([pooled(onnx_tokens(path, s)) for s in sequences])
    np.testing.assert_allclose(run(lowered, sequences), want, atol=2e-5)
    return lowered


@pytest.mark.parametrize(("make", "expected"), CASES, ids=[m.__name__ for m, _ in CASES])
def test_operator(
    make: Callable[[GraphBuilder], str], expected: list[OpKind] | None, tmp_path: Path
) -> None:
    lowered = lowered_case(make, tmp_path)
    if expected is not None:
        assert kinds(lowered) == expected


def test_details_reach_the_program(tmp_path: Path) -> None:
    op = first(lowered_case(onnx_attention_flat, tmp_path), ATTENTION)
    assert (op.flags, op.uint("heads"), op.uint("kv_heads")) == (FLAG_CAUSAL, H, 2)
    op = first(lowered_case(quick_gelu, tmp_path), LINEAR)
    assert op.uint("activation") == Activation.QUICK_GELU
    op = first(lowered_case(head_norms, tmp_path), NORM)
    assert (op.uint("mode"), op.uint("group")) == (NormMode.RMS, D)
