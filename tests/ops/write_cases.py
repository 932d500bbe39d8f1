"""Writes the op-case table as files, for hosts that are not Python.

    python -m tests.ops.write_cases DIR

makes ``DIR/index.json``, the list of names, and for each name a folder with
``program.bin``, ``weights.safetensors`` (an entry per tensor part) and ``case.json``::

    {"token_ids": [..], "seqs": [[first, num, context, skip], ..],
     "max_tokens": int, "max_seqs": int, "atol": float, "rtol": float,
     "expected": [[..], ..], "statuses": [..]}

``expected`` is the float64 reference's output, ``null`` where it is not finite; a value
passes within ``atol + rtol * |expected|``.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tests.ops.cases import Case, all_cases


def case_json(case: Case) -> dict[str, object]:
    step = case.step
    return {
        "token_ids": list(step.token_ids),
        "seqs": [list(row) for row in step.seqs],
        "max_tokens": len(step.token_ids),
        "max_seqs": len(step.seqs),
        "expected": [
            [float(np.float32(v)) if math.isfinite(v) else None for v in row]
            for row in case.expected().tolist()
        ],
        "atol": case.atol,
        "rtol": case.rtol,
        "statuses": list(case.statuses),
    }


def write_cases(folder: Path) -> list[str]:
    """Write every case below ``folder`` and return their names."""
    names = []
    for name, case in all_cases().items():
        at = folder / name
        at.mkdir(parents=True, exist_ok=True)
        (at / "program.bin").write_bytes(case.program.encode())
        save_file(case.parts, str(at / "weights.safetensors"))
        (at / "case.json").write_text(json.dumps(case_json(case)))
        names.append(name)
    (folder / "index.json").write_text(json.dumps(names))
    return names


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.ops.write_cases DIR")
    print(f"{len(write_cases(Path(sys.argv[1])))} cases in {sys.argv[1]}")
