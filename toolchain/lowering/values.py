"""What the interpreter knows about a tensor on the data path.

Most ops do not compute anything at once: they return a description (a rearranged view,
a scalar function, half a layer norm, attention scores) and an op is emitted only when the
description is complete. So it does not matter in which order, or with how many nodes, an
exporter spells a layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from toolchain.lowering.layout import Axes, Layout

Floats = NDArray[np.float64]
Index = NDArray[np.int64]
ScalarFunction = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class Struct:
    """A tensor that does not depend on token vectors (see `toolchain.lowering.probe`)."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Columns of a value under some axes: feature i is ``value[:, cols[i]] * coef[i]``.

    ``cols`` and ``coef`` (None = all ones) are raveled in the order of the feature atoms.
    """

    value: int
    axes: Axes
    cols: Index
    coef: Floats | None = None

    def arranged(self, layout: Layout) -> View:
        """The view with its features picked and ordered by ``layout.index``."""
        i = layout.index.ravel()
        coef = None if self.coef is None else self.coef[i]
        return View(self.value, layout.axes, self.cols[i], coef)

    def scaled(self, factor: Floats | float) -> View:
        """The view times a number, or one number per feature."""
        coef = np.ones(len(self.cols)) if self.coef is None else self.coef
        coef = coef * factor
        return replace(self, coef=None if np.all(coef == 1.0) else coef)

    def split_scale(self) -> tuple[View, float]:
        """(view, s) where s is the common factor of all features, or 1."""
        if self.coef is None or not np.all(self.coef == self.coef[0]):
            return self, 1.0
        return replace(self, coef=None), float(self.coef[0])

    def same(self, other: object) -> bool:
        """Whether both describe the same tensor."""
        if not isinstance(other, View) or self.value != other.value or self.axes != other.axes:
            return False
        if not np.array_equal(self.cols, other.cols):
            return False
        if self.coef is None or other.coef is None:
            return self.coef is other.coef
        return bool(np.array_equal(self.coef, other.coef))


@dataclass(frozen=True, slots=True)
class Pointwise:
    """A scalar function of every element of ``base``.

    ``alpha`` is what the base was multiplied by first, a hint: ``function`` includes it.
    """

    base: View
    function: ScalarFunction
    alpha: float = 1.0


@dataclass(frozen=True, slots=True)
class RowStat:
    """A step on the way to a norm of ``base`` over its last axis.

    ``stage``: "mean" (of base), "centered" (base less its mean), "square" (of the base or
    the centered base), "mean_square", "root" (its square root, or with ``power`` -1 the
    reciprocal of that).
    """

    stage: Literal["mean", "centered", "square", "mean_square", "root"]
    base: View
    is_centered: bool = False
    eps: float = 0.0
    power: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """Features that are position-dependent sums: ``sum_t value[:, cols[t]] * weight[t][p]``.

    Every term has ``cols`` [n] and ``weight`` [P, n], at the sampled positions; a rotary
    embedding passes through this form in every spelling.
    """

    value: int
    axes: Axes
    terms: tuple[tuple[Index, Floats], ...]

    def arranged(self, layout: Layout) -> Mix:
        i = layout.index.ravel()
        return Mix(self.value, layout.axes, tuple((c[i], w[:, i]) for c, w in self.terms))

    def scaled(self, factor: Floats | float) -> Mix:
        return replace(self, terms=tuple((c, w * factor) for c, w in self.terms))


@dataclass(frozen=True, slots=True)
class MaskTerm:
    """Something structural added to attention scores.

    ``kind``: "add" (times ``factor``), "keep" (scores where the tensor is true, else
    ``fill``), "drop" (``fill`` where it is true), "tokens" (keep, by key [B, S]) or
    "lengths" (keep keys below [B]).
    """

    kind: Literal["add", "keep", "drop", "tokens", "lengths"]
    name: str
    factor: float = 1.0
    fill: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Attention scores or, after the softmax, probabilities.

    ``axes`` has the atoms "B", the head atoms, "S" (queries) and "K" (keys); ``q`` and
    ``k`` are views whose features are [heads..., head_dim], raveled, heads in the order of
    ``axes``.
    """

    q: View
    k: View
    heads: int
    axes: Axes
    scale: float = 1.0
    terms: tuple[MaskTerm, ...] = ()
    softcap: float = 0.0
    pending_tanh: bool = False
    is_probability: bool = False
    causal: bool = False


@dataclass(frozen=True, slots=True)
class NanCheck:
    """Which probabilities are NaN: those of queries without any key, which do not exist."""

    of: Scores


Data = Any
