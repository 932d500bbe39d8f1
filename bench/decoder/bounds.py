"""What a step has to read and to compute, whatever runs it."""

from __future__ import annotations

from dataclasses import dataclass

from runtime_py.executors.weights import row_bytes
from runtime_py.program import OpKind, Program, Rows

_WIDE_BITS = 16
_F32 = 4


@dataclass(frozen=True)
class Work:
    """Of one step.

    Attributes:
        read: bytes of weights, and of keys and values.
        operations: of the 8-bit dot product, a multiplication and an addition being two.
            Activations of 16 bits count twice.
    """

    read: int
    operations: int

    def seconds(self, read_per_s: float, operations_per_s: float) -> tuple[float, str]:
        """The least time the step can take, and what sets it."""
        reading, computing = self.read / read_per_s, self.operations / operations_per_s
        return (reading, "bytes") if reading >= computing else (computing, "operations")


def work_of(program: Program, tokens: int, wanted: int, cached: int) -> Work:
    """The work of a step's linear ops and its cache in f32.

    Args:
        tokens: rows of the step.
        wanted: rows that need logits.
        cached: tokens whose keys and values are read, of all sequences.
    """
    read = operations = 0
    for op in program.ops:
        if op.kind is OpKind.LINEAR:
            tensor = program.tensors[op.tensor("weight")]
            rows, columns = tensor.shape
            read += rows * sum(row_bytes(tensor))
            picked = program.slots[op.out].rows is Rows.PICKED
            dots = 2 if op.uint("activation_bits") == _WIDE_BITS else 1
            operations += 2 * rows * columns * dots * (wanted if picked else tokens)
        elif op.kind is OpKind.CACHE:
            read += 2 * _F32 * op.uint("kv_heads") * op.uint("head_dim") * cached
    return Work(read, operations)
