"""Whatever a body holds: an answer in JSON, never the server's fault, and the server lives."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.serve.conftest import TIMEOUT_S, Server

PATHS = st.sampled_from(["/v1/embeddings", "/v1/chat/completions", "/v1/completions"])
BODIES: dict[str, Any] = {
    "input": ["hello", [2, 5, 3]],
    "encoding_format": "base64",
    "dimensions": 3,
    "truncate": "end",
    "prompt_name": "query",
    "prompt": "hi",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    "max_tokens": 2,
    "max_completion_tokens": 2,
    "n": 2,
    "stop": ["x"],
    "seed": 5,
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "logit_bias": {"5": 1},
    "logprobs": 2,
    "top_logprobs": 2,
    "stop_token_ids": [5],
    "ignore_eos": True,
    "cache_salt": "x",
    "traffic": "throughput",
    "deadline_ms": 1e6,
    "tenant": "x",
    "latency_target_ms": 5,
    "ttft_target_ms": 5,
    "tpot_target_ms": 5,
    "stream": False,
    "stream_options": {"include_usage": True},
    "tools": [{"type": "function"}],
    "tool_choice": "auto",
    "chat_template_kwargs": {"x": 1},
    "response_format": {"type": "text"},
    "echo": False,
}
TEXT = st.text(st.characters(codec=None), max_size=8)
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, -1, 1, 1e308, 2**53, "", "hi", "<|im_start|>", "\ud800"])
    | TEXT,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXT | st.sampled_from(["role", "content", "text", "__proto__"]), inner)
    ),
    max_leaves=8,
)
# Two or three fields of the API gone wrong, others right.
FIELDS = st.dictionaries(st.sampled_from(sorted(BODIES)), JUNK, min_size=1, max_size=3)
KEPT = st.sets(st.sampled_from(sorted(BODIES)))
NEEDED = {
    "/v1/embeddings": {"model": "embedder", "input": "hi"},
    "/v1/chat/completions": {"model": "decoder", "messages": BODIES["messages"], "max_tokens": 2},
    "/v1/completions": {"model": "decoder", "prompt": "hi", "max_tokens": 2},
}


def send(server: Server, path: str, body: bytes) -> tuple[int, bytes]:
    request = urllib.request.Request(server.url + path, body, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def check(status: int, answer: bytes) -> None:
    assert status in (200, 400, 404, 413), answer
    if status != 200:
        error = json.loads(answer)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        assert "\n" not in error["message"]
        assert len(error["message"]) < 1000


QUICK = settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@QUICK
@given(PATHS, FIELDS, KEPT)
@example("/v1/embeddings", {"input": "a\ud800"}, set())
@example("/v1/completions", {"logit_bias": {"": 5, "__proto__": 7}}, set())
@example("/v1/chat/completions", {"chat_template_kwargs": {"messages": 5}}, set())
@example("/v1/chat/completions", {"messages": [{"role": "user", "content": [None]}]}, set())
def test_fields_of_any_kind(
    node_server: Server, path: str, wrong: dict[str, Any], kept: set[str]
) -> None:
    known = {name: BODIES[name] for name in kept}
    body = {**known, **NEEDED[path], **wrong}
    check(*send(node_server, path, json.dumps(body).encode()))
    # With the fields of this endpoint alone, which get further.
    check(*send(node_server, path, json.dumps({**NEEDED[path], **wrong}).encode()))


@QUICK
@given(PATHS, st.binary(max_size=64) | JUNK.map(lambda v: json.dumps(v).encode()))
@example("/v1/embeddings", b'{"input": "\xff"}')
@example("/v1/chat/completions", b"[" * 100_000)
@example("/v1/chat/completions", b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}")
@example("/v1/chat/completions", b'{"tools":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}")
def test_bytes_of_any_kind(node_server: Server, path: str, body: bytes) -> None:
    status, answer = send(node_server, path, body)
    check(status, answer)
    assert status != 200


def test_the_server_is_well_after_all_that(node_server: Server) -> None:
    with urllib.request.urlopen(f"{node_server.url}/health", timeout=TIMEOUT_S) as response:
        assert json.load(response)["status"] == "ok"
