"""Models that share a device: one scheduler, and the results of a model alone."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runtime_py as rt
from runtime_py.batching import DeviceSpec, replay
from runtime_py.engine import Engine
from tests.engine.tiny import WIDTH, Gate, ids_of, run, settle, truth, write_artifact
from tests.generation.test_generate import PROMPT
from tests.generation.test_loading import write as write_decoder
from tests.generation.tiny import greedy
from tests.generation.tiny import reference as decoder


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture(scope="module")
def decoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("decoder") / "tiny")


@pytest.mark.parametrize("executor", ["reference", "wasmtime"])
def test_an_encoder_and_a_decoder_share_a_device_and_no_result_changes(
    encoder_folder: Path, decoder_folder: Path, tmp_path: Path, executor: Any
) -> None:
    texts = [f"text {i} " * (1 + i % 5) for i in range(40)]
    trace = tmp_path / "trace.jsonl"

    async def test() -> None:
        config = rt.SchedulerConfig(max_batch_seqs=4, ttft_target_ms=1, tpot_target_ms=1)
        async with rt.Device(threads=2, config=config, trace=trace) as device:
            embedder = await rt.load(encoder_folder, executor=executor, device=device)
            writer = await rt.load(decoder_folder, executor=executor, device=device)
            streams = [
                asyncio.ensure_future(
                    writer.generate(PROMPT[i:], max_tokens=16, ignore_eos=True).result()
                )
                for i in range(6)
            ]
            vectors = await asyncio.gather(
                embedder.embed(texts, traffic="throughput"),
                *[embedder.embed(text) for text in texts],
            )
            for i, result in enumerate(await asyncio.gather(*streams)):
                assert tuple(result.completions[0].token_ids) == greedy(PROMPT[i:], 16)
            for row, alone, text in zip(vectors[0], vectors[1:], texts, strict=True):
                np.testing.assert_allclose(row, truth(ids_of(text)), atol=2e-6)
                np.testing.assert_array_equal(row, alone)
            assert embedder.stats().finished == {"done": 41}
            assert writer.stats().finished == {"done": 6}
            assert embedder.stats().kv is None
            assert writer.stats().kv is not None
            assert max(writer.stats().batch_sizes) > 1

    run(test)
    with trace.open() as lines:
        assert len(replay(lines)) == 64
    with trace.open() as lines:
        header = json.loads(next(lines))
        assert [lane["name"] for lane in header["lanes"]] == [
            "tests/tiny/embed",
            "tests/decoder/generate",
        ]
        steps = [d[2] for line in lines for d in json.loads(line)["d"] if d[0].endswith("step")]
    turns = [lane for lane, _ in itertools.groupby(steps)]
    assert len(turns) > 2  # neither waited for the other's end


def test_two_copies_of_a_model_have_lanes_of_their_own(encoder_folder: Path) -> None:
    async def test() -> None:
        async with rt.Device(threads=1) as device:
            a, b = [
                await rt.load(encoder_folder, executor="reference", device=device, share=share)
                for share in (1, 3)
            ]
            for model, text in ((a, "one"), (b, "two")):
                np.testing.assert_allclose(await model.embed(text), truth(ids_of(text)), atol=2e-6)
            names = [(lane.spec.name, lane.spec.weight) for lane in device.core.lanes]
            assert names == [("tests/tiny/embed", 1), ("tests/tiny/embed#2", 3)]
            assert (a.stats().steps, b.stats().steps) == (1, 1)

    run(test)


def test_models_come_before_the_first_request_and_bring_no_scheduler(encoder_folder: Path) -> None:
    async def test() -> None:
        device = rt.Device(threads=1)
        for options in ({"threads": 2}, {"config": rt.SchedulerConfig()}, {"trace": "x"}):
            with pytest.raises(rt.InvalidInput, match="belong to the device"):
                await rt.load(encoder_folder, device=device, **options)
        model = await rt.load(encoder_folder, executor="reference", device=device)
        assert model.stats().steps == 0  # asking does not begin anything
        await model.embed("first")
        with pytest.raises(rt.InvalidInput, match="before the first request"):
            await rt.load(encoder_folder, device=device)
        await device.close()
        await device.close()
        with pytest.raises(rt.Aborted):
            await model.embed("second")
        with pytest.raises(rt.InvalidInput, match="device is closed"):
            await rt.load(encoder_folder, device=device)

    run(test)
    for threads in (0, True, 257):
        with pytest.raises(rt.InvalidInput, match="threads"):
            run(lambda threads=threads: _made(threads))  # type: ignore[misc]


async def _made(threads: int) -> rt.Device:
    return rt.Device(threads=threads)


def test_a_device_of_another_loop_is_refused(encoder_folder: Path) -> None:
    device = run(lambda: _made(1))

    async def test() -> None:
        with pytest.raises(rt.InvalidInput, match="another event loop"):
            await rt.load(encoder_folder, device=device)

    run(test)


def test_one_model_closes_and_the_other_goes_on(encoder_folder: Path, decoder_folder: Path) -> None:
    async def test() -> None:
        async with rt.Device(threads=1) as device:
            embedder = await rt.load(encoder_folder, executor="reference", device=device)
            writer = await rt.load(decoder_folder, executor="reference", device=device)
            stream = writer.generate(PROMPT, max_tokens=300, ignore_eos=True)
            await anext(stream)
            vector = asyncio.ensure_future(embedder.embed("text"))
            await writer.close()
            with pytest.raises(rt.Aborted):
                async for _ in stream:
                    pass
            np.testing.assert_allclose(await vector, truth(ids_of("text")), atol=2e-6)
            np.testing.assert_allclose(
                await embedder.embed("more"), truth(ids_of("more")), atol=2e-6
            )

    run(test)


def test_M17_a_backend_that_dies_takes_no_other_model_along() -> None:
    async def test() -> None:
        state: list[BaseException] = []
        dying = Gate(decoder(), lambda step: state[0] if state else None, open=True)
        device = rt.Device(threads=1)
        engine = Engine(Gate(open=True), WIDTH, device=device, alone=False, name="encoder")
        other = Engine(dying, 0, device=device, alone=False, name="decoder")
        assert device.core.device == DeviceSpec(threads=1, concurrent_steps=1)
        request = engine.submit([ids_of("a")])
        await engine.result(request)
        state.append(rt.DeviceLost("trap"))
        lost = other.generate([5, 6], _options(), (), lambda ids: "")
        await settle()
        with pytest.raises(rt.DeviceLost, match="trap"):
            lost.future.result()
        output = await engine.result(engine.submit([ids_of("b")]))
        np.testing.assert_allclose(np.frombuffer(output, np.float32), truth(ids_of("b")), atol=1e-6)
        assert engine.stats().finished == {"done": 2}
        assert other.stats().finished == {"device_lost": 1}
        await device.close()
        assert dying.closed == 1

    run(test)


def _options() -> Any:
    from runtime_py.generation.options import generate_options
    from tests.generation.tiny import VOCAB

    return generate_options(
        vocab_size=VOCAB,
        max_context=100,
        max_tokens=4,
        seed=0,
        ignore_eos=True,
    )
