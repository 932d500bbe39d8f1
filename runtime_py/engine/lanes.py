"""The lane of an executor: what the scheduler must know of a backend."""

from __future__ import annotations

from runtime_py.batching import CostProfile, LaneKind, LaneSpec
from runtime_py.executors.base import ExecutorLimits
from runtime_py.program import KV_BLOCK

ENCODER, DECODER = "embed", "generate"


def lane_of(limits: ExecutorLimits, profile: CostProfile, max_context: int) -> LaneSpec:
    """A decoder's lane if the executor has a key-value cache, else an encoder's.

    Args:
        max_context: of a decoder, the most tokens of a sequence; 0 = what its cache holds.
    """
    if not limits.kv_blocks:
        return LaneSpec(ENCODER, limits.max_tokens, limits.max_seqs, profile=profile)
    return LaneSpec(
        DECODER,
        limits.max_tokens,
        min(limits.max_seqs, limits.max_wanted),
        profile=profile,
        kind=LaneKind.DECODER,
        kv_blocks=limits.kv_blocks,
        block_size=KV_BLOCK,
        max_context=max_context,
    )
