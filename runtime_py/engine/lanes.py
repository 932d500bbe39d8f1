"""The lane of an executor: what the scheduler must know of a backend."""

from __future__ import annotations

from runtime_py.batching import CostProfile, LaneKind, LaneSpec
from runtime_py.executors.base import ExecutorLimits
from runtime_py.program import KV_BLOCK

ENCODER, DECODER = "embed", "generate"


def lane_of(
    limits: ExecutorLimits, profile: CostProfile, max_context: int, model: str = "", share: int = 1
) -> LaneSpec:
    """A decoder's lane if the executor has a key-value cache, else an encoder's.

    Args:
        max_context: of a decoder, the most tokens of a sequence; 0 = what its cache holds.
        model: its name, where several share a device.
        share: its bulk work's weight against that of the others.
    """
    kind = DECODER if limits.kv_blocks else ENCODER
    name = f"{model}/{kind}" if model else kind
    if kind == ENCODER:
        return LaneSpec(name, limits.max_tokens, limits.max_seqs, share, profile)
    return LaneSpec(
        name,
        limits.max_tokens,
        min(limits.max_seqs, limits.max_wanted),
        share,
        profile,
        kind=LaneKind.DECODER,
        kv_blocks=limits.kv_blocks,
        block_size=KV_BLOCK,
        max_context=max_context,
    )


def context_of(spec: LaneSpec) -> int:
    """Most tokens of a decoder's sequence; 0 for an encoder."""
    room = spec.kv_blocks * spec.block_size
    return min(spec.max_context or room, room)
