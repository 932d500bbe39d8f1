"""ROPE and ATTENTION."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as nn

from runtime_py.program import FLAG_CAUSAL, FLAG_INTERLEAVED, OpKind
from tests.ops.cases.builder import Builder, Case, case, normal

RAGGED = [1, 7, 33, 2, 64]


def _rotated(
    x: np.ndarray,
    positions: Sequence[int],
    heads: int,
    dim: int,
    inv_freq: np.ndarray,
    offset: int,
    scale: float,
    interleaved: bool,
) -> np.ndarray:
    """Each pair of columns as one complex number, times exp(i angle)."""
    out = x.astype(np.float64)
    half = len(inv_freq)
    for t, position in enumerate(positions):
        turn = scale * np.exp(1j * position * inv_freq.astype(np.float64))
        for h in range(heads):
            at = offset + h * dim
            first = at + (2 * np.arange(half) if interleaved else np.arange(half))
            second = first + (1 if interleaved else half)
            z = (x[t, first] + 1j * x[t, second]) * turn
            out[t, first], out[t, second] = z.real, z.imag
    return out


def rope() -> Iterator[Case]:
    for name, heads, dim, rotary, offset, extra, scale in (
        ("full64", 2, 64, 64, 0, 0, 1.0),
        ("partial24", 3, 24, 16, 0, 0, 1.0),
        ("dim5-of-qkv", 2, 5, 4, 7, 11, 1.0),
        ("scaled32", 1, 32, 32, 32, 32, 1.25),
    ):
        width = offset + heads * dim + extra
        inv_freq = (1e4 ** (-np.arange(rotary // 2) * 2 / rotary)).astype(np.float32)
        x = normal(1, 16, width)
        positions = [0, 1, 2, 3, 4, 5, 6, 7, 0, 300, 301, 302, 303, 304, 305, 306]
        for interleaved in (False, True):
            b = Builder(16)
            slot = b.input(x)
            out = slot if interleaved else b.tokens(width)
            b.add(
                OpKind.ROPE,
                out,
                flags=FLAG_INTERLEAVED * interleaved,
                x=slot,
                inv_freq=b.tensor(inv_freq),
                heads=heads,
                head_dim=dim,
                rotary_dim=rotary,
                offset=offset,
                scale=scale,
            )
            yield case(
                f"rope-{name}{'-interleaved-in-place' * interleaved}",
                b,
                out,
                [8, 1, 7],
                partial(_rotated, x, positions, heads, dim, inv_freq, offset, scale, interleaved),
                contexts=[0, 0, 300],
                atol=1e-4,  # an angle of 300 radians has an f32 error of 2e-5
            )


def attended(
    qkv: Sequence[np.ndarray],
    lengths: Sequence[int],
    heads: int,
    kv_heads: int,
    scale: float,
    causal: bool = False,
    window: int = 0,
    softcap: float = 0.0,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """torch's attention, a sequence at a time, with an explicit mask of what is seen."""
    out, start = [], 0
    for n in lengths:
        q, k, v = (
            torch.from_numpy(a[start : start + n].astype(np.float64))
            .reshape(n, h, -1)
            .transpose(0, 1)
            for a, h in zip(qkv, (heads, kv_heads, kv_heads), strict=True)
        )
        distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        mask = torch.zeros(heads, n, n, dtype=torch.float64)
        if bias is not None:
            mask += torch.from_numpy(bias.astype(np.float64))[:, distance + bias.shape[1] // 2]
        if causal:
            mask.masked_fill_(distance > 0, -torch.inf)
        if window:
            mask.masked_fill_(distance.abs() >= window, -torch.inf)
        if softcap:
            k = k.repeat_interleave(heads // kv_heads, 0)
            v = v.repeat_interleave(heads // kv_heads, 0)
            s = softcap * torch.tanh(q @ k.transpose(1, 2) * scale / softcap) + mask
            o = torch.softmax(s, -1) @ v
        else:
            o = nn.scaled_dot_product_attention(
                q[None], k[None], v[None], mask[None], scale=scale, enable_gqa=heads != kv_heads
            )[0]
        out.append(o.transpose(0, 1).reshape(n, -1).numpy())
        start += n
    return np.concatenate(out)


def _case(
    name: str,
    heads: int,
    dim: int,
    lengths: Sequence[int] = RAGGED,
    kv_heads: int = 0,
    causal: bool = False,
    window: int = 0,
    softcap: float = 0.0,
    bias: np.ndarray | None = None,
    spread: float = 1.0,
    atol: float = 1e-5,
) -> Case:
    """q, k and v lie in one slot, with other columns before and between them."""
    kv_heads = kv_heads or heads
    tokens, q_width, kv_width = sum(lengths), heads * dim, kv_heads * dim
    x = normal(len(name), tokens, 3 + q_width + 2 * kv_width + 1) * np.float32(spread)
    at_q, at_k, at_v = 3, 3 + q_width, 3 + q_width + kv_width + 1
    b = Builder(tokens, max_positions=0 if bias is None else bias.shape[1] // 2 + 1)
    qkv = b.input(x)
    scale = float(np.float32(dim**-0.5))
    out = b.add(
        OpKind.ATTENTION,
        b.tokens(q_width),
        flags=FLAG_CAUSAL * causal,
        q=qkv,
        k=qkv,
        v=qkv,
        bias=-1 if bias is None else b.tensor(bias),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        q_offset=at_q,
        k_offset=at_k,
        v_offset=at_v,
        window=window,
        scale=scale,
        softcap=softcap,
    )
    parts = x[:, at_q:at_k], x[:, at_k : at_k + kv_width], x[:, at_v : at_v + kv_width]
    return case(
        f"attention-{name}",
        b,
        out,
        lengths,
        lambda: attended(parts, lengths, heads, kv_heads, scale, causal, window, softcap, bias),
        atol=atol,
    )


def attention() -> Iterator[Case]:
    for dim in (5, 24, 32, 64):
        yield _case(f"dim{dim}", 3, dim)
        yield _case(f"dim{dim}-causal", 2, dim, causal=True)
    yield _case("long", 2, 32, [300, 1, 129])
    yield _case("long-causal-window", 1, 24, [300, 128], causal=True, window=100)
    yield _case("one-token-each", 2, 8, [1] * 9)
    yield _case("gqa", 6, 16, kv_heads=2)
    yield _case("mqa-causal", 4, 8, kv_heads=1, causal=True)
    for window in (1, 5, 64):
        yield _case(f"window{window}", 2, 16, window=window)
    yield _case("softcap", 2, 16, softcap=5.0, spread=3.0)
    yield _case("sharp", 2, 32, spread=12.0, atol=1e-3)
    yield _case("bias", 3, 8, bias=normal(1, 3, 2 * 64 - 1))
    yield _case(
        "bias-causal-gqa-window-softcap",
        4,
        8,
        kv_heads=2,
        causal=True,
        window=20,
        softcap=20.0,
        bias=normal(2, 4, 2 * 80 - 1),
    )
    yield from separate_slots()


def separate_slots() -> Iterator[Case]:
    q, k, v = (normal(3 + i, 40, 24) for i in range(3))
    b = Builder(40)
    out = b.add(
        OpKind.ATTENTION,
        b.tokens(24),
        q=b.input(q),
        k=b.input(k),
        v=b.input(v),
        heads=3,
        kv_heads=3,
        head_dim=8,
        scale=0.25,
    )
    yield case(
        "attention-separate-slots", b, out, [40], lambda: attended((q, k, v), [40], 3, 3, 0.25)
    )


def cases() -> Iterator[Case]:
    yield from rope()
    yield from attention()
