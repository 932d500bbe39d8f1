"""Cloudflare's runtime: imported wasm, weights from its storage, one arena, 128 MB."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from runtime_py.artifact import Artifact
from runtime_py.executors.wasmtime import WasmtimeExecutor
from tests.js.tiny import packed

ISOLATE_BYTES = 128 << 20
TEXTS = [f"The {bird} crosses the sea." for bird in ("tern", "gull", "swift", "crane")]


def goldens(artifact: Path) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((artifact / "goldens.json").read_text())["cases"]
    return cases


def test_M7_goldens_from_every_store(
    workerd: Callable[..., Any], minilm_artifacts: Mapping[str, Path]
) -> None:
    """No compiling at run time; the bytes that wasmtime gives, whatever the weights came from."""
    artifact = Artifact.open(minilm_artifacts["i8"])
    sequences = [case["token_ids"] for case in goldens(minilm_artifacts["i8"])]
    executor = WasmtimeExecutor.from_weights(
        artifact.program, artifact.weights, max_tokens=512, max_seqs=64
    )
    expected = np.asarray(executor.run(packed(sequences)).output)
    executor.close()
    with workerd() as runtime:
        for store in ("assets", "r2", "kv"):
            (result,) = runtime.send([("/step", {"from": store, "sequences": sequences})])
            assert (result["variant"], result["pool"]) == ("relaxed", "inline")
            assert result["warnings"] == []
            got = np.array(result["output"], np.float32).reshape(expected.shape)
            assert got.tobytes() == expected.astype(np.float32).tobytes(), store
        (failure,) = runtime.send([("/broken", {})])
    assert failure["name"] == "ArtifactMissing"
    assert "nowhere/manifest.json" in failure["message"]


def test_M8_memory_of_an_isolate(workerd: Callable[..., Any]) -> None:
    """Eight requests at once share one model; all of it stays below an isolate's limit."""
    with workerd(stores=False) as runtime:
        runtime.send([("/idle", {})])
        before = runtime.peak_bytes
        requests = [("/embed", {"from": "assets", "texts": TEXTS * (i + 1)}) for i in range(8)]
        first, *others = runtime.send(requests)
        for _ in range(5):
            runtime.send(requests)
        used = runtime.peak_bytes - before
        (info,) = runtime.send([("/memory", {"from": "assets"})])
    assert info["total"] <= 64 << 20
    assert used <= ISOLATE_BYTES, used
    # In whatever batches they ran: the same vectors, bit for bit.
    for other in others:
        assert other["vectors"][: len(TEXTS)] == first["vectors"]


def test_concurrent_requests_share_steps(workerd: Callable[..., Any]) -> None:
    """What arrives while others wait for their step is batched; callers that leave harm nobody."""
    requests = [
        ("/embed", {"from": "assets", "texts": [text] * (1 + i)})
        for i in range(8)
        for text in TEXTS
    ]
    leaving = [(*request, True) for request in requests[::3]]
    with workerd(stores=False) as runtime:
        runtime.send(requests[:1])
        results = [r for r in runtime.send([*requests, *leaving]) if r is not None]
        again = runtime.send(requests)
    assert len(results) == len(again) == len(requests)
    # Those of a single text were computed together with others'.
    single = [*results[: len(TEXTS)], *again[: len(TEXTS)]]
    assert max(r["batchSeqs"] for r in single) > 1
    assert [r["vectors"] for r in results] == [r["vectors"] for r in again]
