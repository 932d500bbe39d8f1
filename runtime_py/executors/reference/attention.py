"""ROPE, CACHE and ATTENTION: the ops that know positions."""

from __future__ import annotations

from typing import Any

from runtime_py.executors.reference.state import State
from runtime_py.program import FLAG_CAUSAL, FLAG_INTERLEAVED, Op

Array = Any


def rope(s: State, op: Op, index: int) -> Array:
    heads, dim, rotary, start = (op.uint(n) for n in ("heads", "head_dim", "rotary_dim", "offset"))
    x = s.slot(op, "x")
    angle = s.xp.asarray(s.positions, dtype=s.dtype)[:, None, None] * s.tensor(op, "inv_freq")
    cos, sin = (f(angle) * op.float("scale") for f in (s.xp.cos, s.xp.sin))
    part = s.xp.reshape(x[:, start : start + heads * dim], (-1, heads, dim))
    turned, rest = part[:, :, :rotary], part[:, :, rotary:]
    if op.flags & FLAG_INTERLEAVED:
        a, b = turned[:, :, 0::2], turned[:, :, 1::2]
        turned = s.xp.stack([a * cos - b * sin, b * cos + a * sin], axis=3)
        turned = s.xp.reshape(turned, (-1, heads, rotary))
    else:
        a, b = turned[:, :, : rotary // 2], turned[:, :, rotary // 2 :]
        turned = s.xp.concat([a * cos - b * sin, b * cos + a * sin], axis=2)
    flat = s.xp.reshape(s.xp.concat([turned, rest], axis=2), (-1, heads * dim))
    return s.xp.concat([x[:, :start], flat, x[:, start + heads * dim :]], axis=1)


def _heads(s: State, op: Op, name: str, count: int) -> Array:
    """The ``count`` heads of input ``name``, [T, count, head_dim]."""
    start, dim = op.uint(name + "_offset"), op.uint("head_dim")
    return s.xp.reshape(s.slot(op, name)[:, start : start + count * dim], (-1, count, dim))


def cache(s: State, op: Op, index: int) -> None:
    assert s.cache is not None
    keys, values = (_heads(s, op, n, op.uint("kv_heads")) for n in ("k", "v"))
    for (first, tokens, context, _), table in zip(s.seqs, s.block_tables, strict=True):
        part = slice(first, first + tokens)
        s.cache.write(op.uint("layer"), table, context, keys[part], values[part])


def attention(s: State, op: Op, index: int) -> Array:
    heads, kv_heads = op.uint("heads"), op.uint("kv_heads")
    q = _heads(s, op, "q", heads)
    if not op.uint("cache"):
        k, v = _heads(s, op, "k", kv_heads), _heads(s, op, "v", kv_heads)
    rows = []
    for i, (first, tokens, context, _) in enumerate(s.seqs):
        part = slice(first, first + tokens)
        if op.uint("cache"):
            assert s.cache is not None
            layer, length = op.uint("cache") - 1, context + tokens
            keys, values = s.cache.read(layer, s.block_tables[i], length)
        else:
            keys, values = k[part], v[part]
        rows.append(_attend(s, op, q[part], keys, values))
    return s.xp.concat(rows, axis=0)


def _attend(s: State, op: Op, q: Array, k: Array, v: Array) -> Array:
    """One sequence: q [n, H, D] over k, v [m, KV, D] -> [n, H * D].

    The queries are those of the last n of the m tokens.
    """
    tokens, length = q.shape[0], k.shape[0]
    shared = q.shape[1] // k.shape[1]
    q, k, v = (s.xp.permute_dims(x, (1, 0, 2)) for x in (q, k, v))
    if shared > 1:
        k, v = (s.xp.repeat(x, shared, axis=0) for x in (k, v))
    scores = s.xp.matmul(q, s.xp.permute_dims(k, (0, 2, 1))) * op.float("scale")
    queries = s.xp.arange(length - tokens, length)
    distance = s.xp.arange(length)[None, :] - queries[:, None]  # key - query
    if op.float("softcap"):
        scores = s.xp.tanh(scores / op.float("softcap")) * op.float("softcap")
    if op.tensor("bias") >= 0:
        bias = s.tensor(op, "bias")
        at = s.xp.reshape(distance + bias.shape[1] // 2, (-1,))
        scores = scores + s.xp.reshape(s.xp.take(bias, at, axis=1), (-1, tokens, length))
    hidden = distance > 0 if op.flags & FLAG_CAUSAL else distance > length
    if op.uint("window"):
        hidden = hidden | (s.xp.abs(distance) >= op.uint("window"))
    scores = s.xp.where(hidden[None], s.xp.full_like(scores, -float("inf")), scores)
    top = s.xp.max(scores, axis=2, keepdims=True)
    # A query that sees no key at all gets zeros, not 0/0.
    top = s.xp.where(top == -float("inf"), s.xp.zeros_like(top), top)
    weights = s.xp.exp(scores - top)
    total = s.xp.sum(weights, axis=2, keepdims=True)
    out = s.xp.matmul(weights, v) / s.xp.where(total == 0, s.xp.ones_like(total), total)
    return s.xp.reshape(s.xp.permute_dims(out, (1, 0, 2)), (tokens, -1))
