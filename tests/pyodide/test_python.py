"""The Python package in a page: the same API, the same results, nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import runtime_py as rt
from tests.pyodide.conftest import Page, Python

TEXTS = ["The heron waits.", "", "a" * 700, "Ein Vogel fliegt über den See.", "鳥が飛ぶ 🐦"]
CHAT = [{"role": "user", "content": "Say <|im_end|> aloud, hm?"}]

pytestmark = pytest.mark.browser

EMBED = """
import runtime_py as rt
model = await rt.load({artifact!r}, threads={threads})
vectors, single = await model.embed({texts!r}), await model.embed({texts!r}[0])
result = [[v.tobytes().hex() for v in vectors], single.tobytes().hex(), model.info.executor]
await model.close()
"""

INSTANCES = """
import asyncio
import runtime_py as rt
device = rt.Device(threads=2)
model = await rt.load({artifact!r}, device=device)
calls = [model.embed(text) for text in {texts!r} for _ in range(20)]
vectors = [v.tobytes().hex() for v in await asyncio.gather(*calls)]
result = [vectors[::20], len(set(vectors)), list(device.core.device)]
await model.close()
"""

GENERATE = """
import asyncio
import runtime_py as rt
model = await rt.load({artifact!r})
async def stream(seed):
    ids = []
    options = dict(max_tokens=24, seed=seed, temperature=0.8 if seed else 0.0)
    async for piece in model.generate("Once upon", logprobs=True, **options):
        ids.append(piece.token_id)
    return ids
streams = await asyncio.gather(*[stream(seed) for seed in range(5)])
reply = await model.chat({chat!r}, max_tokens=12)
result = [streams, list(reply.completions[0].token_ids), reply.usage.prompt_tokens]
await model.close()
"""

FAULTS = """
import runtime_py as rt
found = []
async def note(awaitable):
    try:
        await awaitable
    except rt.VoleryError as e:
        found.append([type(e).__name__, str(e)])
await note(rt.load({missing!r}))
await note(rt.load({artifact!r}, executor="reference"))
model = await rt.load({artifact!r})
await note(model.embed(["fine", "lone \\ud800"]))
await note(model.embed("x " * 9000, truncate="error"))
await model.close()
await note(model.embed("late"))
result = found
"""

MANY = """
import runtime_py as rt
import asyncio, gc, pyodide_js
def heap():
    gc.collect()
    return pyodide_js._module.HEAP8.length
model = await rt.load({artifact!r})
async def calls(rounds):
    for i in range(rounds):
        await asyncio.gather(*[model.embed("one of 100 texts") for i in range(100)])
await calls(20)
before = heap()
await calls(180)
result = heap() - before
await model.close()
"""


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run it on a thread of its own: playwright has the loop of this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main).result()


def on_wasmtime(artifact: Path, texts: list[str]) -> list[str]:
    async def embed() -> Any:
        async with await rt.load(artifact, threads=1) as model:
            return await model.embed(texts)

    return [v.tobytes().hex() for v in run(embed())]


def test_vectors_are_those_of_wasmtime_to_the_bit(
    python: Python, minilm_artifacts: Mapping[str, Path]
) -> None:
    artifact = minilm_artifacts["i8"]
    code = EMBED.format(artifact=python.server.share(artifact), threads=1, texts=TEXTS)
    vectors, single, executor = python.run(code)
    assert executor == "pyodide"
    assert vectors == on_wasmtime(artifact, TEXTS)
    assert single == vectors[0]


def test_two_threads_give_the_same_bits(page: Page, minilm_artifacts: Mapping[str, Path]) -> None:
    artifact = minilm_artifacts["i8"]
    code = EMBED.format(artifact=page.server.share(artifact), threads=2, texts=TEXTS)
    assert page.run(code)[0] == on_wasmtime(artifact, TEXTS)


def test_M5_without_shared_memory_steps_run_side_by_side(
    plain_page: Page, tiny_encoder_artifact: Path
) -> None:
    """A copy of the model in each of two workers, each step on one thread; the same bits."""
    artifact = plain_page.server.share(tiny_encoder_artifact)
    code = INSTANCES.format(artifact=artifact, texts=TEXTS)
    vectors, different, device = plain_page.run(code)
    assert vectors == on_wasmtime(tiny_encoder_artifact, TEXTS)
    assert different == len(set(vectors))
    assert device == [2, 2, 1]  # threads, concurrent steps, threads of a step


def test_streams_and_chats_are_those_of_wasmtime(
    python: Python, tiny_decoder_artifact: Path
) -> None:
    async def expected() -> list[Any]:
        async with await rt.load(tiny_decoder_artifact, threads=1) as model:

            async def stream(seed: int) -> list[int]:
                temperature = 0.8 if seed else 0.0
                pieces = model.generate(
                    "Once upon", max_tokens=24, seed=seed, temperature=temperature, logprobs=True
                )
                return [piece.token_id async for piece in pieces]

            streams = [await stream(seed) for seed in range(5)]
            reply = await model.chat(CHAT, max_tokens=12)
            return [streams, list(reply.completions[0].token_ids), reply.usage.prompt_tokens]

    address = python.server.share(tiny_decoder_artifact)
    code = GENERATE.format(artifact=address, chat=CHAT)
    assert python.run(code) == run(expected())


def test_D8_nothing_is_fetched_off_the_page_s_origin(page: Page) -> None:
    """The other tests of this module have loaded and run models by now."""
    assert page.foreign == []


def test_faults_are_the_same_errors(page: Page, minilm_artifacts: Mapping[str, Path]) -> None:
    address = page.server.share(minilm_artifacts["i8"])
    found = page.run(FAULTS.format(artifact=address, missing=page.server.origin + "/nothing/"))
    assert [name for name, _ in found] == [
        "ArtifactMissing",
        "InvalidInput",
        "InvalidInput",
        "TooLong",
        "Aborted",
    ]
    assert "texts[1]" in found[2][1]


@pytest.mark.timeout(400)
def test_D7_memory_stays_flat_over_20000_calls(page: Page, tiny_encoder_artifact: Path) -> None:
    code = MANY.format(artifact=page.server.share(tiny_encoder_artifact))
    # The heap grows in steps, and which calls coincide is chance: a leak grows it again.
    assert page.run(code) == 0 or page.run(code) == 0


def test_D6_no_thread_is_started(page: Page, tiny_encoder_artifact: Path) -> None:
    code = (
        "import threading\n"
        "def refuse(self): raise RuntimeError('no threads here')\n"
        "threading.Thread.start = refuse\n"
        + EMBED.format(
            artifact=page.server.share(tiny_encoder_artifact), threads=1, texts=["a", "b"]
        )
    )
    assert len(page.run(code)[0]) == 2
