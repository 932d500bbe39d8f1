"""What a decoder's step adds to a workspace (volery.h, from V_WS_TABLES on)."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from runtime_py.errors import InvalidInput
from runtime_py.executors.base import ExecutorLimits, Sampled, SamplingRow, Step
from runtime_py.executors.check import check_step
from runtime_py.executors.check_generation import check_copies, check_sampling
from runtime_py.program import KV_BLOCK, Program

PARTS = range(5, 12)
"""The v_ws_parts of `GenerationParts`, in its order."""

_SAMPLE_ROW = struct.Struct("<fIfffffI3I5I")
_BIAS = struct.Struct("<If")
_SAMPLED_BYTES = 176
_SAMPLED = struct.Struct("<ifII")
_TOP = struct.Struct("<if")
_NO_MASK = 0xFFFFFFFF


def sampling_words(vocab_size: int, max_wanted: int) -> int:
    """Room for a mask and 1024 penalized or biased tokens in every wanted row."""
    return max_wanted * (-(-vocab_size // 32) + 3 * min(vocab_size, 1024))


@dataclass(frozen=True, slots=True)
class GenerationParts:
    """Views of a workspace's parts, as bytes, in the order of volery.h."""

    tables: memoryview
    blocks: memoryview
    copies: memoryview
    wanted: memoryview
    rows: memoryview
    data: memoryview
    sampled: memoryview

    def write(
        self, header: memoryview, step: Step, program: Program, limits: ExecutorLimits
    ) -> None:
        """Put what ``step`` adds into the workspace.

        The module checks block ids and wanted rows, faster than here; what it cannot see
        is checked here.

        Raises:
            InvalidInput: the step is malformed.
        """
        if step.copies:
            check_copies(limits.kv_blocks, step.copies)
        check_sampling(program.vocab_size, step)
        wanted, copies = step.wanted, step.copies
        try:
            if len(wanted) > limits.max_wanted or not self._write_tables(step):
                raise ValueError
            _put(self.copies, array("I", chain.from_iterable(copies)))
            _put(self.wanted, array("I", wanted))
        except (OverflowError, TypeError, ValueError):
            check_step(program, limits, step)  # says what is wrong
            raise
        header[5], header[6] = len(wanted), len(copies)
        header[7] = step.sampling is not None
        if step.sampling is not None:
            self._write_rows(step.sampling)

    def _write_tables(self, step: Step) -> bool:
        """Whether every table covers its sequence, and all have room."""
        blocks, starts = array("i"), array("I")
        for (_, tokens, context, _), table in zip(step.seqs, step.block_tables, strict=True):
            count = -(-(context + tokens) // KV_BLOCK)
            if len(table) < count:
                return False
            starts.append(len(blocks))
            blocks += table if len(table) == count else table[:count]
        if 4 * len(blocks) > len(self.blocks):
            return False
        _put(self.tables, starts)
        _put(self.blocks, blocks)
        return True

    def _write_rows(self, rows: Sequence[SamplingRow]) -> None:
        data = bytearray()
        at = 0
        for row in rows:
            if row.penalized or row.bias or row.mask is not None:
                lists = _append_lists(data, row)
            else:
                lists = _NO_LISTS
            _SAMPLE_ROW.pack_into(
                self.rows,
                at,
                row.temperature,
                row.top_k,
                row.top_p,
                row.min_p,
                row.repetition_penalty,
                row.presence_penalty,
                row.frequency_penalty,
                row.top_logprobs,
                row.seed & 0xFFFFFFFF,
                row.seed >> 32,
                row.position,
                *lists,
            )
            at += _SAMPLE_ROW.size
        if len(data) > len(self.data):
            raise InvalidInput(
                f"penalized, bias and mask of the step take {len(data) // 4} words, expected "
                f"at most {len(self.data) // 4}; sample fewer rows a step"
            )
        self.data[: len(data)] = data

    def read(self, count: int) -> tuple[Sampled, ...]:
        """What the module sampled for ``count`` wanted rows."""
        sampled = self.sampled
        found = []
        for at in range(0, count * _SAMPLED_BYTES, _SAMPLED_BYTES):
            token, logprob, num_top, _ = _SAMPLED.unpack_from(sampled, at)
            if token < 0:
                found.append(Sampled(-1, float("nan")))
                continue
            first = at + _SAMPLED.size
            top = tuple(_TOP.iter_unpack(sampled[first : first + _TOP.size * num_top]))
            found.append(Sampled(token, logprob, top))
        return tuple(found)

    def release(self) -> None:
        for view in (
            self.tables,
            self.blocks,
            self.copies,
            self.wanted,
            self.rows,
            self.data,
            self.sampled,
        ):
            view.release()


_NO_LISTS = (0, 0, 0, 0, _NO_MASK)


def _put(view: memoryview, values: array[int]) -> None:
    view[: 4 * len(values)] = memoryview(values).cast("B")


def _append_lists(data: bytearray, row: SamplingRow) -> tuple[int, int, int, int, int]:
    """Add the lists of ``row`` to the sampling data: (penalized, its count, bias, .., mask)."""
    penalized_at = len(data) // 4
    data += memoryview(array("I", chain.from_iterable(row.penalized))).cast("B")
    bias_at = len(data) // 4
    for entry in row.bias:
        data += _BIAS.pack(*entry)
    mask_at = _NO_MASK
    if row.mask is not None:
        mask_at = len(data) // 4
        data += row.mask
    return penalized_at, len(row.penalized), bias_at, len(row.bias), mask_at
