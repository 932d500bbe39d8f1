"""One layer, spelled in the ways that models and exporters spell it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from runtime_py.errors import ArtifactUnsupported
from runtime_py.program import FLAG_CAUSAL, FLAG_INTERLEAVED, FLAG_UP_FIRST, Activation, Op, OpKind
from tests.lowering.running import every_pooling, onnx_tokens, pooled, random_sequences, run
from tests.lowering.toy import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    POSITIONS,
    VOCAB,
    Spelling,
    Toy,
    distances,
    export,
    padding_bias,
)
from toolchain.lowering import LoweredModel, lower


def check(spelling: Spelling, folder: Path) -> LoweredModel:
    """Lower the toy and compare it with ONNX Runtime on ragged sequences."""
    path = export(Toy(spelling), folder / "toy.onnx")
    lowered = lower(path, every_pooling(HIDDEN, POSITIONS))
    sequences = random_sequences((1, 3, POSITIONS, 17), VOCAB)
    want = np.stack([pooled(onnx_tokens(path, s)) for s in sequences])
    np.testing.assert_allclose(run(lowered, sequences), want, atol=2e-5, rtol=0)
    return lowered


def ops(lowered: LoweredModel, kind: OpKind) -> list[Op]:
    return [o for o in lowered.program.ops if o.kind is kind]


def attention(lowered: LoweredModel) -> Op:
    (op,) = ops(lowered, OpKind.ATTENTION)
    return op


# --- masks ------------------------------------------------------------------------------


def test_causal_mask(tmp_path: Path) -> None:
    def mask(m: Tensor) -> Tensor:
        return padding_bias(m) + (distances(m) > 0) * -1e9

    op = attention(check(Spelling(mask=mask), tmp_path))
    assert op.flags == FLAG_CAUSAL
    assert op.uint("window") == 0


def test_sliding_window(tmp_path: Path) -> None:
    def mask(m: Tensor) -> Tensor:
        return padding_bias(m).masked_fill(distances(m).abs() >= 6, float("-inf"))

    op = attention(check(Spelling(mask=mask), tmp_path))
    assert (op.flags, op.uint("window")) == (0, 6)


def test_causal_sliding_window(tmp_path: Path) -> None:
    def mask(m: Tensor) -> Tensor:
        d = distances(m)
        return torch.where((d <= 0) & (d > -5) & m[:, None, None, :].bool(), 0.0, -10000.0)

    op = attention(check(Spelling(mask=mask), tmp_path))
    assert (op.flags, op.uint("window")) == (FLAG_CAUSAL, 5)


def test_linear_biases_become_a_table_by_distance(tmp_path: Path) -> None:
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])[:, None, None]

    def mask(m: Tensor) -> Tensor:
        return padding_bias(m) - slopes * distances(m).abs()

    lowered = check(Spelling(mask=mask), tmp_path)
    bias = lowered.program.tensors[attention(lowered).tensor("bias")]
    assert bias.shape == (HEADS, 2 * POSITIONS - 1)


def test_E3_graph_that_ignores_the_mask_is_refused(tmp_path: Path) -> None:
    def mask(m: Tensor) -> Tensor:
        return m[:, None, None, :].float() * 0.0

    with pytest.raises(ArtifactUnsupported, match="attends to padding"):
        check(Spelling(mask=mask), tmp_path)


def test_bias_by_absolute_position_is_refused(tmp_path: Path) -> None:
    def mask(m: Tensor) -> Tensor:
        return padding_bias(m) + torch.arange(m.shape[1])[None, :] * 0.1

    with pytest.raises(ArtifactUnsupported, match="more than the distance"):
        check(Spelling(mask=mask), tmp_path)


def test_mask_that_is_no_window_is_refused(tmp_path: Path) -> None:
    def mask(m: Tensor) -> Tensor:
        return padding_bias(m) + (distances(m) % 3 != 0) * -10000.0

    with pytest.raises(ArtifactUnsupported, match="neither full, causal, nor a sliding window"):
        check(Spelling(mask=mask), tmp_path)


# --- scores -----------------------------------------------------------------------------


def scale_query_first(q: Tensor, k: Tensor) -> Tensor:
    return (q / math.sqrt(HEAD_DIM)) @ k.transpose(2, 3)


def split_scale(q: Tensor, k: Tensor) -> Tensor:
    s = HEAD_DIM**-0.25
    return (q * s) @ (k.transpose(2, 3) * s)


def batched_matmul(q: Tensor, k: Tensor) -> Tensor:
    b, h, n, d = q.shape
    scores = torch.bmm(q.reshape(b * h, n, d), k.reshape(b * h, n, d).transpose(1, 2))
    return scores.view(b, h, n, n) * d**-0.5


@pytest.mark.parametrize("scores", [scale_query_first, split_scale, batched_matmul])
def test_scale_wherever_it_is(scores: object, tmp_path: Path) -> None:
    op = attention(check(Spelling(scores=scores), tmp_path))  # type: ignore[arg-type]
    assert op.float("scale") == pytest.approx(HEAD_DIM**-0.5, rel=1e-6)


def test_soft_capped_scores(tmp_path: Path) -> None:
    def capped(q: Tensor, k: Tensor) -> Tensor:
        return torch.tanh(q @ k.transpose(2, 3) * 0.3 / 2.5) * 2.5

    op = attention(check(Spelling(scores=capped), tmp_path))
    assert op.float("softcap") == pytest.approx(2.5)
    assert op.float("scale") == pytest.approx(0.3)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_grouped_queries_share_keys(kv_heads: int, tmp_path: Path) -> None:
    op = attention(check(Spelling(kv_heads=kv_heads), tmp_path))
    assert op.uint("kv_heads") == kv_heads


# --- norms ------------------------------------------------------------------------------


def norm_by_pow(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    var = (x - mean).pow(2).mean(-1, keepdim=True)
    return layer.weight * ((x - mean) / torch.sqrt(var + 1e-5)) + layer.bias


def norm_by_rsqrt(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    centered = x - x.mean(-1, keepdim=True)
    var = (centered * centered).mean(-1, keepdim=True)
    return centered * torch.rsqrt(var + 1e-5) * layer.weight + layer.bias


def rms_norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * layer.weight


@pytest.mark.parametrize("norm", [norm_by_pow, norm_by_rsqrt, rms_norm])
def test_norm_spelled_out(norm: object, tmp_path: Path) -> None:
    lowered = check(Spelling(norm=norm), tmp_path)  # type: ignore[arg-type]
    assert len(ops(lowered, OpKind.NORM)) == 2
    assert not ops(lowered, OpKind.BINARY)
    assert all(o.tensor("gamma") >= 0 for o in ops(lowered, OpKind.NORM))


# --- activations and gates --------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (nn.functional.gelu, Activation.GELU),
        (lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), Activation.GELU),
        (lambda x: nn.functional.gelu(x, approximate="tanh"), Activation.GELU_TANH),
        (
            lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x))),
            Activation.GELU_TANH,
        ),
        (lambda x: x * torch.sigmoid(1.702 * x), Activation.QUICK_GELU),
        (nn.functional.silu, Activation.SILU),
        (nn.functional.relu, Activation.RELU),
        (lambda x: torch.square(torch.relu(x)), Activation.RELU_SQUARED),
        (nn.functional.mish, Activation.MISH),
        (nn.functional.hardswish, Activation.HARD_SWISH),
        (torch.tanh, Activation.TANH),
        (nn.functional.softplus, Activation.SOFTPLUS),
    ],
)
def test_activation_is_fused(function: object, expected: Activation, tmp_path: Path) -> None:
    lowered = check(Spelling(activation=function), tmp_path)  # type: ignore[arg-type]
    assert expected in {o.uint("activation") for o in ops(lowered, OpKind.LINEAR)}
    assert not ops(lowered, OpKind.UNARY)


def test_unknown_function_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnsupported, match=r"cannot lower node .*no known activation"):
        check(Spelling(activation=lambda x: torch.tanh(x) * torch.exp(-x * x)), tmp_path)


def test_operator_without_a_rule_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnsupported, match=r"cannot lower node '.*' \(CumSum\): no rule"):
        check(Spelling(activation=lambda x: torch.cumsum(x, -1)), tmp_path)


@pytest.mark.parametrize(("ffn", "flag"), [("gate-first", 0), ("up-first", FLAG_UP_FIRST)])
def test_gated_feed_forward(ffn: str, flag: int, tmp_path: Path) -> None:
    lowered = check(Spelling(ffn=ffn), tmp_path)
    (glu,) = ops(lowered, OpKind.GLU)
    assert glu.flags == flag
    assert glu.uint("activation") == Activation.GELU


# --- rotary -----------------------------------------------------------------------------


def tables(x: Tensor, dim: int, *, repeat: bool) -> tuple[Tensor, Tensor]:
    inv = 100.0 ** (-torch.arange(0, dim, 2).float() / dim)
    angle = torch.arange(x.shape[2]).float()[:, None] * inv
    doubled = torch.stack([angle, angle], -1).flatten(-2) if repeat else torch.cat([angle] * 2, -1)
    return doubled.cos(), doubled.sin()


def half_split(x: Tensor) -> Tensor:
    cos, sin = tables(x, HEAD_DIM, repeat=False)
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def halves_apart(x: Tensor) -> Tensor:
    cos, sin = (t[:, : HEAD_DIM // 2] for t in tables(x, HEAD_DIM, repeat=False))
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def partial(x: Tensor) -> Tensor:
    cos, sin = tables(x, 4, repeat=False)
    turned, rest = x[..., :4], x[..., 4:]
    a, b = turned.chunk(2, -1)
    return torch.cat([turned * cos + torch.cat([-b, a], -1) * sin, rest], -1)


def interleaved(x: Tensor) -> Tensor:
    cos, sin = tables(x, HEAD_DIM, repeat=True)
    pairs = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * cos + pairs * sin


@pytest.mark.parametrize(
    ("rotate", "rotary_dim", "flag"),
    [
        (half_split, HEAD_DIM, 0),
        (halves_apart, HEAD_DIM, 0),
        (partial, 4, 0),
        (interleaved, HEAD_DIM, FLAG_INTERLEAVED),
    ],
)
def test_rotary(rotate: object, rotary_dim: int, flag: int, tmp_path: Path) -> None:
    spelling = Spelling(rotate=rotate, learned_positions=False)  # type: ignore[arg-type]
    lowered = check(spelling, tmp_path)
    (rope,) = ops(lowered, OpKind.ROPE)  # queries and keys lie side by side: one op
    assert rope.uint("heads") == 2 * HEADS
    assert rope.uint("rotary_dim") == rotary_dim
    assert rope.flags == flag
    inv = lowered.weights[lowered.program.tensors[rope.tensor("inv_freq")].name]
    want = 100.0 ** (-np.arange(0, rotary_dim, 2) / rotary_dim)
    np.testing.assert_allclose(inv, want, rtol=1e-5)
