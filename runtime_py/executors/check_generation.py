"""The checks of a step's cache, wanted rows and sampling (docs/design.md, 7.2)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain

from runtime_py.errors import InvalidInput, InvalidType
from runtime_py.executors.base import SamplingRow, Step
from runtime_py.program import KV_BLOCK

MAX_TOP_LOGPROBS = 20
_MAX_COUNT = (1 << 31) - 1


def check_cache(kv_blocks: int, step: Step) -> None:
    """Block tables cover their sequences, blocks exist, nobody writes another's block.

    Raises:
        InvalidInput: names the sequence or copy and the block.
    """
    tables, seqs = step.block_tables, step.seqs
    if len(tables) != len(seqs):
        raise InvalidInput(
            f"block_tables has {len(tables)} tables, expected {len(seqs)}, one per sequence"
        )
    writers: dict[int, int] = {}
    for i, (row, table) in enumerate(zip(seqs, tables, strict=True)):
        _, tokens, context, _ = row
        end = context + tokens
        blocks = -(-end // KV_BLOCK)
        if blocks > kv_blocks:
            raise InvalidInput(
                f"sequence {i} has {end} tokens, expected at most {kv_blocks * KV_BLOCK}: "
                f"the cache has {kv_blocks} blocks"
            )
        if not isinstance(table, array) or table.typecode != "i":
            raise InvalidType(f"block table {i} is {type(table).__name__}, expected array('i')")
        if len(table) < blocks:
            raise InvalidInput(
                f"block table {i} has {len(table)} blocks, expected at least {blocks} "
                f"for {end} tokens"
            )
        used = table if len(table) == blocks else table[:blocks]
        if min(used) < 0 or max(used) >= kv_blocks:
            bad = min(used) if min(used) < 0 else max(used)
            raise InvalidInput(f"block table {i} has block {bad}, expected 0 to {kv_blocks - 1}")
        for block in used[context // KV_BLOCK :]:
            if block in writers:
                raise InvalidInput(
                    f"sequences {writers[block]} and {i} both write block {block}, "
                    "expected a block of its own for each; copy it"
                )
            writers[block] = i
    if step.copies:
        check_copies(kv_blocks, step.copies)


def check_copies(kv_blocks: int, copies: Sequence[tuple[int, int]]) -> None:
    """Copied blocks exist; their destinations are written once and never read.

    Raises:
        InvalidInput: names the copy and the block.
    """
    sources = {source for source, _ in copies}
    seen: set[int] = set()
    for i, (source, destination) in enumerate(copies):
        for what, block in (("from", source), ("to", destination)):
            if not 0 <= block < kv_blocks:
                raise InvalidInput(
                    f"copy {i} is {what} block {block}, expected 0 to {kv_blocks - 1}"
                )
        if destination in sources or destination in seen:
            raise InvalidInput(
                f"copy {i} is to block {destination}, expected a block that no other copy "
                "writes or reads"
            )
        seen.add(destination)


def check_wanted(max_wanted: int, step: Step) -> None:
    """Wanted rows ascend and exist.

    Raises:
        InvalidInput: names the row.
    """
    wanted, tokens = step.wanted, len(step.token_ids)
    if len(wanted) > max_wanted:
        raise InvalidInput(f"wanted has {len(wanted)} rows, expected at most {max_wanted}")
    last = -1
    for i, row in enumerate(wanted):
        if not last < row < tokens:
            raise InvalidInput(
                f"wanted row {i} is token {row}, expected {last + 1} to {tokens - 1} in "
                "ascending order"
            )
        last = row


def check_sampling(vocab_size: int, step: Step) -> None:
    """There is a sampling row per wanted row, and its values are in range.

    Raises:
        InvalidInput: names the row, the field, its value and what was expected.
    """
    rows = step.sampling
    if rows is None:
        return
    if len(rows) != len(step.wanted):
        raise InvalidInput(
            f"sampling has {len(rows)} rows, expected {len(step.wanted)}, one per wanted row"
        )
    for i, row in enumerate(rows):
        if not _in_range(row):
            raise _out_of_range(i, row)
        if row.penalized or row.bias or row.mask is not None:
            check_lists(i, row, vocab_size)


def _in_range(row: SamplingRow) -> bool:
    """Every number of ``row`` is in range; a NaN is in no range."""
    return (
        (row.temperature == 0 or 1e-6 <= row.temperature <= 1e6)
        and 0 <= row.top_k <= _MAX_COUNT
        and 0 < row.top_p <= 1
        and 0 <= row.min_p <= 1
        and 1e-3 <= row.repetition_penalty <= 1e3
        and -1e3 <= row.presence_penalty <= 1e3
        and -1e3 <= row.frequency_penalty <= 1e3
        and 0 <= row.seed < 1 << 64
        and 0 <= row.position < 1 << 32
        and 0 <= row.top_logprobs <= MAX_TOP_LOGPROBS
    )


_RANGES = {
    "temperature": "0, or 1e-6 to 1e6",
    "top_k": f"0 to {_MAX_COUNT}",
    "top_p": "above 0, at most 1",
    "min_p": "0 to 1",
    "repetition_penalty": "1e-3 to 1e3",
    "presence_penalty": "-1e3 to 1e3",
    "frequency_penalty": "-1e3 to 1e3",
    "seed": "0 to 2**64 - 1",
    "position": "0 to 2**32 - 1",
    "top_logprobs": f"0 to {MAX_TOP_LOGPROBS}",
}


def _out_of_range(i: int, row: SamplingRow) -> InvalidInput:
    """The error for the first field of ``row`` that `_in_range` rejects."""
    for name, expected in _RANGES.items():
        value = getattr(row, name)
        if not _in_range(SamplingRow(**{name: value})):
            return InvalidInput(f"sampling row {i}: {name} is {value!r}, expected {expected}")
    raise AssertionError(f"{row} is in range")


def check_lists(i: int, row: SamplingRow, vocab_size: int) -> None:
    """Penalized ids, biases and mask of sampling row ``i`` name tokens, each once.

    Raises:
        InvalidInput: names the row, the list, the value and what was expected.
    """
    where = f"sampling row {i}"
    for name, ids in (
        ("penalized", [entry[0] for entry in row.penalized]),
        ("bias", [entry[0] for entry in row.bias]),
    ):
        if ids and (min(ids) < 0 or max(ids) >= vocab_size):
            bad = min(ids) if min(ids) < 0 else max(ids)
            raise InvalidInput(f"{where}: {name} has id {bad}, expected 0 to {vocab_size - 1}")
        if len(set(ids)) != len(ids):
            bad = next(x for at, x in enumerate(ids) if x in ids[:at])
            raise InvalidInput(f"{where}: {name} has id {bad} twice, expected each id once")
    for count in chain.from_iterable(entry[1:] for entry in row.penalized):
        if not 0 <= count <= _MAX_COUNT:
            raise InvalidInput(f"{where}: penalized has count {count}, expected 0 to {_MAX_COUNT}")
    for _, bias in row.bias:
        if not -1e9 <= bias <= 1e9:
            raise InvalidInput(f"{where}: bias is {bias!r}, expected -1e9 to 1e9")
    if row.mask is not None:
        _check_mask(where, row.mask, vocab_size)


def _check_mask(where: str, mask: bytes, vocab_size: int) -> None:
    size = -(-vocab_size // 32) * 4
    if not isinstance(mask, bytes | bytearray | memoryview):
        raise InvalidType(f"{where}: mask is {type(mask).__name__}, expected bytes")
    if len(mask) != size:
        raise InvalidInput(
            f"{where}: mask has {len(mask)} bytes, expected {size} for {vocab_size} tokens"
        )
    bits = int.from_bytes(mask, "little") & ((1 << vocab_size) - 1)
    if not bits:
        raise InvalidInput(f"{where}: mask allows no token, expected at least one")
