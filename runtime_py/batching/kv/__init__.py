"""The paged key-value cache, seen from the scheduler: who holds which block.

The tensors live in the backend; here are only block numbers. The scheme is that of
PagedAttention (Kwon et al., "Efficient Memory Management for Large Language Model
Serving with PagedAttention", SOSP 2023): a sequence's keys and values lie in blocks of a
fixed number of tokens that its block table lists, so memory is never fragmented and
blocks can be shared. Full blocks are found again by a chain of hashes over their tokens,
as in vLLM's automatic prefix caching; unlike there, a hit counts only after the tokens
themselves have been compared. A block holds the keys and values of every layer,
sliding-window layers included, so a cached block is never stale for some of them.
"""

from runtime_py.batching.kv.block_pool import BlockPool
from runtime_py.batching.kv.manager import BlockCopy, KVManager, KVSequence, KVStats, Reservation
from runtime_py.batching.kv.prefix_cache import PrefixCache, fnv1a

__all__ = [
    "BlockCopy",
    "BlockPool",
    "KVManager",
    "KVSequence",
    "KVStats",
    "PrefixCache",
    "Reservation",
    "fnv1a",
]
