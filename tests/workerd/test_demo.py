"""``demo/cloudflare`` as its readers start it."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.js.hosts import ROOT
from tests.js.npm import NpmPackage
from tests.workerd.conftest import wrangler_dev

TRIES = 5


def post(url: str, body: object) -> tuple[int, dict[str, Any]]:
    """The status and JSON of the answer. Wrangler may reload the Worker while it starts, and
    then asks for the request again."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    for _ in range(TRIES):
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            answer = error.read()
            if b"worker restarted mid-request" not in answer:
                return error.code, json.loads(answer)
    pytest.fail("wrangler restarts the Worker again and again")


def test_wrangler_dev(
    npm_package: NpmPackage, minilm_artifacts: Mapping[str, Path], tmp_path: Path
) -> None:
    project = tmp_path / "cloudflare"
    shutil.copytree(ROOT / "demo" / "cloudflare", project, ignore=shutil.ignore_patterns("node_*"))
    shutil.copytree(minilm_artifacts["i8"], project / "public" / "model")
    (project / "node_modules").symlink_to(npm_package.node_modules)
    goldens = json.loads((minilm_artifacts["i8"] / "goldens.json").read_text())
    texts = [case["text"] for case in goldens["cases"]]
    with wrangler_dev(project) as address:
        url = f"{address}/v1/embeddings"
        status, answer = post(url, {"model": "minilm", "input": texts})
        assert status == 200
        assert [d["index"] for d in answer["data"]] == list(range(len(texts)))
        for data, case in zip(answer["data"], goldens["cases"], strict=True):
            assert data["embedding"] == pytest.approx(case["embedding"], abs=0.02)
        assert answer["usage"]["total_tokens"] == sum(len(c["token_ids"]) for c in goldens["cases"])

        with ThreadPoolExecutor(8) as pool:
            together = list(
                pool.map(lambda text: post(url, {"model": "minilm", "input": text}), texts)
            )
        for (code, one), data in zip(together, answer["data"], strict=True):
            assert code == 200
            assert one["data"][0]["embedding"] == data["embedding"]

        status, answer = post(url, {"model": "minilm", "input": {}})
        assert status == 400
        assert "input" in answer["error"]["message"]

        with urllib.request.urlopen(f"{address}/metrics", timeout=300) as response:
            assert b"# TYPE" in response.read()
