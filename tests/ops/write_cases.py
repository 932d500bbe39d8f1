"""Writes the op-case table as files, for hosts that are not Python.

    python -m tests.ops.write_cases DIR

makes ``DIR/index.json``, the list of names, and for each name a folder with
``program.bin``, ``weights.safetensors`` (an entry per tensor part) and ``case.json``::

    {"token_ids": [..], "seqs": [[first, num, context, skip], ..],
     "max_tokens": int, "max_seqs": int, "atol": float, "rtol": float,
     "expected": [[..], ..], "statuses": [..]}

``expected`` is the float64 reference's output, ``null`` where it is not finite; a value
passes within ``atol + rtol * |expected|``.

``DIR/generation`` has the cases of one step that only decoders need, laid out likewise, and
``DIR/steps`` those of a decoder's steps, whose ``case.json`` is::

    {"max_tokens": int, "max_seqs": int, "kv_blocks": int, "max_wanted": int,
     "kv_format": "f32" | "f16", "atol": float, "rtol": float,
     "steps": [{"token_ids": [..], "seqs": [..], "block_tables": [[..], ..],
                "copies": [[from, to], ..], "wanted": [..], "sampling": [{..}, ..] | null,
                "expected": [[..], ..], "sampled": [{..}, ..], "statuses": [..]}, ..]}

The steps run in order on one executor. A step that samples has ``sampled`` in place of
``expected``, an entry per wanted row: ``{"token_id", "logprob", "top": [[id, logprob], ..]}``,
where ``logprob`` is ``null`` when ``token_id`` is -1. A sampling row has the fields of
`SamplingRow`; its ``mask`` is a list of u32 or ``null``, its ``seed`` a decimal string.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from runtime_py.executors.base import Sampled, SamplingRow, Step
from tests.ops.cases import Case, StepsCase, all_cases, generation_cases, steps_cases
from tests.ops.cases.builder import Floats
from tests.ops.cases.steps import Output

Json = dict[str, object]


def rows_json(values: Floats) -> list[list[float | None]]:
    return [
        [float(np.float32(v)) if math.isfinite(v) else None for v in row] for row in values.tolist()
    ]


def case_json(case: Case) -> Json:
    step = case.step
    return {
        "token_ids": list(step.token_ids),
        "seqs": [list(row) for row in step.seqs],
        "max_tokens": len(step.token_ids),
        "max_seqs": len(step.seqs),
        "expected": rows_json(case.expected()),
        "atol": case.atol,
        "rtol": case.rtol,
        "statuses": list(case.statuses),
    }


def steps_json(case: StepsCase) -> Json:
    limits = case.limits
    done = zip(case.steps, case.expected(), case.statuses, strict=True)
    return {
        "max_tokens": limits.max_tokens,
        "max_seqs": limits.max_seqs,
        "kv_blocks": limits.kv_blocks,
        "max_wanted": limits.max_wanted,
        "kv_format": case.kv_format,
        "atol": case.atol,
        "rtol": case.rtol,
        "steps": [step_json(*one) for one in done],
    }


def step_json(step: Step, output: Output, statuses: bytes) -> Json:
    sampling = step.sampling
    made: Json = {
        "token_ids": list(step.token_ids),
        "seqs": [list(row) for row in step.seqs],
        "block_tables": [list(table) for table in step.block_tables],
        "copies": [list(pair) for pair in step.copies],
        "wanted": list(step.wanted),
        "sampling": None if sampling is None else [sampling_json(row) for row in sampling],
        "statuses": list(statuses),
    }
    if isinstance(output, list):
        made["sampled"] = [sampled_json(s) for s in output]
    else:
        made["expected"] = rows_json(output)
    return made


def sampling_json(row: SamplingRow) -> Json:
    fields: Json = row._asdict()
    fields["seed"] = str(row.seed)  # past what JSON's numbers hold
    if row.mask is not None:
        fields["mask"] = np.frombuffer(row.mask, "<u4").tolist()
    return fields


def sampled_json(sampled: Sampled) -> Json:
    token, logprob, top = sampled
    return {"token_id": token, "logprob": None if token < 0 else logprob, "top": top}


def write_cases(folder: Path) -> list[str]:
    """Write every case below ``folder`` and return the names of `all_cases`."""
    _write(folder / "generation", {n: (c, case_json(c)) for n, c in generation_cases().items()})
    _write(folder / "steps", {n: (c, steps_json(c)) for n, c in steps_cases().items()})
    return _write(folder, {n: (c, case_json(c)) for n, c in all_cases().items()})


def _write(folder: Path, cases: Mapping[str, tuple[Case | StepsCase, Json]]) -> list[str]:
    for name, (case, text) in cases.items():
        at = folder / name
        at.mkdir(parents=True, exist_ok=True)
        (at / "program.bin").write_bytes(case.program.encode())
        save_file(case.parts, str(at / "weights.safetensors"))
        (at / "case.json").write_text(json.dumps(text))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.json").write_text(json.dumps(list(cases)))
    return list(cases)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.ops.write_cases DIR")
    print(f"{len(write_cases(Path(sys.argv[1])))} cases in {sys.argv[1]}")
