"""From an artifact with a decoder to answers, on every backend."""

from __future__ import annotations

import asyncio
import hashlib
import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import runtime_py as rt
from runtime_py.artifact import Artifact
from runtime_py.errors import ArtifactCorrupt, ArtifactMissing, InvalidInput
from runtime_py.executors.base import SeqRow, Step
from runtime_py.program import KV_BLOCK, TensorFormat
from tests.engine.tiny import run
from tests.generation.test_generate import PROMPT
from tests.generation.tiny import TEMPLATE, greedy, reference, tokenizer_json
from tests.ops.cases.decoder import POSITIONS, VOCAB, decoder


def write(
    folder: Path, *, shift: float = 0.0, golden: Sequence[int] = PROMPT, **changes: Any
) -> Path:
    """The tiny decoder as an artifact; ``shift`` falsifies its ``golden``."""
    folder.mkdir(exist_ok=True)
    program, parts = decoder(TensorFormat.F32)
    (folder / "program.bin").write_bytes(program.encode())
    (folder / "tokenizer.json").write_text(tokenizer_json())
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    save_file(parts, folder / "weights-00001-of-00001.safetensors")
    count = len(golden)
    blocks = [array("i", range(-(-count // KV_BLOCK)))]
    step = Step(array("i", golden), [SeqRow(0, count)], 1, blocks, (), [count - 1], None)
    logits = reference().run(step).output.tolist()[0]
    case = {
        "text": "a prompt",
        "token_ids": list(golden),
        "embedding": [x + shift * i for i, x in enumerate(logits)],
    }
    goldens = {"tolerance": {"cosine": 0.9999}, "cases": [case]}
    (folder / "goldens.json").write_text(json.dumps(goldens))
    files = {
        f.name: {"bytes": f.stat().st_size, "sha256": hashlib.sha256(f.read_bytes()).hexdigest()}
        for f in sorted(folder.iterdir())
        if f.name != "manifest.json"
    }
    generation = {
        "eos_token_ids": [0, 2],
        "bos_token": None,
        "eos_token": "<eos>",
        "max_context": POSITIONS,
        "kv_bytes_per_token": 384,
        "chat_template": "chat_template.jinja",
        **changes,
    }
    manifest = {
        "format": "volery",
        "format_version": 1,
        "created_by": "volery 0.1.0",
        "model": {"id": "tests/decoder", "architecture": "tiny", "license": None, "revision": None},
        "tasks": ["generate"],
        "limits": {
            "max_tokens": POSITIONS,
            "max_tokens_source": "test",
            "max_positions": POSITIONS,
            "vocab_size": VOCAB,
        },
        "generation": generation,
        "quantization": {"name": "f32", "linear": "F32", "embedding": "F32", "activations": "f32"},
        "memory": {"weights_bytes": 0, "bytes_per_token": 0, "bytes_per_seq": 0},
        "files": files,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("executor", ["reference", "wasmtime"])
def test_a_loaded_decoder_generates_and_chats(tmp_path: Path, executor: Any) -> None:
    folder = write(tmp_path / "a")

    async def test() -> None:
        async with await rt.load(folder, executor=executor, threads=2) as model:
            results = await asyncio.gather(
                *[
                    model.generate(PROMPT[i:], max_tokens=12, ignore_eos=True).result()
                    for i in range(8)
                ]
            )
            for i, result in enumerate(results):
                assert tuple(result.completions[0].token_ids) == greedy(PROMPT[i:], 12)
            answer = await model.chat([{"role": "user", "content": "hi"}], max_tokens=8)
            assert answer.finish_reason in ("stop", "length")
            assert model.info.dimensions == 0

    run(test)


def test_the_manifest_tells_how_to_generate(tmp_path: Path) -> None:
    generation = Artifact.open(write(tmp_path / "a")).manifest.generation
    assert generation is not None
    assert generation.eos_token_ids == (0, 2)
    assert (generation.bos_token, generation.eos_token) == ("", "<eos>")
    for change, error, words in (
        ({"eos_token_ids": [101]}, ArtifactCorrupt, "eos_token_ids"),
        ({"max_context": 401}, ArtifactCorrupt, "max_context"),
        ({"kv_bytes_per_token": 0}, ArtifactCorrupt, "kv_bytes_per_token"),
        ({"chat_template": "other.jinja"}, ArtifactMissing, r"other\.jinja"),
    ):
        with pytest.raises(error, match=words):
            Artifact.open(write(tmp_path / "a", **change))


def test_what_does_not_compute_the_goldens_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(ArtifactCorrupt, match="golden"):
            await rt.load(write(tmp_path / "a", shift=1.0), executor="reference")
        with pytest.raises(InvalidInput, match="kv_blocks"):
            await rt.load(write(tmp_path / "a"), executor="reference", kv_blocks=0)

    run(test)


def test_the_context_is_what_model_and_cache_hold(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")

    async def test() -> None:
        async with await rt.load(folder, executor="reference", kv_blocks=2) as model:
            with pytest.raises(rt.TooLong, match="context of 64"):
                model.generate([5] * 64)

    run(test)


@pytest.mark.parametrize("executor", ["reference", "wasmtime"])
def test_a_cache_in_half_precision_takes_half_the_memory(tmp_path: Path, executor: Any) -> None:
    folder = write(tmp_path / "a")

    async def test() -> None:
        size = 8 * 32 * 384  # eight blocks of f32
        blocks, texts = [], []
        for kv_format in ("f32", "f16"):
            async with await rt.load(
                folder, executor=executor, threads=1, kv_bytes=size, kv_format=kv_format, max_seqs=5
            ) as model:
                blocks.append(model.info.kv_blocks)
                assert model.info.max_step_seqs == 5
                result = await model.generate(PROMPT, max_tokens=6, ignore_eos=True, logprobs=True)
                texts.append(result.completions[0].logprobs)
        assert blocks == [8, 16]
        np.testing.assert_allclose(texts[0], texts[1], atol=0.02)
        assert texts[0] != texts[1]  # it is another format

    run(test)


def test_sizes_of_the_cache_are_checked(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")

    async def test() -> None:
        for options, words in (
            ({"kv_blocks": 4, "kv_bytes": 4096}, "both set"),
            ({"kv_bytes": 0}, "kv_bytes is 0"),
            ({"kv_bytes": 1.5}, "kv_bytes is 1.5"),
            ({"max_seqs": True}, "max_seqs is True"),
            ({"kv_format": "i8"}, "kv_format is 'i8'"),
        ):
            with pytest.raises(InvalidInput, match=words):
                await rt.load(folder, executor="reference", **options)
        async with await rt.load(folder, executor="reference", kv_bytes=1) as model:
            assert model.info.kv_blocks == 1  # whatever is asked for, a block
            assert (model.info.max_context, model.info.chat) == (32, True)

    run(test)


def test_a_cache_too_small_for_the_models_own_check(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", golden=(PROMPT * 2)[: KV_BLOCK + 1])
    for size in ({"kv_blocks": 1}, {"kv_bytes": 1}):
        with pytest.raises(InvalidInput, match="holds 32 tokens, expected at least 33"):
            rt.load_sync(folder, executor="reference", **size)
    rt.load_sync(folder, executor="reference", kv_blocks=2).close()


def test_scripts_need_no_await(tmp_path: Path) -> None:
    with rt.load_sync(write(tmp_path / "a"), executor="reference") as model:
        whole = model.generate(PROMPT, max_tokens=6, ignore_eos=True)
        assert tuple(whole.completions[0].token_ids) == greedy(PROMPT, 6)
        pieces = list(model.generate_stream(PROMPT, max_tokens=6, ignore_eos=True))
        assert [p.token_id for p in pieces] == whole.completions[0].token_ids
        for _ in model.chat_stream([{"role": "user", "content": "hi"}], max_tokens=50):
            break
        assert model.chat([{"role": "user", "content": "hi"}], max_tokens=2).usage.prompt_tokens > 4
