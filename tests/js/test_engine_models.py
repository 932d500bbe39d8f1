"""The JavaScript engine on the real models: texts in, Python's vectors and words out."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.js.hosts import ProcessHost
from tests.js.test_engine import python_embeds, python_generates
from tests.parity.texts import EDGE_CASES, docstring_sentences

QUESTIONS = ("What is the capital of France?", "Count to five.", "Name a bird that swims.")


def test_minilm(node: ProcessHost, minilm_artifacts: Mapping[str, Path]) -> None:
    """From text to vector: tokenizer, truncation, batches, bits."""
    artifact = minilm_artifacts["i8"]
    texts = [t for t in (*EDGE_CASES, *docstring_sentences()[::60]) if len(t) < 2000]
    calls: list[Any] = [(texts, {}), (texts[5], {}), (texts[:3], {"traffic": "throughput"})]
    answer = node.run(
        "embed", {"artifact": str(artifact), "calls": calls, "options": {"threads": 2}}
    )
    for found, truth in zip(answer["results"], python_embeds(artifact, calls), strict=True):
        rows = np.atleast_2d(truth.vectors)
        assert [base64.b64decode(v) for v in found["vectors"]] == [row.tobytes() for row in rows]
        assert found["tokenCounts"] == truth.token_counts
        assert found["truncated"] == truth.truncated


def test_smollm2(node: ProcessHost, smollm2_artifacts: Mapping[str, Path]) -> None:
    """Chats and a plain prompt at once: the words that Python gets for each alone."""
    artifact = smollm2_artifacts["i4"]
    calls: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": question}]} for question in QUESTIONS
    ]
    calls.append({"prompt": "Once upon a time"})
    python = [{**call, "python": {"max_tokens": 16}} for call in calls]
    sent = [{**call, "options": {"maxTokens": 16}} for call in calls]
    answer = node.run("generate", {"artifact": str(artifact), "calls": sent})
    expected = python_generates(artifact, python)
    for found, truth in zip(answer["results"], expected, strict=True):
        assert found["text"] == truth.text
        assert found["completions"][0]["tokenIds"] == truth.completions[0].token_ids
        assert found["finishReason"] == truth.finish_reason
        assert found["usage"]["promptTokens"] == truth.usage.prompt_tokens
    assert answer["results"][0]["text"] == "The capital of France is Paris."
