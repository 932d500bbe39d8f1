"""Rotary position embeddings, however they are spelled.

Every spelling is a sum of features times tables of cosines and sines. The tables are
evaluated at a few positions, the sum is kept as a `Mix`, and once it is used the
frequencies are read off it (Su et al. 2021, "RoFormer").
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from runtime_py.program import FLAG_INTERLEAVED, OpKind
from toolchain.lowering import layout as lay
from toolchain.lowering.context import Context, describe
from toolchain.lowering.errors import NotLowered
from toolchain.lowering.graph import GraphNode
from toolchain.lowering.ir import Weight
from toolchain.lowering.layout import Axes, Layout
from toolchain.lowering.rules.attention import join_heads, split_heads
from toolchain.lowering.rules.registry import rule
from toolchain.lowering.values import Data, Floats, Index, Mix, View

_TOLERANCE = 1e-4


def positions(ctx: Context) -> Index:
    """The sampled positions: doubling, so that angles can be unwrapped one by one."""
    length = ctx.long_length
    doubling = [2**i for i in range(1, 20) if 2**i < length]
    return np.array(sorted({p for p in (0, 1, 3, length - 1, *doubling) if p < length}))


def modulate(ctx: Context, x: View | Mix, name: str) -> Mix:
    """``x`` times the position-dependent structural tensor ``name``."""
    table = _at_positions(ctx, name, x.axes)
    return to_mix(ctx, x).scaled(table)


def _at_positions(ctx: Context, name: str, axes: Axes) -> Floats:
    array = np.asarray(ctx.prober.long(name, ctx.long_length), np.float64)
    array = array.reshape((1,) * (len(axes) - array.ndim) + array.shape)
    at = next((i for i, axis in enumerate(axes) if axis == ("S",)), -1)
    if at < 0 or array.shape[at] != ctx.long_length:
        raise NotLowered(f"multiplies by a tensor of shape {array.shape} that is no rotary table")
    return np.stack([lay.spread(array.take([p], axis=at), axes) for p in positions(ctx)])


def to_mix(ctx: Context, x: View | Mix) -> Mix:
    """``x`` as a mix with one term."""
    if isinstance(x, Mix):
        return x
    coef = np.ones(len(x.cols)) if x.coef is None else x.coef
    weight = np.broadcast_to(coef, (len(positions(ctx)), len(coef)))
    return Mix(x.value, x.axes, ((x.cols, weight),))


def add_mixes(ctx: Context, a: Mix, b: Mix) -> Mix:
    """``a + b`` over the same value."""
    if a.value != b.value or a.axes != b.axes:
        raise NotLowered("adds position-dependent terms of different tensors")
    return replace(a, terms=a.terms + b.terms)


def join(ctx: Context, parts: list[View | Mix], axis: int) -> View | Mix:
    """Concatenation of features of one value along ``axis``."""
    axes = [list(p.axes) for p in parts]
    if any(p.value != parts[0].value for p in parts):
        raise NotLowered("concatenates different tensors, expected parts of one")
    sizes = [lay.size_of(p.axes[axis]) for p in parts]
    joined = [*axes[0][:axis], (sum(sizes),), *axes[0][axis + 1 :]]
    if any([*a[:axis], *a[axis + 1 :]] != [*axes[0][:axis], *axes[0][axis + 1 :]] for a in axes):
        raise NotLowered(f"concatenates tensors with axes {axes}")
    # where each feature of the result comes from, in the parts laid end to end
    pieces, at = [], 0
    for p in parts:
        merged, _ = lay.merge(Layout.of(p.axes), axis)
        pieces.append(merged.index + at)
        at += merged.index.size
    dim = len(lay.features(tuple(joined[:axis])))
    order = Layout(tuple(joined), np.concatenate(pieces, axis=dim)).index.ravel()
    made = tuple(joined)
    if all(isinstance(p, View) for p in parts):
        views = [p for p in parts if isinstance(p, View)]
        cols = np.concatenate([p.cols for p in views])[order]
        coef = np.concatenate([np.ones(len(p.cols)) if p.coef is None else p.coef for p in views])[
            order
        ]
        return View(views[0].value, made, cols, None if np.all(coef == 1.0) else coef)
    mixes = [to_mix(ctx, p) for p in parts]
    terms = []
    for t in range(max(len(m.terms) for m in mixes)):
        picked = [m.terms[t] if t < len(m.terms) else _nothing(m) for m in mixes]
        cols = np.concatenate([c for c, _ in picked])[order]
        weight = np.concatenate([w for _, w in picked], axis=1)[:, order]
        terms.append((cols, weight))
    return Mix(mixes[0].value, made, tuple(terms))


def _nothing(m: Mix) -> tuple[Index, Floats]:
    cols, weight = m.terms[0]
    return cols, np.zeros_like(weight)


@dataclass(frozen=True, slots=True)
class _Rotation:
    """Per feature: the column it keeps, the column it mixes in, both with weights [P, n]."""

    own: Index
    partner: Index
    cos: Floats
    sin: Floats


def finish_rotary(ctx: Context, m: Mix) -> View:
    """Emit the ROPE that ``m`` is.

    Raises:
        NotLowered: it is none.
    """
    every = _pair(m)
    r = _once(every)
    # keys may be transposed already: a head's features are the last axis that has any
    head_dim = lay.size_of([axis for axis in m.axes if lay.is_feature(axis) and axis][-1])
    start, n = int(r.own.min()), len(r.own)
    if not np.array_equal(np.sort(r.own), np.arange(start, start + n)):
        return finish_rotary(ctx, _side_by_side(ctx, m, r.own))
    order = np.argsort(r.own)
    heads = n // head_dim
    partner = (r.partner[order] - start).reshape(heads, head_dim)
    within = partner - head_dim * np.arange(heads)[:, None]
    cos = r.cos[:, order].reshape(-1, heads, head_dim)
    sin = r.sin[:, order].reshape(-1, heads, head_dim)
    for array in (cos, sin):
        if np.abs(array - array[:, :1]).max() > _TOLERANCE:
            raise NotLowered("heads rotate by different angles")
    cos, sin, within = cos[:, 0], sin[:, 0], within[0]
    rotary_dim, interleaved = _style(within, sin)
    first = _first_of_pairs(rotary_dim, interleaved)
    second = within[first]
    scale = float(np.hypot(cos[:, first], sin[:, first]).mean())
    # first' = c * first - s * second and second' = c * second + s * first
    inv_freq = _frequencies(positions(ctx), cos[:, first], -sin[:, first])
    angle = positions(ctx)[:, None] * inv_freq
    want_cos, want_sin = scale * np.cos(angle), scale * np.sin(angle)
    rest = np.arange(rotary_dim, head_dim)
    slack = _TOLERANCE * (1 + 0.02 * positions(ctx)[:, None] * np.abs(inv_freq))
    for got, want in (
        (cos[:, first], want_cos),
        (cos[:, second], want_cos),
        (-sin[:, first], want_sin),
        (sin[:, second], want_sin),
    ):
        if np.any(np.abs(got - want) > slack):
            raise NotLowered("multiplies by tables that are no rotation by position * frequency")
    if rest.size and (np.abs(cos[:, rest] - 1).max() > _TOLERANCE or np.abs(sin[:, rest]).max()):
        raise NotLowered("changes the features that it does not rotate")
    out = ctx.ir.emit(
        OpKind.ROPE,
        ctx.ir.width(m.value),
        {"x": m.value},
        {"inv_freq": Weight(_exact(ctx, inv_freq), "rotary.inv_freq")},
        {"heads": heads, "head_dim": head_dim, "rotary_dim": rotary_dim, "offset": start},
        {"scale": 1.0 if abs(scale - 1.0) < 1e-6 else scale},
        FLAG_INTERLEAVED if interleaved else 0,
    )
    return View(out, m.axes, every.own)


def _once(r: _Rotation) -> _Rotation:
    """Every feature once: heads that share keys may repeat them after the rotation."""
    kept, first, again = np.unique(r.own, return_index=True, return_inverse=True)
    if len(kept) == len(r.own):
        return r
    made = _Rotation(kept, r.partner[first], r.cos[:, first], r.sin[:, first])
    if not (
        np.array_equal(made.partner[again], r.partner)
        and np.array_equal(made.cos[:, again], r.cos)
        and np.array_equal(made.sin[:, again], r.sin)
    ):
        raise NotLowered("rotates a feature in two ways")
    return made


def _side_by_side(ctx: Context, m: Mix, own: Index) -> Mix:
    """``m`` over a value that holds nothing but the columns ``own`` (q, k and v of a head
    may lie together)."""
    place = np.full(ctx.ir.width(m.value), -1)
    place[own] = np.arange(len(own))
    terms = tuple((place[cols], weight) for cols, weight in m.terms)
    if any(np.any(cols < 0) for cols, _ in terms):
        raise NotLowered("rotates by features that it does not keep")
    return Mix(ctx.dense(View(m.value, m.axes, own)), m.axes, terms)


def _pair(m: Mix) -> _Rotation:
    """Which term keeps a feature in place (it is not 0 at position 0), and which mixes."""
    n = m.terms[0][0].shape[0]
    own, partner = np.full(n, -1), np.full(n, -1)
    cos = np.zeros_like(m.terms[0][1])
    sin = np.zeros_like(cos)
    for cols, weight in m.terms:
        keeps = np.abs(weight[0]) > _TOLERANCE
        idle = ~np.any(weight != 0.0, axis=0)
        if np.any(keeps & (own >= 0)) or np.any(~keeps & ~idle & (partner >= 0)):
            raise NotLowered("sums more than two terms per feature")
        own = np.where(keeps, cols, own)
        cos = np.where(keeps, weight, cos)
        mixes = ~keeps & ~idle
        partner = np.where(mixes, cols, partner)
        sin = np.where(mixes, weight, sin)
    if np.any(own < 0):
        raise NotLowered(f"{describe(m)} keeps no feature in place, expected a rotation")
    return _Rotation(own, np.where(partner < 0, own, partner), cos, sin)


def _style(within: Index, sin: Floats) -> tuple[int, bool]:
    """(rotary_dim, interleaved) from each feature's partner inside its head."""
    moved = np.flatnonzero(within != np.arange(len(within)))
    rotary_dim = int(moved.max()) + 1 if len(moved) else 0
    if rotary_dim and len(moved) == rotary_dim and rotary_dim % 2 == 0:
        i = np.arange(rotary_dim)
        half = rotary_dim // 2
        if np.array_equal(within[:rotary_dim], np.where(i < half, i + half, i - half)):
            return rotary_dim, False
        if np.array_equal(within[:rotary_dim], i ^ 1):
            return rotary_dim, True
    raise NotLowered("pairs features in no order that a rotary embedding uses")


def _first_of_pairs(rotary_dim: int, interleaved: bool) -> Index:
    return np.arange(0, rotary_dim, 2) if interleaved else np.arange(rotary_dim // 2)


def _frequencies(at: Index, cos: Floats, sin: Floats) -> Floats:
    """Angle per position, from wrapped angles at doubling positions."""
    angle = np.arctan2(sin, cos)
    estimate = angle[list(at).index(1)] if 1 in at else np.zeros(cos.shape[1])
    for p, wrapped in zip(at, angle, strict=True):
        if p > 1:
            turns = np.round((estimate * p - wrapped) / (2 * np.pi))
            estimate = (wrapped + 2 * np.pi * turns) / p
    return np.asarray(estimate)


def _exact(ctx: Context, inv_freq: Floats) -> Floats:
    """The constant of the graph that ``inv_freq`` was measured from, if it is there."""
    for name in sorted(ctx.graph.constants):
        if ctx.graph.is_initializer(name) and np.prod(ctx.graph.dims(name)) != len(inv_freq):
            continue
        array = ctx.graph.initializer(name)
        if (
            array is not None
            and array.size == len(inv_freq)
            and array.dtype.kind == "f"
            and np.allclose(array.ravel(), inv_freq, 1e-4, 1e-9)
        ):
            return array.ravel().astype(np.float64)
    return inv_freq


@rule("RotaryEmbedding")
def rotary_embedding(ctx: Context, node: GraphNode) -> Data:
    """ONNX RotaryEmbedding (opset 23): X, cos_cache, sin_cache, position_ids."""
    return _operator(ctx, node, cos=1, sin=2, ids=3)


@rule("RotaryEmbedding", domain="com.microsoft")
def contrib_rotary_embedding(ctx: Context, node: GraphNode) -> Data:
    """ONNX Runtime's: input, position_ids, cos_cache, sin_cache."""
    return _operator(ctx, node, cos=2, sin=3, ids=1)


def _operator(ctx: Context, node: GraphNode, cos: int, sin: int, ids: int) -> Data:
    x = ctx.view(0)
    flat = len(x.axes) == 3
    if flat:
        heads = int(node.attrs.get("num_heads", 0))
        if not heads:
            raise NotLowered("rotates a 3-D tensor without num_heads")
        x = split_heads(x, heads)
    head_dim = lay.size_of(x.axes[-1])
    tables = [_cache(ctx, node.inputs[i], node.input(ids)) for i in (cos, sin)]
    rotary_dim = int(node.attrs.get("rotary_embedding_dim", 0)) or head_dim
    half = rotary_dim // 2
    interleaved = bool(node.attrs.get("interleaved", 0))
    feature = np.arange(head_dim)
    if interleaved:
        which, other = feature // 2, feature ^ 1
        sign = np.where(feature % 2 == 0, -1.0, 1.0)
    else:
        which, other = feature % half, np.where(feature < half, feature + half, feature - half)
        sign = np.where(feature < half, -1.0, 1.0)
    still = feature >= rotary_dim
    which, other = np.where(still, 0, which), np.where(still, feature, other)
    weights = [
        np.where(still, 1.0, tables[0][:, which]),
        np.where(still, 0.0, tables[1][:, which] * sign),
    ]
    base = to_mix(ctx, x)
    rank = len(x.axes)
    swapped = base.arranged(lay.take(Layout.of(x.axes), rank - 1, other))
    repeat = len(x.cols) // head_dim
    mixed = add_mixes(
        ctx,
        base.scaled(np.tile(weights[0], (1, repeat))),
        replace(swapped.scaled(np.tile(weights[1], (1, repeat))), axes=x.axes),
    )
    if not flat:
        return mixed  # perhaps a part of each head, about to be joined with the rest
    return join_heads(finish_rotary(ctx, mixed))


def _cache(ctx: Context, name: str, ids: str) -> Floats:
    """A cosine or sine cache at the sampled positions: [P, rotary_dim / 2]."""
    if name in ctx.values or ids in ctx.values:
        raise NotLowered("rotary tables depend on token vectors")
    length = ctx.long_length
    table = np.asarray(ctx.prober.long(name, length), np.float64)
    if ids:
        at = np.asarray(ctx.prober.long(ids, length)).ravel()
        at = at + np.arange(length) if at.size == 1 else at
        table = table.reshape(-1, table.shape[-1])[at]
    else:
        table = table.reshape(-1, table.shape[-1])[:length]
    return table[positions(ctx)]
