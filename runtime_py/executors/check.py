"""The checks that every executor makes before it works on a step."""

from __future__ import annotations

from array import array
from typing import Protocol

from runtime_py.errors import InvalidInput, InvalidType
from runtime_py.executors.base import ExecutorLimits, Step
from runtime_py.executors.check_generation import check_cache, check_sampling, check_wanted


class Bounds(Protocol):
    """Which token ids and positions a model has; a `Program` says so."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_positions(self) -> int: ...


def check_counts(limits: ExecutorLimits, step: Step) -> None:
    """The step's sizes fit the limits; constant time.

    Raises:
        InvalidInput: names the count and the limit.
    """
    ids = step.token_ids
    if (
        isinstance(ids, array)
        and ids.typecode == "i"
        and 0 < len(ids) <= limits.max_tokens
        and 0 < len(step.seqs) <= limits.max_seqs
        and 0 < step.threads <= limits.threads
    ):
        return
    if not isinstance(ids, array) or ids.typecode != "i":
        raise InvalidType(f"token_ids is {type(ids).__name__}, expected array('i')")
    for what, count, limit in (
        ("tokens", len(ids), limits.max_tokens),
        ("sequences", len(step.seqs), limits.max_seqs),
        ("threads", step.threads, limits.threads),
    ):
        if not 1 <= count <= limit:
            raise InvalidInput(f"a step has {count} {what}, expected 1 to {limit}; split it")


def check_rows(bounds: Bounds, step: Step) -> None:
    """Sequences tile the tokens, and ids and positions exist; linear time.

    Raises:
        InvalidInput: names the token or sequence.
    """
    at = 0
    for i, row in enumerate(step.seqs):
        first, tokens, context, skip = row
        if first != at or tokens < 1:
            raise InvalidInput(
                f"sequence {i} has {tokens} tokens from {first} on, "
                f"expected at least 1 from {at} on"
            )
        if not 0 <= skip < tokens:
            raise InvalidInput(
                f"sequence {i} skips {skip} of its {tokens} tokens in pooling, "
                f"expected 0 to {tokens - 1}"
            )
        end = context + tokens
        if context < 0 or (bounds.max_positions and end > bounds.max_positions):
            raise InvalidInput(
                f"sequence {i} has positions {context} to {end - 1}, the model has "
                f"0 to {bounds.max_positions - 1}; truncate it"
            )
        at += tokens
    if at != len(step.token_ids):
        raise InvalidInput(f"the sequences hold {at} tokens, the step {len(step.token_ids)}")
    low, high = min(step.token_ids), max(step.token_ids)
    if low < 0 or high >= bounds.vocab_size:
        bad = low if low < 0 else high
        raise InvalidInput(
            f"token {step.token_ids.index(bad)} has id {bad}, the vocabulary has "
            f"0 to {bounds.vocab_size - 1}"
        )


def check_generation(bounds: Bounds, limits: ExecutorLimits, step: Step) -> None:
    """The fields of a step that only a decoder has, after `check_rows`; linear time.

    Raises:
        InvalidInput: names the field, its value and what was expected.
    """
    if limits.kv_blocks:
        check_cache(limits.kv_blocks, step)
        check_wanted(limits.max_wanted, step)
        check_sampling(bounds.vocab_size, step)
        return
    for name in ("block_tables", "copies", "wanted"):
        if getattr(step, name):
            raise InvalidInput(
                f"{name} has {len(getattr(step, name))} entries, expected none for an encoder"
            )
    if step.sampling is not None:
        raise InvalidInput("sampling is given, expected None for an encoder")


def check_step(bounds: Bounds, limits: ExecutorLimits, step: Step) -> None:
    """`check_counts`, `check_rows`, `check_generation`."""
    check_counts(limits, step)
    check_rows(bounds, step)
    check_generation(bounds, limits, step)
