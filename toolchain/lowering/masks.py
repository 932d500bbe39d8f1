"""What is added to attention scores: nothing but the padding mask, or more.

All mask terms of one attention are summed numerically, for small padded batches and for
one long sequence, and the sum is read: which keys a query sees, and what is added where
it does. Whatever a mask was computed from, the result is one of: everything, causal, a
sliding window, a causal window; with or without a bias that depends on the distance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolchain.lowering.context import Context
from toolchain.lowering.errors import NotLowered
from toolchain.lowering.layout import features
from toolchain.lowering.values import MaskTerm, Scores

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MASKED = -1000.0
"""Models mask with -10000, the smallest f32, or -inf; no bias comes near this."""
_BIAS_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class Mask:
    """How an attention restricts and biases its scores.

    Attributes:
        causal: query i sees no key after i.
        window: keys with ``|query - key| < window`` are seen; 0 = all.
        bias: f64 [heads, 2R - 1] added at distance key - query, or None.
        hint: name of the table that the bias came from, or "".
    """

    causal: bool = False
    window: int = 0
    bias: Floats | None = None
    hint: str = ""


def classify(ctx: Context, p: Scores) -> Mask:
    """Read the mask of ``p``; equal masks (of other layers) are read once."""
    terms = tuple(replace(t, name=ctx.prober.first_like(t.name)) for t in p.terms)
    key = (terms, p.axes, p.heads, p.causal)
    if key not in ctx.mask_cache:
        ctx.mask_cache[key] = _classify(ctx, p)
    found = ctx.mask_cache[key]
    assert isinstance(found, Mask)
    return found


def _classify(ctx: Context, p: Scores) -> Mask:
    for i, probe in enumerate(ctx.prober.probes):
        total = _total(p, [ctx.prober.small(t.name)[i] for t in p.terms], probe.length)
        _check_padding(ctx, total, probe.valid)
    if not p.terms:
        return Mask(causal=p.causal)
    length = ctx.long_length
    # one sequence without padding: every visible pair shows the rule
    total = _total(p, [ctx.prober.long(t.name, length) for t in p.terms], length)[0]
    total = np.broadcast_to(total, (total.shape[0], length, length))
    seen = total > MASKED
    if not np.array_equal(seen, np.broadcast_to(seen[:1], seen.shape)):
        raise NotLowered("heads see different keys")
    causal, window = _visible(seen[0])
    bias = np.where(seen, total, 0.0)
    if np.abs(bias).max() <= _BIAS_TOLERANCE:
        return Mask(causal, window)
    return Mask(causal, window, *_relative(ctx, p, bias, length))


def _total(p: Scores, arrays: list[NDArray[Any]], length: int) -> Floats:
    """Sum of all mask terms as [B | 1, heads | 1, S, K | 1]."""
    total: Floats = np.zeros((1, 1, 1, 1))
    for term, array in zip(p.terms, arrays, strict=True):
        if term.kind == "lengths":
            array = np.arange(length) < array[:, None]
        if term.kind in ("tokens", "lengths"):
            array = array[:, None, None, :]  # by key, whatever the head and the query
        total = total + _canonical(_additive(term, array), p)
    if p.causal:
        after = np.triu(np.ones((length, length), bool), 1)
        total = np.where(after, -np.inf, total)
    return total


def _additive(term: MaskTerm, array: NDArray[Any]) -> Floats:
    if term.kind == "add":
        return np.asarray(array, np.float64) * term.factor
    keep = ~array.astype(bool) if term.kind == "drop" else array.astype(bool)
    return np.where(keep, 0.0, term.fill)


def _canonical(array: Floats, p: Scores) -> Floats:
    """A mask in the scores' own axes as [B | 1, heads | 1, S | 1, K | 1]."""
    array = array.reshape((1,) * (len(p.axes) - array.ndim) + array.shape)
    atoms = [a for axis in p.axes for a in axis]
    shape: list[int] = []
    for axis, n in zip(p.axes, array.shape, strict=True):
        if n == 1:
            shape.extend([1] * len(axis))
            continue
        known = int(np.prod(features((axis,)), dtype=np.int64))
        free = [a for a in axis if isinstance(a, str)]
        if len(free) > 1 or (not free and known != n) or n % known:
            raise NotLowered(f"mask of shape {array.shape} over axes {p.axes}")
        shape.extend(a if isinstance(a, int) else n // known for a in axis)
    array = array.reshape(shape)
    order = [i for i, a in enumerate(atoms) if a == "B"]
    heads = [i for i, a in enumerate(atoms) if isinstance(a, int)]
    order += [*heads, atoms.index("S"), atoms.index("K")]
    array = array.transpose(order)
    head_shape = array.shape[1 : 1 + len(heads)]
    if any(n != 1 for n in head_shape):
        array = np.broadcast_to(
            array,
            (array.shape[0], *(a for a in atoms if isinstance(a, int)), *array.shape[-2:]),
        )
        head_shape = (p.heads,)
    else:
        head_shape = (1,)
    return array.reshape(array.shape[0], *head_shape, *array.shape[-2:])


def _check_padding(ctx: Context, total: Floats, valid: Bools) -> None:
    if "attention_mask" not in ctx.graph.inputs:
        return  # a graph for equal lengths: there is no padding to ignore
    batch, length = valid.shape
    full = np.broadcast_to(total, (batch, total.shape[1], length, length))
    padded_key = valid[:, None, :, None] & ~valid[:, None, None, :]
    if np.any(full[np.broadcast_to(padded_key, full.shape)] > MASKED):
        raise NotLowered("attends to padding: the attention mask does not reach the scores")
    own = np.arange(length)
    if np.any((full[:, :, own, own] <= MASKED) & valid[:, None, :]):
        raise NotLowered("masks tokens that exist")


def _visible(seen: Bools) -> tuple[bool, int]:
    """(causal, window) of a visibility matrix [query, key]."""
    length = len(seen)
    distance = np.arange(length)[None, :] - np.arange(length)[:, None]
    causal = length > 1 and not seen[distance > 0].any()
    back = np.unique(-distance[seen & (distance <= 0)])
    window = int(back.max()) + 1 if len(back) else 0
    window = 0 if window >= length else window
    want = np.abs(distance) < window if window else np.ones_like(seen)
    if causal:
        want &= distance <= 0
    if not np.array_equal(seen, want):
        raise NotLowered("mask is neither full, causal, nor a sliding window")
    return causal, window


def _relative(ctx: Context, p: Scores, bias: Floats, length: int) -> tuple[Floats, str]:
    """The table [heads, 2R - 1] of a bias [heads | 1, S, S] that depends on the distance."""
    if ctx.max_positions != length:
        raise NotLowered(
            f"adds a bias per distance, but the limit of {ctx.max_positions} positions "
            "is unknown or too large"
        )
    bias = np.broadcast_to(bias, (p.heads, length, length))
    # row 0 holds distances 0 .. R-1, the last row -(R-1) .. 0
    table = np.concatenate([bias[:, -1, :], bias[:, 0, 1:]], axis=1)
    for q in {1 % length, length // 3, length // 2}:
        at = length - 1 - q
        if np.abs(table[:, at : at + length] - bias[:, q]).max() > _BIAS_TOLERANCE:
            raise NotLowered("adds a bias that depends on more than the distance")
    hints = (ctx.graph.table_behind(t.name) for t in p.terms)
    return table, next((h for h in hints if h), "")
