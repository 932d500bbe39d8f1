"""A decoder's artifact on every host: goldens, greedy texts, bad steps, bad options."""

from __future__ import annotations

from array import array
from pathlib import Path

from runtime_py.executors.wasmtime import WasmtimeExecutor
from runtime_py.program import TensorFormat
from tests.js.hosts import Host
from tests.js.tiny import sequences
from tests.ops.cases.decoder import VOCAB, decoder
from tests.ops.cases.encoder import weights_of
from tests.ops.generation import Request, generate

COUNT = 9
PROMPTS = [[i % VOCAB for i in ids] for ids in sequences()[:3]]


def on_wasmtime() -> list[list[int]]:
    """What each prompt generates alone."""
    program, parts = decoder(TensorFormat.S8B32, 16, window=40)
    executor = WasmtimeExecutor.from_weights(
        program, weights_of(program, parts), max_tokens=64, max_seqs=1, kv_blocks=4
    )
    texts = [generate(executor, [Request(array("i", p), COUNT)])[0] for p in PROMPTS]
    executor.close()
    return texts


def test_decoder(host: Host, tiny_decoder: Path) -> None:
    result = host.run(
        "decoder",
        {
            "artifact": host.location(tiny_decoder),
            "threads": host.max_threads,
            "prompts": PROMPTS,
            "count": COUNT,
        },
    )
    assert result["limits"] == {"maxTokens": 512, "maxSeqs": 4, "kvBlocks": 24, "maxWanted": 4}
    assert result["goldens"]["cases"] == len(sequences())
    assert result["goldens"]["worstCosine"] >= 0.9995
    assert result["together"] == result["alone"] == on_wasmtime()
    assert result["width"] == VOCAB
    assert result["sameBits"]
    assert result["nothing"] == [0, 0, len(PROMPTS)]
    cache = result["memoryBytes"]["cache"]
    assert 24 * 32 * 384 <= cache < 24 * 32 * 384 + 1024
    assert abs(result["halfCache"] - cache / 2) < 1024
    for name, words in {
        "a block too far": "block table 1 has block 26, expected 0 to 23",
        "a table short of blocks": "block table 0 has 0 blocks, expected at least 1 for 1 tokens",
        "rows wanted twice": "wanted row 1 is token 0",
        "a row too few to sample": "sampling has 1 rows, expected 3",
        "a temperature below zero": "sampling row 0: temperature is -1",
        "a copy onto itself": "copy 0 is to block 3",
    }.items():
        assert result["refused"][name]["name"] == "InvalidInput", name
        assert words in result["refused"][name]["message"], name
    for name, words in {
        "kvBlocks 4": "kvBlocks is 4, expected at least 5: a golden prompt needs that",
        "kvBlocks 0": "kvBlocks is 0, expected an integer 1 to",
        "kvBlocks 1.5": "kvBlocks is 1.5, expected an integer",
        "kvFormat q8": "kvFormat is q8, expected 'f32' or 'f16'",
        "maxWanted 0": "maxWanted is 0, expected an integer 1 to",
        "maxTokens 100": "maxTokens is 100, expected at least 150",
    }.items():
        assert result["options"][name] is not None, name
        assert result["options"][name]["name"] == "InvalidInput", name
        assert words in result["options"][name]["message"], name
