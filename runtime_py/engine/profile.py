"""Where the cost model starts: the artifact's measured profile, or an estimate."""

from __future__ import annotations

from collections.abc import Mapping

from runtime_py.batching import CostProfile
from runtime_py.program import OpKind, Program

_NS_PER_MAC = 1 / 40  # a middling core; the model corrects itself after the first steps


def cost_profile(program: Program, measured: Mapping[str, float] | None = None) -> CostProfile:
    """A `CostProfile` for one thread.

    Args:
        program: its multiply-adds per token and per query-key pair give the estimate.
        measured: ``coefficients_ns`` of the artifact's profile (``constant``, ``num_seqs``,
            ``num_tokens``, ``sum_len_sq``, ``kv_tokens``); what it has replaces the estimate.
    """
    per_token = 0
    per_pair = 0
    for op in program.ops:
        if op.kind is OpKind.LINEAR:
            rows, cols = program.tensors[op.tensor("weight")].shape
            per_token += rows * cols
        elif op.kind is OpKind.ATTENTION:
            per_pair += 2 * op.uint("heads") * op.uint("head_dim")
    default = CostProfile()
    measured = measured or {}
    return CostProfile(
        step_ns=measured.get("constant", default.step_ns),
        thread_ns=measured.get("threads", default.thread_ns),
        seq_ns=measured.get("num_seqs", default.seq_ns),
        token_ns=measured.get("num_tokens", max(per_token * _NS_PER_MAC, 100.0)),
        pair_ns=measured.get("sum_len_sq", max(per_pair * _NS_PER_MAC, 1.0)),
        kv_ns=measured.get("kv_tokens", default.kv_ns),
    )
