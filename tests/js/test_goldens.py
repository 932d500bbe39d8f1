"""all-MiniLM-L6-v2 on every host: goldens pass, and the bytes are wasmtime's."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from runtime_py.artifact import Artifact
from runtime_py.executors.wasmtime import WasmtimeExecutor
from tests.js.hosts import Host
from tests.js.tiny import packed

SCHEMES = ("i8", "i4", "f32")


def golden_ids(artifact: Path) -> list[list[int]]:
    goldens = json.loads((artifact / "goldens.json").read_text())
    return [case["token_ids"] for case in goldens["cases"]]


@pytest.fixture(scope="session")
def wasmtime_outputs(minilm_artifacts: Mapping[str, Path]) -> dict[str, bytes]:
    """wasmtime's output for each scheme's golden texts as one step."""
    outputs = {}
    for scheme in SCHEMES:
        artifact = Artifact.open(minilm_artifacts[scheme])
        executor = WasmtimeExecutor.from_weights(
            artifact.program, artifact.weights, max_tokens=512, max_seqs=64
        )
        step = packed(golden_ids(minilm_artifacts[scheme]))
        outputs[scheme] = bytes(executor.run(step).output.cast("B"))
        executor.close()
    return outputs


@pytest.mark.parametrize("scheme", SCHEMES)
def test_E13_goldens(
    host: Host,
    minilm_artifacts: Mapping[str, Path],
    wasmtime_outputs: dict[str, bytes],
    scheme: str,
) -> None:
    """Quantized artifacts give wasmtime's bytes in every engine, build and thread count."""
    folder = minilm_artifacts[scheme]
    tolerance = json.loads((folder / "goldens.json").read_text())["tolerance"]["cosine"]
    args = {
        "artifact": host.location(folder),
        "options": {"threads": host.max_threads},
        "sequences": golden_ids(folder),
    }
    result = host.run("load", args)
    assert result["info"]["threads"] == host.max_threads
    assert result["goldens"]["worstCosine"] >= tolerance
    (output,) = {base64.b64decode(o) for o in result["outputs"]}
    if scheme == "f32":
        got, expected = (np.frombuffer(b, np.float32) for b in (output, wasmtime_outputs[scheme]))
        np.testing.assert_allclose(got, expected, atol=1e-5)
    else:
        assert output == wasmtime_outputs[scheme]
