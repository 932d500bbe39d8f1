"""SmolLM2-135M-Instruct as artifacts: what they must reach, and independent oracles."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray

import runtime_py as rt
from runtime_py.artifact import Artifact, LanguageNumerics
from runtime_py.executors.base import ExecutorLimits, SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.wasmtime import WasmtimeExecutor
from tests.conftest import resolve_language_model
from toolchain.verify.graph import GraphLogits
from toolchain.verify.inspect import inspect_artifact

IDS = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411]
CHAT = [{"role": "user", "content": "What is the capital of France?"}]


def numerics_of(folder: Path) -> LanguageNumerics:
    numerics = Artifact.open(folder, verify=False).manifest.numerics
    assert isinstance(numerics, LanguageNumerics)
    return numerics


@pytest.mark.parametrize("name", ["i4", "i8"])
def test_precise_activations_meet_the_bars(
    smollm2_artifacts: Mapping[str, Path], name: str
) -> None:
    found = numerics_of(smollm2_artifacts[name])
    assert found.tokens == 512
    assert found.top1 >= 0.998
    assert abs(found.perplexity / found.perplexity_f32 - 1) <= 0.005
    pairs = zip(found.greedy_equal, found.greedy_tokens, strict=True)
    assert sum(equal == tokens for equal, tokens in pairs) >= 4
    assert found.greedy_tokens.count(40) >= 4
    assert (found.exact_tensors, found.rounded_tensors) == (121, 0)


def test_fast_activations_meet_the_bars(smollm2_artifacts: Mapping[str, Path]) -> None:
    found = numerics_of(smollm2_artifacts["i4-a8"])
    assert found.top1 >= 0.96
    assert abs(found.perplexity / found.perplexity_f32 - 1) <= 0.005
    manifest = Artifact.open(smollm2_artifacts["i4-a8"], verify=False).manifest
    assert manifest.quantization.activations == "i8 block 32, i16 in 16 of 121 linear ops"


def test_sizes_and_what_the_manifest_says(smollm2_artifacts: Mapping[str, Path]) -> None:
    for name, most in (("i4", 102e6), ("i4-a8", 102e6), ("i8", 153e6)):
        folder = smollm2_artifacts[name]
        assert sum(f.stat().st_size for f in folder.iterdir()) <= most, name
        assert all(f.stat().st_size <= 24 << 20 for f in folder.iterdir())
    manifest = Artifact.open(smollm2_artifacts["i4"], verify=False).manifest
    assert manifest.tasks == ("generate",)
    assert manifest.model.license == "apache-2.0"
    assert manifest.generation is not None
    assert manifest.generation.eos_token_ids == (0, 2)
    assert manifest.generation.max_context == 8192
    assert manifest.generation.kv_bytes_per_token == 30 * 2 * 3 * 64 * 4
    assert manifest.cost_profile is not None
    assert "kv_tokens" in manifest.cost_profile.coefficients_ns
    assert manifest.memory.bytes_per_wanted > 4 * 49152
    facts = inspect_artifact(smollm2_artifacts["i4"])
    # the embedding is the head, and stored once
    assert sum(t["shape"][0] == 49152 for t in facts["tensors"]) == 1
    assert facts["parameters"] == 134_515_008 + 32


@pytest.mark.parametrize("name", ["i4", "i8"])
def test_weights_are_those_of_the_file(smollm2_artifacts: Mapping[str, Path], name: str) -> None:
    """Every row, as the gguf package itself dequantizes it, to the bit."""

    def keys(matrix: NDArray[np.float32]) -> set[bytes]:
        rows = np.ascontiguousarray(matrix, np.float32) + np.float32(0)
        return {hashlib.blake2b(row.data, digest_size=16).digest() for row in rows}

    source = resolve_language_model()
    known: set[bytes] = set()
    for tensor in GGUFReader(str(source.gguf_path)).tensors:
        if len(tensor.shape) == 2:
            known |= keys(dequantize(tensor.data, tensor.tensor_type))
    artifact = Artifact.open(smollm2_artifacts[name], verify=False)
    for index, stored in enumerate(artifact.program.tensors):
        if len(stored.shape) == 2:
            assert keys(artifact.weights.numpy(index)) <= known, stored.name


def one_step(ids: Sequence[int]) -> Step:
    """A prompt whose every row of logits is wanted."""
    return Step(
        array("i", ids), [SeqRow(0, len(ids))], 1, [array("i", [0])], (), range(len(ids)), None
    )


def test_the_quantized_graph_in_onnx_runtime_is_the_program(
    smollm2_artifacts: Mapping[str, Path],
) -> None:
    folder = smollm2_artifacts["i4"]
    graph = folder.with_name("i4.onnx") / "model.i4.onnx"
    assert graph.stat().st_size <= 102e6
    want = GraphLogits(graph)(IDS)
    size = np.abs(want).max()
    artifact = Artifact.open(folder, verify=False)
    limits = ExecutorLimits(32, 1, 1, 1, kv_blocks=1, max_wanted=32)
    reference = ReferenceExecutor.from_weights(
        artifact.program,
        artifact.weights,
        dtype="float32",
        limits=limits,
        quantize_activations=False,
    )
    got = np.asarray(reference.run(one_step(IDS)).output)
    reference.close()
    np.testing.assert_allclose(got, want, atol=2e-5 * size, rtol=0)
    wasm = WasmtimeExecutor.from_weights(
        artifact.program, artifact.weights, max_tokens=32, max_seqs=1, kv_blocks=1, max_wanted=32
    )
    got = np.asarray(wasm.run(one_step(IDS)).output)
    wasm.close()
    np.testing.assert_allclose(got, want, atol=1e-3 * size, rtol=0)
    assert np.array_equal(got.argmax(axis=1), want.argmax(axis=1))


def test_i8_with_fast_activations_is_i4_to_the_bit(
    smollm2_artifacts: Mapping[str, Path],
) -> None:
    """The same codes in eight bits: what holds for one holds for the other."""
    fast, wide = (Artifact.open(smollm2_artifacts[name], verify=False) for name in ("i4-a8", "i8"))
    bits = [op.uints for op in fast.program.ops]
    ops = tuple(replace(op, uints=u) for op, u in zip(wide.program.ops, bits, strict=True))
    logits = []
    for program, weights in (
        (fast.program, fast.weights),
        (replace(wide.program, ops=ops), wide.weights),
    ):
        executor = WasmtimeExecutor.from_weights(
            program, weights, max_tokens=32, max_seqs=1, kv_blocks=1, max_wanted=32
        )
        logits.append(np.asarray(executor.run(one_step(IDS)).output).copy())
        executor.close()
    assert np.array_equal(*(x.view(np.uint32) for x in logits))


def test_it_answers(smollm2_artifacts: Mapping[str, Path]) -> None:
    with rt.load_sync(smollm2_artifacts["i4"], executor="wasmtime") as model:
        reply = model.chat(CHAT, max_tokens=40)
    (completion,) = reply.completions
    assert completion.text == "The capital of France is Paris."
    assert completion.finish_reason == "stop"
