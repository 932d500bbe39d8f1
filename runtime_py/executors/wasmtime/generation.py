"""What a decoder's step adds to a workspace (volery.h, from V_WS_TABLES on)."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, chain, repeat
from operator import attrgetter, gt, is_

from runtime_py.errors import InvalidInput
from runtime_py.executors.base import ExecutorLimits, Sampled, SamplingRow, Step
from runtime_py.executors.check import check_step
from runtime_py.executors.check_generation import check_copies, check_lists
from runtime_py.program import KV_BLOCK, Program

PARTS = range(5, 12)
"""The v_ws_parts of `GenerationParts`, in its order."""

_NUMBERS = attrgetter(
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
)
_BIAS = struct.Struct("<If")
_SAMPLED_WORDS = 44  # of a v_sampled: token, logprob, number of top ones, padding, these
_TOP = struct.Struct("<if")
_TOP_AT = 16
_new = tuple.__new__  # half the price of a NamedTuple's own constructor, once per token
_NO_MASK = 0xFFFFFFFF


@cache
def _sample_rows(count: int) -> struct.Struct:
    return struct.Struct("<" + "fIfffffI3I5I" * count)


def sampling_words(vocab_size: int, max_wanted: int) -> int:
    """Room for a mask and 1024 penalized or biased tokens in every wanted row."""
    return max_wanted * (-(-vocab_size // 32) + 3 * min(vocab_size, 1024))


@dataclass(frozen=True, slots=True)
class GenerationParts:
    """Views of a workspace's parts, as bytes, in the order of volery.h.

    Attributes:
        written: the sampling rows whose records lie in the workspace. The module only reads
            them, so rows that come again, as those of greedy streams do, stay there.
    """

    tables: memoryview
    blocks: memoryview
    copies: memoryview
    wanted: memoryview
    rows: memoryview
    data: memoryview
    sampled: memoryview
    written: list[SamplingRow] = field(default_factory=list, init=False)

    def write(
        self,
        header: memoryview,
        step: Step,
        rows: array[int],
        program: Program,
        limits: ExecutorLimits,
    ) -> None:
        """Put what ``step``, whose sequence rows lie flat in ``rows``, adds into the workspace.

        The module checks block ids, wanted rows and sampling rows, faster than here; what
        it cannot see is checked here. After a step's kernels every cache is cold, so there
        are few lines for each sequence.

        Raises:
            InvalidInput: the step is malformed.
        """
        wanted, sampling = step.wanted, step.sampling
        try:
            fine = len(wanted) <= limits.max_wanted and self._write_tables(
                step, rows, limits.kv_blocks
            )
            if step.copies:
                check_copies(limits.kv_blocks, step.copies)
                _put(self.copies, array("I", chain.from_iterable(step.copies)))
            if fine:
                _put(self.wanted, array("I", wanted))
            if fine and sampling is not None:
                fine = len(sampling) == len(wanted)
                if len(sampling) != len(self.written) or not all(map(is_, sampling, self.written)):
                    fine = fine and self._write_rows(sampling, program.vocab_size)
            if not fine:
                raise InvalidInput("the step does not fit its workspace")
        except (OverflowError, TypeError, ValueError, struct.error):
            check_step(program, limits, step)  # says what is wrong
            raise
        header[5], header[6] = len(wanted), len(step.copies)
        header[7] = sampling is not None

    def _write_tables(self, step: Step, rows: array[int], kv_blocks: int) -> bool:
        """Whether every table covers its sequence, and all have room."""
        tables = step.block_tables
        spans = zip(rows[1::4], rows[2::4], strict=True)
        sizes = [-(-(tokens + context) // KV_BLOCK) for tokens, context in spans]
        lengths = list(map(len, tables))
        if lengths != sizes:
            if len(lengths) != len(sizes) or any(map(gt, sizes, lengths)):
                return False
            tables = [table[:size] for table, size in zip(tables, sizes, strict=True)]
        starts = array("I", accumulate(sizes, initial=0))
        blocks = b"".join(tables)
        if max(sizes) > kv_blocks or not 4 * starts.pop() == len(blocks) <= len(self.blocks):
            return False
        _put(self.tables, starts)
        self.blocks[: len(blocks)] = blocks
        return True

    def _write_rows(self, rows: Sequence[SamplingRow], vocab_size: int) -> bool:
        """Whether the rows hold what their records can; the module checks the rest."""
        self.written.clear()
        data, values = bytearray(), list[float]()
        for i, row in enumerate(rows):
            # what the module takes for another number
            if row.top_p == 0 or row.top_k >> 31:
                return False
            lists = _NO_LISTS
            if row.penalized or row.bias or row.mask is not None:
                check_lists(i, row, vocab_size)
                lists = _append_lists(data, row)
            values += _NUMBERS(row)
            values += (row.seed & 0xFFFFFFFF, row.seed >> 32, row.position, *lists)
        _sample_rows(len(rows)).pack_into(self.rows, 0, *values)
        if len(data) > len(self.data):
            raise InvalidInput(
                f"penalized, bias and mask of the step take {len(data) // 4} words, expected "
                f"at most {len(self.data) // 4}; sample fewer rows a step"
            )
        self.data[: len(data)] = data
        self.written.extend(rows)
        return True

    def read(self, count: int) -> tuple[Sampled, ...]:
        """What the module sampled for ``count`` wanted rows."""
        if not count:
            return ()
        size = 4 * _SAMPLED_WORDS
        records = self.sampled[: count * size]
        tokens = records.cast("i")[::_SAMPLED_WORDS].tolist()
        logprobs: list[float] = [*records.cast("f")[1::_SAMPLED_WORDS]]
        num_top = records.cast("I")[2::_SAMPLED_WORDS].tolist()
        for row in [row for row, token in enumerate(tokens) if token < 0]:
            logprobs[row], num_top[row] = float("nan"), 0
        tops: Iterable[tuple[tuple[int, float], ...]] = repeat(())
        if any(num_top):
            firsts = range(_TOP_AT, len(records), size)
            tops = [
                tuple(_TOP.iter_unpack(records[first : first + _TOP.size * n]))
                for first, n in zip(firsts, num_top, strict=True)
            ]
        return tuple([_new(Sampled, row) for row in zip(tokens, logprobs, tops, strict=False)])

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
