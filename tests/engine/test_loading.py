"""`load`, `load_sync`: artifacts become models, or typed errors."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import runtime_py as rt
from runtime_py import loading
from runtime_py.batching import TraceRecorder, replay
from tests.engine.tiny import WIDTH, Gate, ids_of, run, truth, write_artifact


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("artifact") / "tiny")


@pytest.mark.parametrize("executor", ["auto", "wasmtime", "reference"])
def test_loads_and_embeds(artifact: Path, executor: str) -> None:
    async def test() -> None:
        async with await rt.load(artifact, executor=executor, threads=2) as model:  # type: ignore[arg-type]
            for text in ("hello", "", "a longer text than the others"):
                expected = truth(ids_of(text))
                np.testing.assert_allclose(await model.embed(text), expected, atol=2e-6)
            info = model.info
            assert (info.id, info.dimensions, info.normalized) == ("tests/tiny", WIDTH, True)
            assert info.executor == ("reference" if executor == "reference" else "wasmtime")
            assert info.threads == (1 if executor == "reference" else 2)
            assert info.prompts == {"query": "q: "}
            assert info.max_step_tokens >= info.max_tokens == 32

    run(test)


def test_the_same_bytes_for_any_batch_and_thread_count_on_wasm(artifact: Path) -> None:
    texts = [f"text {i} " * (1 + i % 7) for i in range(300)]

    async def test() -> None:
        seen = []
        for threads in (1, 2):
            async with await rt.load(artifact, threads=threads) as model:
                whole = await model.embed(texts, traffic="throughput")
                alone = await asyncio.gather(*[model.embed(t) for t in texts[:60]])
                assert [v.tobytes() for v in alone] == [v.tobytes() for v in whole[:60]]
                seen.append(whole.tobytes())
        assert seen[0] == seen[1]

    run(test)


def test_E10_E13_goldens_that_miss_refuse_the_backend(tmp_path: Path) -> None:
    folder = write_artifact(tmp_path / "bad", golden_shift=0.05)

    async def test() -> None:
        gate = Gate()
        for executor in ("wasmtime", "reference", gate):
            with pytest.raises(rt.ArtifactCorrupt, match="cosine"):
                await rt.load(folder, executor=executor)  # type: ignore[arg-type]
        assert gate.closed == 0  # it still belongs to the caller
        gate.close()

    run(test)


def test_E10_missing_or_corrupt_files_are_typed(tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(rt.ArtifactMissing):
            await rt.load(tmp_path / "nowhere")
        folder = write_artifact(tmp_path / "m")
        shard = folder / "weights-00001-of-00001.safetensors"
        data = bytearray(shard.read_bytes())
        data[-5] ^= 1
        shard.write_bytes(data)
        with pytest.raises(rt.ArtifactCorrupt):
            await rt.load(folder)
        shard.unlink()
        with pytest.raises(rt.ArtifactMissing):
            await rt.load(folder)

    run(test)


def test_arguments_outside_their_range(artifact: Path) -> None:
    async def test() -> None:
        for name in ("kv_blocks", "kv_bytes", "kv_format"):
            with pytest.raises(rt.InvalidInput, match=f"{name} is set.*embeddings"):
                await rt.load(artifact, **{name: "f16" if name == "kv_format" else 5})  # type: ignore[arg-type]
        with pytest.raises(rt.InvalidInput, match="kv_format is 'q8'"):
            await rt.load(artifact, kv_format="q8")  # type: ignore[arg-type]
        for share in (0, True, 1.5, 1001):
            with pytest.raises(rt.InvalidInput, match="share"):
                await rt.load(artifact, share=share)  # type: ignore[arg-type]
        with pytest.raises(rt.InvalidInput, match="max_seqs"):
            await rt.load(artifact, max_seqs=0)
        with pytest.raises(rt.InvalidInput, match=r"torch_device.*does not use torch"):
            await rt.load(artifact, torch_device="cpu")
        for threads in (0, -1, 1.5, True, 1000):
            with pytest.raises(rt.InvalidInput, match="threads"):
                await rt.load(artifact, threads=threads)  # type: ignore[arg-type]
        with pytest.raises(rt.InvalidType, match="'tpu'"):
            await rt.load(artifact, executor="tpu")  # type: ignore[arg-type]

    run(test)


def test_a_file_that_is_no_tokenizer_is_typed(tmp_path: Path) -> None:
    folder = write_artifact(tmp_path / "m", tokenizer=b"\xff\xfe{}")

    async def test() -> None:
        with pytest.raises(rt.ArtifactCorrupt, match=r"tokenizer\.json"):
            await rt.load(folder)

    run(test)


def test_a_trace_that_cannot_be_opened_is_typed(artifact: Path, tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(rt.InvalidInput, match="cannot be written"):
            await rt.load(artifact, trace=tmp_path / "no" / "such" / "folder.jsonl")

    run(test)


def test_cancelled_loading_closes_what_it_made(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Gate] = []
    started, go_on = threading.Event(), threading.Event()

    def build(*args: object) -> Gate:
        started.set()
        go_on.wait(60)
        made.append(Gate())
        return made[0]

    monkeypatch.setattr(loading, "make_executor", build)

    async def test() -> None:
        task = asyncio.create_task(rt.load(artifact))
        while not started.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        while not (made and made[0].closed):
            await asyncio.sleep(0.001)

    run(test)


def test_trace_of_a_session_replays(artifact: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"

    async def test() -> None:
        recorder = TraceRecorder()
        async with await rt.load(artifact, trace=recorder) as model:
            await model.embed("x")
        assert len(recorder.digest) == 64
        async with await rt.load(artifact, threads=2, trace=path) as model:
            await asyncio.gather(*[model.embed(["a"] * (i % 5)) for i in range(40)])
            with pytest.raises(rt.DeadlineExceeded):
                await model.embed(["slow"] * 2000, deadline_ms=0.001)
            await model.embed(["b"] * 1000, traffic="throughput")

    run(test)
    with path.open() as lines:
        assert len(replay(lines)) == 64


def test_a_prompt_that_pooling_leaves_out(tmp_path: Path) -> None:
    folder = write_artifact(tmp_path / "m", include_prompt=False, default_prompt_name="query")

    async def test() -> None:
        async with await rt.load(folder) as model:
            expected = truth(ids_of("q: hello"), pool_skip=3)
            np.testing.assert_allclose(await model.embed("hello"), expected, atol=2e-6)

    run(test)


def test_load_sync_for_scripts(artifact: Path) -> None:
    before = threading.active_count()
    with rt.load_sync(artifact, threads=1) as model:
        vector = model.embed("hello")
        np.testing.assert_allclose(vector, truth(ids_of("hello")), atol=2e-6)
        assert model.embed(t for t in ("a", "b")).shape == (2, WIDTH)
        assert model.embed_with_info(["a"]).token_counts == [3]
        rows = list(model.embed_stream(f"text {i}" for i in range(300)))
        assert len(rows) == 300
        for _ in model.embed_stream(f"text {i}" for i in range(3000)):
            break
        with pytest.raises(TypeError, match=r"texts\[0\]"):
            model.embed([1])  # type: ignore[list-item]
        with ThreadPoolExecutor(8) as pool:  # any thread may call
            same = list(pool.map(model.embed, ["hello"] * 64))
        assert {v.tobytes() for v in same} == {vector.tobytes()}
        assert model.info.dimensions == WIDTH
        assert model.stats().finished["done"] > 64
    model.close()
    with pytest.raises(rt.Aborted):
        model.embed("x")
    assert threading.active_count() <= before + 1  # a worker may still be on its way out


def test_load_sync_leaves_no_thread_when_loading_fails(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(rt.ArtifactMissing):
        rt.load_sync(tmp_path / "nowhere")
    assert threading.active_count() <= before
