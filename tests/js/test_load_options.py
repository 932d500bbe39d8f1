"""JavaScript's `load` refuses wrong options before anything is fetched or started."""

from __future__ import annotations

from tests.js.hosts import ProcessHost

REFUSALS = """
InvalidType: options is null, expected an object
InvalidType: options is string, expected an object
InvalidInput: unknown option thread, expected one of signal
InvalidInput: threads is 1000000000, expected a whole number from 1 to 64
InvalidType: threads is string
InvalidInput: threads is NaN
InvalidType: signal is object, expected an AbortSignal
InvalidType: onProgress is number, expected a function
InvalidInput: share is 0
InvalidType: recorder is object, expected a TraceRecorder
InvalidType: tokenizer is object, expected one that encodes
InvalidType: cache is boolean, expected a store or false
InvalidType: worker is number, expected a URL or a function
InvalidType: wasm is number, expected an object
InvalidInput: unknown option wasm.varaint, expected variant
InvalidInput: threads is 1000000000, expected a whole number from 1 to 64
""".strip().splitlines()


def test_wrong_options_of_load(node: ProcessHost) -> None:
    found = node.run("load_options", {})
    assert len(found["refusals"]) == len(REFUSALS)
    for message, start in zip(found["refusals"], REFUSALS, strict=True):
        assert message is not None, start
        assert message.startswith(start), (message, start)
        assert "\n" not in message
    assert (found["good"], found["opened"]) == ("ArtifactMissing", 1)
