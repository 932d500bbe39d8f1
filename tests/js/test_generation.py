"""A decoder's steps on every JavaScript host: the float64 reference's tokens and logits, and
wasmtime's bits."""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from runtime_py.executors.base import ModelExecutor, Step, StepResult
from runtime_py.executors.wasmtime import WasmtimeExecutor
from runtime_py.program import TensorFormat
from tests.js.hosts import Host
from tests.js.test_ops import decode, outputs_of
from tests.ops.backends import WASMTIME_STEPS
from tests.ops.cases import steps_cases
from tests.ops.cases.decoder import decoder
from tests.ops.cases.encoder import weights_of
from tests.ops.generation import generate
from tests.ops.test_generation import LIMITS, requests
from tests.ops.write_cases import step_json

Json = dict[str, Any]
F = TensorFormat
KINDS = ((F.F32, 0, "f32"), (F.S8B32, 16, "f32"), (F.I8B32, 16, "f16"), (F.I4B32, 8, "f32"))


def result_json(result: StepResult, threads: int) -> Json:
    """A result of wasmtime's as ``programs/ops.js`` writes a host's, to the bit."""

    def text(values: memoryview | bytes) -> str:
        return base64.b64encode(values).decode()

    def floats(values: list[float]) -> str:
        return text(array("f", values).tobytes())

    made: Json = {
        "threads": threads,
        "output": text(result.output.tobytes()),
        "statuses": list(result.statuses),
    }
    if result.sampled:
        made["sampled"] = {
            "tokenIds": [s.token_id for s in result.sampled],
            "logprobs": floats([s.logprob for s in result.sampled]),
            "topIds": [[i for i, _ in s.top] for s in result.sampled],
            "topLogprobs": [floats([v for _, v in s.top]) for s in result.sampled],
        }
    return made


def same_bits(got: list[Json], wanted: list[Json]) -> bool:
    """Whether runs of the same steps gave the same, on however many threads."""
    plain = [{**r, "threads": 0} for r in got]
    return plain == [{**r, "threads": 0} for r in wanted]


@pytest.fixture(scope="module")
def wasmtime_results() -> dict[str, list[Json]]:
    """What wasmtime computes; its builds are known to agree to the bit on these cases."""
    results = {}
    for name, case in steps_cases().items():
        executor = WASMTIME_STEPS["simd"](case)
        results[f"steps/{name}"] = [result_json(executor.run(s), 1) for s in case.steps]
        executor.close()
    return results


def misses(case: Json, run: Json, step: Json) -> bool:
    """Whether ``run`` is not what the reference computed."""
    if run["statuses"] != step["statuses"]:
        return True
    if "sampled" in step:
        wanted, got = step["sampled"], run["sampled"]
        finite = [s for s in wanted if s["token_id"] >= 0]
        logprobs = [v for v in decode(got["logprobs"]) if not np.isnan(v)]
        return (
            [s["token_id"] for s in wanted] != got["tokenIds"]
            or [[i for i, _ in s["top"]] for s in wanted] != got["topIds"]
            or len(logprobs) != len(finite)
            or not np.allclose(logprobs, [s["logprob"] for s in finite], atol=case["atol"], rtol=0)
        )
    wanted_rows = np.array(
        [[np.nan if v is None else v for v in row] for row in step["expected"]], np.float64
    ).ravel()
    got_rows = decode(run["output"]).astype(np.float64)
    finite_rows = np.isfinite(wanted_rows)
    return got_rows.shape != wanted_rows.shape or not np.allclose(
        got_rows[finite_rows], wanted_rows[finite_rows], case["rtol"], case["atol"]
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_E14_steps(
    host: Host,
    op_cases: Path,
    steps_data: dict[str, Json],
    wasmtime_results: dict[str, list[Json]],
    threads: int,
) -> None:
    """Cache, wanted rows and sampling: the reference's tokens, and wasmtime's bits."""
    if threads > host.max_threads:
        pytest.skip(f"{host.name} has no shared memory")
    # With threads a case costs the start of a pool; a page, three requests to the server,
    # and its engine is that of Node 24.
    every = threads == 1 and not host.name.startswith("chromium")
    names = list(steps_data)[:: 1 if every else 5]
    variants = host.variants if every else host.variants[-1:]
    failures = []
    for variant in variants:
        for name, result in outputs_of(host, op_cases, names, variant, threads).items():
            case, runs = steps_data[name], result["outputs"]
            steps = case["steps"]
            for k in range(threads):
                part = runs[k * len(steps) : (k + 1) * len(steps)]
                assert [r["threads"] for r in part] == [k + 1] * len(steps)
                if any(misses(case, *pair) for pair in zip(part, steps, strict=True)):
                    failures.append(f"{name}, {variant}, {k + 1} threads misses the reference")
                if not same_bits(part, wasmtime_results[name]):
                    failures.append(f"{name}, {variant}, {k + 1} threads differs from wasmtime")
    assert failures == []


class Recorder:
    """Runs steps on an executor and keeps them with their results."""

    def __init__(self, executor: ModelExecutor) -> None:
        self._executor = executor
        self.name, self.limits = executor.name, executor.limits
        self.steps: list[tuple[Step, StepResult]] = []

    def run(self, step: Step) -> StepResult:
        result = self._executor.run(step)
        self.steps.append((step, result))
        return result

    def submit(self, step: Step, done: Callable[[StepResult | BaseException], None]) -> None:
        self._executor.submit(step, done)

    def close(self) -> None:
        self._executor.close()


def write_generations(folder: Path, fmt: F, bits: int, kv_format: Any) -> list[Json]:
    """32 requests that join, leave and are preempted, generated on wasmtime: the steps as a
    case below ``folder``; their results."""
    program, parts = decoder(fmt, bits, window=40)
    recorder = Recorder(
        WasmtimeExecutor.from_weights(
            program,
            weights_of(program, parts),
            # Fused multiply-add is part of the f32 kernels of the relaxed build alone.
            variant="simd",
            max_tokens=LIMITS.max_tokens,
            max_seqs=LIMITS.max_seqs,
            kv_blocks=LIMITS.kv_blocks,
            max_wanted=LIMITS.max_seqs,
            kv_format=kv_format,
        )
    )
    preempt = {(4, 0), (9, 0), (9, 7), (12, 20), (13, 20)}
    generate(recorder, requests(), chunk=16, preempt=preempt)
    recorder.close()
    folder.mkdir()
    (folder / "program.bin").write_bytes(program.encode())
    save_file(parts, str(folder / "weights.safetensors"))
    case = {
        "max_tokens": LIMITS.max_tokens,
        "max_seqs": LIMITS.max_seqs,
        "kv_blocks": LIMITS.kv_blocks,
        "max_wanted": LIMITS.max_seqs,
        "kv_format": kv_format,
        "steps": [step_json(step, list(r.sampled), r.statuses) for step, r in recorder.steps],
    }
    (folder / "case.json").write_text(json.dumps(case))
    return [result_json(result, 1) for _, result in recorder.steps]


@pytest.fixture(scope="module")
def generations(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, dict[str, list[Json]]]:
    root = tmp_path_factory.mktemp("generations")
    return root, {kind[0].name: write_generations(root / kind[0].name, *kind) for kind in KINDS}


def test_G5_32_generations_joining_leaving_and_preempted(
    host: Host, generations: tuple[Path, dict[str, list[Json]]]
) -> None:
    """Wasmtime's tokens and logprobs to the bit, in every engine, build and thread count."""
    if host.name == "chromium-not-isolated":
        pytest.skip("isolation changes nothing about the engine")
    root, wanted = generations
    for variant in host.variants:
        # Without quantized weights the relaxed build may fuse what the plain one rounds.
        names = [n for n in wanted if variant == "simd" or n != "F32"]
        results = outputs_of(host, root, names, variant, host.max_threads)
        for name in names:
            steps, runs = wanted[name], results[name]["outputs"]
            assert len(steps) > 15
            for k in range(host.max_threads):
                part = runs[k * len(steps) : (k + 1) * len(steps)]
                assert same_bits(part, steps), f"{name}, {variant}, {k + 1} threads"
