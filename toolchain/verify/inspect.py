"""``toolchain inspect``: what is in an artifact, as plain data."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from math import prod
from os import PathLike
from typing import Any

from runtime_py.artifact import Artifact
from runtime_py.executors.weights import row_bytes
from runtime_py.program import OP_SPECS, Activation, BinaryOp, NormMode, Op, OpKind, PoolMode

_ENUMS: dict[tuple[OpKind, str], type[Activation | NormMode | BinaryOp | PoolMode]] = {
    (OpKind.NORM, "mode"): NormMode,
    (OpKind.POOL, "mode"): PoolMode,
    (OpKind.BINARY, "op"): BinaryOp,
    (OpKind.LINEAR, "activation"): Activation,
    (OpKind.GLU, "activation"): Activation,
    (OpKind.UNARY, "activation"): Activation,
}


def inspect_artifact(path: str | PathLike[str]) -> dict[str, Any]:
    """The manifest's facts, files, slots, tensors, ops and sums, ready for JSON.

    Sizes and structure are checked, hashes are not (`verify_artifact` does that).

    Raises:
        ArtifactError: the artifact cannot be read.
    """
    artifact = Artifact.open(path, verify=False)
    manifest, program = artifact.manifest, artifact.program
    tensors = [
        {
            "name": t.name,
            "format": t.format.name,
            "shape": list(t.shape),
            "bytes": sum(row_bytes(t)) * t.shape[0],
        }
        for t in program.tensors
    ]
    by_format: Counter[str] = Counter()
    by_kind: Counter[str] = Counter()
    used: set[int] = set()
    for op in program.ops:
        for t in (t for t in op.tensors if t >= 0 and t not in used):
            used.add(t)
            by_kind[op.kind.name.lower()] += int(tensors[t]["bytes"])  # type: ignore[call-overload]
    for tensor in tensors:
        by_format[str(tensor["format"])] += int(tensor["bytes"])  # type: ignore[call-overload]
    facts = asdict(manifest)
    del facts["files"]
    return {
        **facts,
        "files": {name: entry.bytes for name, entry in manifest.files.items()},
        "total_bytes": manifest.total_bytes,
        "parameters": sum(prod(t.shape) for t in program.tensors),
        "bytes_by_format": dict(by_format.most_common()),
        "bytes_by_op": dict(by_kind.most_common()),
        "output_slot": program.output_slot,
        "slots": [{"rows": s.rows.name, "width": s.width} for s in program.slots],
        "tensors": tensors,
        "ops": [_op(artifact, op) for op in program.ops],
    }


def _op(artifact: Artifact, op: Op) -> dict[str, Any]:
    """An op with its inputs as slots, its tensors by name, its options by meaning."""
    spec, tensors = OP_SPECS[op.kind], artifact.program.tensors
    names = tuple(n.removeprefix("?") for n in spec.ins)
    options: dict[str, Any] = {}
    for n in spec.uints:
        enum = _ENUMS.get((op.kind, n))
        options[n] = enum(op.uint(n)).name.lower() if enum else op.uint(n)
    options |= {n: op.float(n) for n in spec.floats}
    if op.flags:
        options["flags"] = op.flags
    return {
        "kind": op.kind.name.lower(),
        "out": op.out,
        **({"out2": op.out2} if op.out2 >= 0 else {}),
        "ins": {n: op.slot(n) for n in names if op.slot(n) >= 0},
        "tensors": {
            n: tensors[op.tensor(n)].name
            for n in (t.removeprefix("?") for t in spec.tensors)
            if op.tensor(n) >= 0
        },
        "options": options,
    }
