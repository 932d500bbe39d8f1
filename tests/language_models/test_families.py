"""Every decoder family as an artifact: transformers and ONNX Runtime against our backends."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import runtime_py as rt
from runtime_py.artifact import Artifact
from runtime_py.executors.base import ExecutorLimits, SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.wasmtime import WasmtimeExecutor
from runtime_py.program import OpKind, TensorFormat
from tests.decoders import VOCAB, build_chat_decoder
from tests.lowering.generating import random_prompts, torch_logits
from toolchain.pipeline import build_artifact
from toolchain.prepare import prepare_model
from toolchain.prepare_decoder import PreparedDecoder
from toolchain.stages import Stages
from toolchain.verify.graph import GraphLogits
from toolchain.verify.verify import verify_artifact

FAMILIES = (
    "llama", "llama-llama3", "llama-linear", "mistral", "qwen2", "qwen2-yarn", "qwen2-dynamic",
    "qwen3", "gemma", "gemma2", "gemma3", "gpt2", "gpt-neox", "gpt-neox-serial", "phi",
)  # fmt: skip
LIMITS = ExecutorLimits(64, 4, 1, 1, kv_blocks=4, max_wanted=64)
PROMPT = random_prompts((70,), VOCAB)[0]
CHUNKS = (33, 1, 36)


@dataclass(frozen=True)
class Family:
    model: Path
    prepared: PreparedDecoder


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = tmp_path_factory.mktemp(request.param)
    model = build_chat_decoder(request.param, folder / "model")
    prepared = prepare_model(str(model), folder / "graph", Stages(None))
    assert isinstance(prepared, PreparedDecoder)
    prepared.__dict__["calibration"] = [PROMPT]  # little is enough here
    return Family(model, prepared)


def logits(make: Callable[..., Any], artifact: Artifact, **options: Any) -> NDArray[np.float32]:
    """Of `PROMPT`, in `CHUNKS`, [tokens, vocabulary]."""
    executor = make(artifact.program, artifact.weights, **options)
    rows, done = [], 0
    for count in CHUNKS:
        ids = array("i", PROMPT[done : done + count])
        table = array("i", [2, 0, 3])
        step = Step(ids, [SeqRow(0, count, done)], 1, [table], (), range(count), None)
        rows.append(np.array(executor.run(step).output))
        done += count
    executor.close()
    return np.concatenate(rows)


def wasm(artifact: Artifact) -> NDArray[np.float32]:
    return logits(
        WasmtimeExecutor.from_weights,
        artifact,
        max_tokens=64,
        max_seqs=4,
        kv_blocks=4,
        max_wanted=64,
    )


def test_f32_artifact_is_the_torch_model(family: Family, tmp_path: Path) -> None:
    report = build_artifact(family.prepared, tmp_path / "a", scheme="f32")
    assert report.numerics.passed
    (want,) = torch_logits(family.model, [PROMPT])
    got = wasm(Artifact.open(tmp_path / "a"))
    np.testing.assert_allclose(got, want, atol=1e-4 * max(1.0, np.abs(want).max()), rtol=0)


@pytest.mark.parametrize("scheme", ["i4", "i8"])
def test_E1_quantized_artifact_is_its_graph_in_onnx_runtime(
    family: Family, scheme: str, tmp_path: Path
) -> None:
    build_artifact(
        family.prepared,
        tmp_path / "a",
        scheme=scheme,
        allow_accuracy_loss=True,
        quantized_graph=tmp_path / "g",
    )
    want = GraphLogits(tmp_path / "g" / f"model.{scheme}.onnx")(PROMPT)
    size = max(1.0, float(np.abs(want).max()))
    artifact = Artifact.open(tmp_path / "a")
    formats = {t.format for t in artifact.program.tensors if len(t.shape) == 2}
    layers = TensorFormat.I4B32 if scheme == "i4" else TensorFormat.I8B32
    assert {layers, TensorFormat.S8B32} <= formats
    got = logits(
        ReferenceExecutor.from_weights, artifact, limits=LIMITS, quantize_activations=False
    )
    np.testing.assert_allclose(got, want, atol=2e-5 * size, rtol=0)
    bits = {o.uint("activation_bits") for o in artifact.program.ops if o.kind is OpKind.LINEAR}
    assert bits == {16}
    np.testing.assert_allclose(wasm(artifact), want, atol=2e-3 * size, rtol=0)


@pytest.mark.parametrize("family", ["qwen3", "gpt2"], indirect=True)
def test_an_artifact_verifies_and_chats(family: Family, tmp_path: Path) -> None:
    build_artifact(family.prepared, tmp_path / "a", scheme="i8", allow_accuracy_loss=True)
    assert min(verify_artifact(tmp_path / "a").goldens.values()) >= 0.9999
    with rt.load_sync(tmp_path / "a", executor="wasmtime") as model:
        reply = model.chat([{"role": "user", "content": "hi"}], max_tokens=5)
        assert reply.usage.prompt_tokens == 5
        assert 1 <= reply.usage.completion_tokens <= 5
