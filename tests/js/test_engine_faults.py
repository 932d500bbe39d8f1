"""Aborts, closing, overload, deadlines and bad input in the JavaScript engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runtime_py.batching import replay
from tests.js.hosts import ProcessHost
from tests.js.small import write_decoder, write_embedder


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_embedder(tmp_path_factory.mktemp("embedder") / "artifact")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("decoder") / "artifact")


def ends(node: ProcessHost, artifact: Path, scenario: str, **options: Any) -> Any:
    arguments = {"scenario": scenario, "artifact": str(artifact), "options": options}
    return node.run("engine_faults", arguments)


def test_C6_aborted_calls_touch_nobody_else(node: ProcessHost, embedder: Path) -> None:
    found = ends(node, embedder, "abortEmbed")
    assert found["names"] == ["Aborted", "Aborted", "done"]
    assert found["rows"] == 200
    assert found["finished"]["aborted"] == 1  # the one that was early never got in


def test_closing_ends_what_waits(node: ProcessHost, embedder: Path) -> None:
    assert ends(node, embedder, "closeEmbed") == ["Aborted"] * 3
    assert ends(node, embedder, "drainEmbed") == ["done", "done"]


def test_C3_a_full_queue_sheds_and_long_lists_wait(node: ProcessHost, embedder: Path) -> None:
    found = ends(node, embedder, "overload", scheduler={"latency": {"maxQueueSize": 4}})
    assert found == {"names": ["Overloaded"], "hints": True, "served": 4, "rows": 30}


def test_deadlines(node: ProcessHost, embedder: Path) -> None:
    assert ends(node, embedder, "deadline") == ["DeadlineExceeded", "done"]


def test_streams_of_texts(node: ProcessHost, embedder: Path) -> None:
    assert ends(node, embedder, "stream") == {"row": 60, "equal": True, "idle": True}


BAD_TEXTS = """
InvalidType: texts is undefined
InvalidType: texts is number
InvalidType: texts[1] is number
InvalidInput: texts[1] holds "\\ud800" at character 0
InvalidInput: texts[1] has no token ids
InvalidInput: texts[1][1] is 9999
InvalidInput: texts[1][1] is 2.5
InvalidInput: dimensions is 0
InvalidInput: dimensions is 1000
InvalidInput: normalize is false
InvalidInput: dtype is "int8"
InvalidInput: truncate is "start"
InvalidInput: traffic is "bulk"
InvalidInput: deadlineMs is 0
InvalidInput: deadlineMs is NaN
InvalidInput: latencyTargetMs is -1
InvalidType: tenant is number
InvalidInput: promptName is "nothing", the model has query
InvalidInput: prompt and promptName
InvalidType: signal is object
InvalidInput: unknown option prmpt
InvalidType: options is null
TooLong: texts[0] has
InvalidInput: the model makes embeddings
InvalidInput: unknown option drian, expected one of drain
""".strip().splitlines()


def test_bad_texts_are_typed_errors(node: ProcessHost, embedder: Path) -> None:
    check_refusals(ends(node, embedder, "badTexts"), BAD_TEXTS)


def check_refusals(found: Any, expected: list[str]) -> None:
    assert found["idle"]
    assert len(found["refusals"]) == len(expected)
    for message, start in zip(found["refusals"], expected, strict=True):
        assert message is not None, start
        assert message.startswith(start), (message, start)
        assert "\n" not in message


def test_C15_left_streams_free_their_blocks(node: ProcessHost, decoder: Path) -> None:
    found = ends(node, decoder, "leaveStreams")
    assert found["aborted"] == "Aborted: the generation was aborted"
    assert found["seen"] >= 3
    assert (found["first"], found["rest"], found["names"]) == (0, True, ["Aborted", "Aborted"])
    assert found["finished"] == {"aborted": 4, "done": 1}
    assert found["idle"]


def test_closing_ends_streams(node: ProcessHost, decoder: Path) -> None:
    *names, late = ends(node, decoder, "closeStreams")
    assert names == ["Aborted", "Aborted"]
    assert late == "Aborted: the model is closed; load it again"


def test_a_stream_has_one_reader(node: ProcessHost, decoder: Path) -> None:
    assert ends(node, decoder, "twoReaders") == ["done", "InvalidInput"]


def test_C5_a_failing_hook_fails_its_own_request(node: ProcessHost, decoder: Path) -> None:
    found = ends(node, decoder, "mask")
    assert found["tokenIds"] == [10, 11, 12, 13]
    assert found["lengths"] == list(range(6))
    assert (found["broken"], found["throwing"]) == ("InvalidInput", "RangeError")
    assert found["others"] == 9
    assert found["idle"]


BAD_PROMPTS = """
InvalidType: prompt is undefined
InvalidInput: the prompt has no tokens
InvalidInput: the prompt has no tokens
InvalidInput: prompt[1] is -1
InvalidInput: prompt[1] is 5000
InvalidInput: the prompt holds "\\udc00" at character 1
TooLong: the prompt has 500 tokens
InvalidInput: maxTokens is 0
InvalidType: maxTokens is string
InvalidInput: temperature is -1
InvalidInput: temperature is NaN
InvalidInput: temperature is 1e-30, expected 0, or 0.000001 to 100
InvalidInput: topP is 0
InvalidInput: topK is 1000
InvalidInput: repetitionPenalty is 0
InvalidInput: repetitionPenalty is 0.00001, expected 0.001 to 100
InvalidType: logitBias is an array
InvalidInput: logitBias id is 5000
InvalidInput: logitBias has the key "a", expected token ids
InvalidInput: logitBias has the key ""
InvalidInput: logitBias has the key "0x5"
InvalidInput: logitBias has the key boolean
InvalidInput: logitBias has the id 5 twice
InvalidInput: logprobs is 21
InvalidInput: n is 0
InvalidInput: seed is -1
InvalidInput: seed is 9007199254740992
InvalidType: seed is string
InvalidInput: stop[0] has 0 characters
InvalidType: stop[0] is number
InvalidInput: stopTokenIds[0] is 5000
InvalidType: ignoreEos is number
InvalidType: logitsMask is number
InvalidInput: ttftTargetMs is fast
InvalidType: cacheSalt is number
InvalidInput: unknown option max_tokens
InvalidType: options is null
InvalidType: prompt is object
InvalidType: messages is string
InvalidInput: messages is empty
InvalidType: messages[0] is string
InvalidInput: messages[0] has role "robot"
InvalidType: messages[0] has content of type undefined
InvalidInput: messages[0] has a content part {"type":"image"}
InvalidInput: the chat template refuses these messages (no tools here)
InvalidInput: messages are nested deeper than 64 levels
InvalidInput: the chat template refuses these messages
InvalidType: options is null
InvalidInput: unknown option max_tokens
InvalidType: tools is number
InvalidInput: the chat template refuses these messages
InvalidType: templateOptions is an array
InvalidInput: the chat template refuses these messages
InvalidInput: tokenId is -1
InvalidInput: tokenId is 5000
InvalidInput: tokenId is NaN
InvalidType: tokenId is string
InvalidInput: the model generates text
""".strip().splitlines()


def test_bad_prompts_are_typed_errors(node: ProcessHost, decoder: Path) -> None:
    check_refusals(ends(node, decoder, "badPrompts"), BAD_PROMPTS)


def test_C10_too_many_samples_never_fit(node: ProcessHost, decoder: Path) -> None:
    found = ends(node, decoder, "neverFits")
    assert found == (
        "NeverFits: n is 100, expected at most 64: the sequences that may run at once or wait"
    )


def test_models_share_a_device(node: ProcessHost, embedder: Path, decoder: Path) -> None:
    found = node.run("shared_device", {"embedder": str(embedder), "decoder": str(decoder)})
    assert (found["vectors"], found["tokens"]) == (10, 20)
    assert found["lanes"] == ["small/embed", "tests/decoder/generate"]
    assert (found["refused"], found["closed"]) == ("InvalidInput", "Aborted")
    assert found["own"].startswith("InvalidInput: threads, scheduler and recorder belong")
    assert replay(found["lines"]) == found["digest"]  # what JavaScript did, Python does


@pytest.mark.parametrize("pool", ["threads", "instances"])
def test_calls_survive_a_worker_that_dies(
    node: ProcessHost, embedder: Path, decoder: Path, pool: str
) -> None:
    """Texts are tried again on the pool's next backend; a generation's cache is gone, and the
    next one is told what it would have been told before."""
    arguments = {"embedder": str(embedder), "decoder": str(decoder), "pool": pool}
    found = node.run("engine_lost", arguments)
    assert found["equal"]
    assert found["started"]
    assert set(found["finished"]) == {"done"}
    assert (found["lost"], found["again"]) == ("DeviceLost", True)


def test_M1_an_engine_leaves_nothing_behind(
    node: ProcessHost, embedder: Path, decoder: Path
) -> None:
    """Load, 100 calls of which many are aborted, close: the heap is flat, no worker is left."""
    command = [node.command[0], "--expose-gc", *node.command[1:]]
    program = ProcessHost(node.name, command, node.variants)
    arguments = {"embedder": str(embedder), "decoder": str(decoder), "cycles": 20, "calls": 100}
    found = program.run("engine_soak", arguments)
    heaps = found["heaps"]
    assert max(heaps[-5:]) - max(heaps[5:10]) < 1 << 20, [h >> 10 for h in heaps]
    assert found["workers"] == 0
    assert found["finished"] > 500
