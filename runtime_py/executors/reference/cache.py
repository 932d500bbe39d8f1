"""The paged key-value cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime_py.executors.base import KVFormat
from runtime_py.program import KV_BLOCK, OpKind, Program

Array = Any


class PagedCache:
    """Keys and values of every layer, in blocks of `KV_BLOCK` tokens.

    A layer's keys and values are [blocks, KV_BLOCK, kv_heads, head_dim] arrays. What was
    never written is NaN, so that a key read too much shows.
    """

    def __init__(
        self, xp: Any, dtype: Any, program: Program, blocks: int, kv_format: KVFormat
    ) -> None:
        """Allocate ``blocks`` blocks for each CACHE op.

        Args:
            kv_format: "f16" rounds what is written to half precision; "f32" keeps it
                in ``dtype``, which may be wider.
        """
        self._xp = xp
        self._half = xp.float16 if kv_format == "f16" else None
        self._layers: dict[int, tuple[Array, Array]] = {}
        for op in program.ops:
            if op.kind is OpKind.CACHE:
                shape = (blocks, KV_BLOCK, op.uint("kv_heads"), op.uint("head_dim"))
                self._layers[op.uint("layer")] = (
                    xp.full(shape, float("nan"), dtype=dtype),
                    xp.full(shape, float("nan"), dtype=dtype),
                )

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks (from, to) in every layer."""
        for keys, values in self._layers.values():
            for source, destination in pairs:
                keys[destination] = keys[source]
                values[destination] = values[source]

    def write(self, layer: int, table: Array, start: int, keys: Array, values: Array) -> None:
        """Store the keys and values [n, kv_heads, head_dim] of positions ``start`` and on.

        Args:
            table: the sequence's block ids.
        """
        at = self._xp.arange(start, start + keys.shape[0])
        block, offset = table[at // KV_BLOCK], at % KV_BLOCK
        for stored, new in zip(self._layers[layer], (keys, values), strict=True):
            if self._half is not None:
                new = self._xp.asarray(new, dtype=self._half)
            stored[block, offset] = self._xp.asarray(new, dtype=stored.dtype)

    def read(self, layer: int, table: Array, length: int) -> tuple[Array, Array]:
        """Keys and values [length, kv_heads, head_dim] of positions 0 .. length - 1."""
        at = self._xp.arange(length)
        block, offset = table[at // KV_BLOCK], at % KV_BLOCK
        keys, values = self._layers[layer]
        return keys[block, offset], values[block, offset]
