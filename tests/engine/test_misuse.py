"""What callers get wrong with a model: types, loops, threads, processes, forgetting it."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runtime_py as rt
from runtime_py import download
from tests.engine.tiny import run, write_artifact
from tests.generation.test_loading import write as write_decoder


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("artifact") / "tiny")


def load(source: Any, **options: Any) -> rt.SyncModel:
    return rt.load_sync(source, **{"executor": "reference", **options})


@pytest.mark.parametrize("source", [None, 3, b"x", ["a"]])
def test_a_source_of_another_type(source: object) -> None:
    with pytest.raises(rt.InvalidType, match=r"source is \w+, expected a path or an address"):
        load(source)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"config": 3}, "config is int, expected SchedulerConfig"),
        ({"config": {}}, "config is dict, expected SchedulerConfig"),
        ({"trace": 3}, "trace is int, expected a path or a TraceRecorder"),
        ({"tokenizer": 3}, "tokenizer is int, expected one that encodes"),
        ({"device": 3}, "device is int, expected a runtime_py.Device"),
        ({"progress": 3}, "progress is int, expected a function"),
    ],
)
def test_options_of_another_type(artifact: Path, options: dict[str, Any], found: str) -> None:
    """A trace of 3 is no file that is open already: that one is the event loop's."""
    with pytest.raises(rt.InvalidType, match=found):
        load(artifact, **options)


def test_paths_and_addresses_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(rt.ArtifactMissing, match="is not a folder"):
        load(tmp_path / ("x" * 5000))
    with pytest.raises(rt.ArtifactUnsupported, match="no address that can be downloaded"):
        download.fetch("http://[::1")


def test_a_prompt_name_of_another_type(artifact: Path) -> None:
    with load(artifact) as model, pytest.raises(rt.InvalidInput, match=r"prompt_name is \[\]"):
        model.embed("a", prompt_name=[])  # type: ignore[typeddict-item]


def test_torch_that_is_missing_is_told(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(rt.InvalidInput, match=r"needs torch.*; install torch, or leave"):
        load(artifact, torch_device="cpu")


@pytest.mark.parametrize(
    "error",
    [
        rt.TooLong("long", num_tokens=9, max_tokens=4),
        rt.Overloaded("full", retry_after_ms=2.5),
        rt.OutOfMemory("big", bytes_requested=7),
        rt.InvalidType("odd"),
    ],
)
def test_errors_travel_between_processes(error: rt.VoleryError) -> None:
    """A pool of processes hangs for ever on one that cannot be made again."""
    for made in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(made) is type(error)
        assert (str(made), vars(made)) == (str(error), vars(error))


def test_models_are_neither_copied_nor_pickled(artifact: Path) -> None:
    with load(artifact) as model:
        for shape in (pickle.dumps, copy.copy, copy.deepcopy):
            for it in (model, model._model):
                with pytest.raises(rt.InvalidType, match="load it in every process"):
                    shape(it)
        assert pickle.loads(pickle.dumps(model.info)) == model.info


def test_another_event_loop_is_told(artifact: Path, tmp_path: Path) -> None:
    decoder = write_decoder(tmp_path / "decoder")

    async def test() -> None:
        async with (
            await rt.load(artifact, executor="reference") as model,
            await rt.load(decoder, executor="reference") as writer,
        ):

            async def generated() -> None:
                writer.generate([1, 2], max_tokens=1)

            def elsewhere() -> None:
                for call in (model.embed("a"), model.close(), generated()):
                    with pytest.raises(rt.InvalidInput, match="belongs to another event loop"):
                        asyncio.run(call)

            await asyncio.to_thread(elsewhere)
            assert (await model.embed("a")).shape == (model.info.dimensions,)

    run(test)


def test_D6_the_models_own_thread_cannot_wait_for_itself(artifact: Path) -> None:
    with load(artifact) as model:

        def texts() -> Iterator[str]:
            yield str(model.embed("a"))

        with pytest.raises(rt.InvalidInput, match="called from its own thread"):
            list(model.embed_stream(texts()))
        assert model.embed("a").shape == (model.info.dimensions,)


def test_a_model_that_is_forgotten_ends(artifact: Path) -> None:
    model = load(artifact)
    thread, model._self = model._thread, model  # type: ignore[attr-defined]  # a cycle
    model.embed("a")
    del model
    with pytest.warns(ResourceWarning, match="a model was not closed"):
        gc.collect()
    thread.join(30)
    assert not thread.is_alive()


def script(text: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "default::ResourceWarning", "-c", text, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_program_ends_though_a_stream_is_open(tmp_path: Path) -> None:
    done = script(
        "import runtime_py as rt, sys\n"
        "model = rt.load_sync(sys.argv[1], executor='reference')\n"
        "stream = model.generate_stream([1, 2], max_tokens=40, ignore_eos=True)\n"
        "next(stream)\n",
        write_decoder(tmp_path / "decoder"),
    )
    assert done.returncode == 0
    assert "ResourceWarning: a model was not closed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_process_is_told_to_load_its_own(artifact: Path) -> None:
    done = script(
        "import os, runtime_py as rt, sys\n"
        "with rt.load_sync(sys.argv[1], executor='reference') as model:\n"
        "    model.embed('a')\n"
        "    if not (child := os.fork()):\n"
        "        try:\n"
        "            model.embed('a')\n"
        "        except rt.DeviceLost as e:\n"
        "            print(e)\n"
        "        sys.exit(3)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3\n"
        "    print(model.embed('a').shape)\n",
        artifact,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "was loaded before this process was forked" in done.stdout
    assert done.stdout.endswith("(12,)\n")


def test_many_threads_one_model(artifact: Path) -> None:
    with load(artifact) as model:
        want, found = model.embed("a b c"), list[Any]()
        threads = [
            threading.Thread(target=lambda: found.append(model.embed("a b c"))) for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 16
    assert all(np.array_equal(v, want) for v in found)
