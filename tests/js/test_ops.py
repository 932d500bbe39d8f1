"""The op-case table on every JavaScript host, wasm build and number of threads."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.js.hosts import Host
from tests.ops.backends import WASMTIME
from tests.ops.cases import all_cases, generation_cases


def outputs_of(host: Host, op_cases: Path, names: list[str], variant: str, threads: int) -> Any:
    folders = {name: host.location(op_cases / name) for name in names}
    return host.run("ops", {"folders": folders, "variant": variant, "threads": threads})


def is_quantized(name: str) -> bool:
    """Whether a case's weights are in a format whose arithmetic is fixed to the bit."""
    return any(fmt in name for fmt in ("i8", "i4", "s8"))


def runs_every_case(host: Host, variant: str) -> bool:
    """A page starts a worker for every case, and its engine, V8, is Node's: the whole table
    is run by the isolated page, on the build that it chooses by itself."""
    if not host.name.startswith("chromium"):
        return True
    return host.name == "chromium" and variant == host.variants[-1]


def one_of_each_kind(names: Iterable[str]) -> list[str]:
    """Every kernel once: with threads a case costs the start of a pool."""
    simple = ("unary", "binary", "glu", "pool", "normalize")
    kinds = {}
    for name in names:
        words = name.removeprefix("generation/").split("-")
        kinds[tuple(words[: 1 if words[0] in simple else 2])] = name
    return list(kinds.values())


@pytest.fixture(scope="session")
def node_outputs(node: Host, op_cases: Path, case_data: dict[str, Any]) -> dict[str, Any]:
    """Node 24's outputs on one thread, by wasm build."""
    return {v: outputs_of(node, op_cases, list(case_data), v, 1) for v in ("simd", "relaxed")}


def decode(output: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.frombuffer(base64.b64decode(output), np.float32)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("variant", ["simd", "relaxed"])
def test_E14_op_cases(
    host: Host,
    op_cases: Path,
    case_data: dict[str, Any],
    node_outputs: dict[str, Any],
    variant: str,
    threads: int,
) -> None:
    """Within tolerance of the float64 reference; and bit-equal to Node 24 on one thread.

    The table holds the extreme weights and activations on which engines' relaxed dot
    products could differ.
    """
    if variant not in host.variants:
        pytest.skip(f"{host.name} has no {variant} SIMD")
    if threads > host.max_threads:
        pytest.skip(f"{host.name} has no shared memory")
    every = threads == 1 and runs_every_case(host, variant)
    names = list(case_data) if every else one_of_each_kind(case_data)
    results = outputs_of(host, op_cases, names, variant, threads)
    same = node_outputs[variant]
    failures = []
    for name, result in results.items():
        case = case_data[name]
        expected_variant = variant + ("-threads" if threads > 1 else "")
        assert (result["variant"], result["threads"]) == (expected_variant, threads)
        expected = np.array(
            [[np.nan if v is None else v for v in row] for row in case["expected"]], np.float64
        ).ravel()
        for run in result["outputs"]:
            got = decode(run["output"]).astype(np.float64)
            finite = np.isfinite(expected)
            error = np.abs(got - expected) - (case["atol"] + case["rtol"] * np.abs(expected))
            if (
                got.shape != expected.shape
                or np.any(np.isfinite(got) != finite)
                or np.any(error[finite] > 0)
                or run["statuses"] != case["statuses"]
            ):
                failures.append(f"{name} at {run['threads']} threads misses the reference")
            if run["output"] != same[name]["outputs"][0]["output"]:
                failures.append(f"{name} at {run['threads']} threads differs from Node 24's bytes")
    assert failures == []


def test_variants_agree_on_quantized_cases(
    case_data: dict[str, Any], node_outputs: dict[str, Any]
) -> None:
    """Plain and relaxed builds give the same bits wherever the weights are quantized."""
    simd, relaxed = node_outputs["simd"], node_outputs["relaxed"]
    differing = {n for n in case_data if simd[n]["outputs"] != relaxed[n]["outputs"]}
    assert not set(filter(is_quantized, differing))


def test_wasmtime_gives_the_same_bits(
    op_cases: Path, case_data: dict[str, Any], node_outputs: dict[str, Any]
) -> None:
    """V8 and wasmtime agree on every case of the plain build and, where weights are
    quantized, of the relaxed one."""
    cases = {**all_cases(), **{f"generation/{n}": c for n, c in generation_cases().items()}}
    differing = []
    for variant in ("simd", "relaxed"):
        for name, case in cases.items():
            if variant == "relaxed" and not is_quantized(name):
                continue
            step = case.step
            executor = WASMTIME[variant](
                case.program, case.weights(), len(step.token_ids), len(step.seqs)
            )
            output = bytes(executor.run(step).output.cast("B"))
            executor.close()
            if base64.b64decode(node_outputs[variant][name]["outputs"][0]["output"]) != output:
                differing.append(f"{variant} {name}")
    assert differing == []
