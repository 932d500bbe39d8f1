"""`toolchain bench`: what it counts, what it fits, what it prints."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_py import InvalidInput
from runtime_py.executors.base import ExecutorLimits, Sampled, Step, StepResult
from tests.cli.conftest import Run
from tests.engine.tiny import run as run_async
from tests.engine.tiny import write_artifact
from toolchain.bench import Window, measure_profile
from toolchain.bench.closed_loop import closed_loop
from toolchain.bench.measure import Percentiles
from toolchain.simulate.profile import load_profile


class FakeClock:
    """Nanoseconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class FakeExecutor:
    """Steps take what a formula says; every tenth takes longer."""

    name = "fake"

    def __init__(
        self, clock: FakeClock, cost: Callable[[Step], float], limits: ExecutorLimits
    ) -> None:
        self.limits = limits
        self._clock, self._cost = clock, cost
        self._steps = 0

    def run(self, step: Step) -> StepResult:
        self._steps += 1
        slow = 1.5 if self._steps % 10 == 0 else 1.0
        self._clock.now += round(self._cost(step) * slow)
        sampled = tuple(Sampled(0, 0.0) for _ in step.wanted)
        return StepResult(memoryview(b"").cast("f"), bytes(len(step.seqs)), 1, sampled)

    def submit(self, step: Step, done: Callable[[StepResult | BaseException], None]) -> None:
        done(self.run(step))

    def close(self) -> None:
        pass


TRUE = {
    "constant": 300_000.0,
    "threads": 40_000.0,
    "num_seqs": 9_000.0,
    "num_tokens": 70_000.0,
    "sum_len_sq": 150.0,
    "kv_tokens": 800.0,
}


def true_cost(step: Step) -> float:
    """`runtime_py.batching.cost_model`'s formula, spelled out on the step itself."""
    ends = [(r.num_tokens, r.num_tokens + r.context_len) for r in step.seqs]
    work = TRUE["num_seqs"] * len(ends) + TRUE["num_tokens"] * len(step.token_ids)
    work += TRUE["sum_len_sq"] * sum(n * end for n, end in ends)
    if step.block_tables:
        work += TRUE["kv_tokens"] * sum(end for _, end in ends)
    fixed = TRUE["constant"] + TRUE["threads"] * (step.threads - 1)
    return fixed + work / step.threads


@pytest.mark.parametrize("decoder", [False, True])
def test_a_profile_finds_the_coefficients_behind_the_noise(decoder: bool) -> None:
    clock = FakeClock()
    limits = ExecutorLimits(2048, 64, 2, 1, *((800, 64) if decoder else ()))
    executor = FakeExecutor(clock, true_cost, limits)
    profile = measure_profile(executor, model="m", vocab_size=101, max_tokens=1200, clock=clock)
    expected = dict(TRUE) if decoder else {**TRUE, "kv_tokens": 0.0}
    for name, value in expected.items():
        assert math.isclose(profile["coefficients_ns"][name], value, rel_tol=0.01, abs_tol=1), name
    assert (profile["format"], profile["version"]) == ("volery-profile", 1)
    assert (profile["kind"], profile["threads"]) == ("decoder" if decoder else "encoder", 2)
    assert profile["fit"]["mean_relative_error"] < 1e-3
    assert profile["noise"]["relative"] == pytest.approx(0.5 * np.std([1, *[0] * 9]), rel=0.1)
    assert profile["noise"]["p99"] == 1.5
    assert {s["threads"] for s in profile["samples"]} == {1, 2}
    assert all(len(s["ns"]) == 7 for s in profile["samples"])


def test_a_backend_that_is_too_small_has_no_profile() -> None:
    clock = FakeClock()
    executor = FakeExecutor(clock, true_cost, ExecutorLimits(8, 1, 1, 1))
    with pytest.raises(InvalidInput, match="runs 1 of the steps"):
        measure_profile(executor, model="m", vocab_size=9, max_tokens=512, clock=clock)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_percentiles_are_nearest_ranks(values: list[float]) -> None:
    got = Percentiles.of(values)
    assert got is not None
    for percent, value in ((50, got.p50), (90, got.p90), (99, got.p99)):
        expected = np.percentile(values, percent, method="inverted_cdf")
        assert value == round(float(expected), 3)
    assert got.max == round(max(values), 3)
    assert Percentiles.of([]) is None


def test_the_window_opens_when_all_are_warm_and_lets_nobody_begin_later() -> None:
    now = 0.0
    log: list[tuple[int, float, bool]] = []

    async def test() -> None:
        nonlocal now
        window = Window(3, 10.0, clock=lambda: now)

        async def request(number: int) -> None:
            nonlocal now
            log.append((number, now, window.is_open))
            now += 1.0
            await asyncio.sleep(0)

        await closed_loop(window, 3, 2, request)
        assert window.progress == 1.0
        assert not window.is_open

    run_async(test)
    assert sorted(n for n, _, _ in log) == list(range(len(log)))
    assert [is_open for _, _, is_open in log[:6]] == [False] * 6  # two for each client
    began = [at for _, at, is_open in log if is_open]
    assert began == [6.0 + i for i in range(10)]


def test_a_failing_request_ends_the_measurement() -> None:
    async def test() -> None:
        async def request(number: int) -> None:
            await asyncio.sleep(0)
            if number == 5:
                raise InvalidInput("request 5")

        with pytest.raises(InvalidInput, match="request 5"):
            await closed_loop(Window(2, 1e9), 2, 1, request)

    run_async(test)


OPTIONS = ("-s", "0.15", "--executor", "reference", "--quiet")


def test_a_decoder_under_load(toolchain: Run, tiny_decoder: Path) -> None:
    load = ("--prompt-tokens", "20", "--output-tokens", "4", "-c", "1", "-c", "3")
    done = toolchain("bench", tiny_decoder, *OPTIONS, *load, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["kind"], report["executor"], report["threads"]) == ("decoder", "reference", 1)
    assert [row["clients"] for row in report["rows"]] == [1, 3]
    for row in report["rows"]:
        assert row["requests"] >= 1
        assert row["latency"]["p50"] >= row["ttft"]["p50"] > 0
        assert row["steps_in_flight"] > 0
        assert 1 <= row["batch_seqs"] <= row["clients"]
    table = toolchain("bench", tiny_decoder, *OPTIONS, *load)
    lines = table.stdout.splitlines()
    assert lines[0].startswith("tests/decoder f32, reference, 1 thread: prompts of 20 tokens")
    assert lines[1].split()[:2] == ["clients", "tokens/s"]
    assert [line.split()[0] for line in lines[2:4]] == ["1", "3"]


def test_an_encoder_and_its_profile(toolchain: Run, tmp_path: Path) -> None:
    folder, path = write_artifact(tmp_path / "m"), tmp_path / "profile.json"
    arguments = (*OPTIONS, "-c", "2", "--texts", "3", "--profile", path)
    done = toolchain("bench", folder, *arguments, "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert row["texts_per_s"] > 0
    assert "ttft" not in row
    profile = json.loads(path.read_text())
    assert (profile["kind"], profile["host"], profile["max_tokens"]) == ("encoder", "reference", 32)
    device = load_profile(str(path))
    assert device.cost.token_ns == profile["coefficients_ns"]["num_tokens"]
    assert device.noise == profile["noise"]["relative"]
    assert f"profile: {path}" in toolchain("bench", folder, *arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prompt-tokens", "390"], "do not fit the context of 400"),
        (["--shared-prefix", "200"], "expected at most the 128 tokens"),
        (["--executor", "onnxruntime"], "embedding models only"),
        (["--profile", "/no/such/folder/p.json", "--kv-memory", "1"], "cannot be written"),
    ],
)
def test_bad_usage_is_one_line(
    toolchain: Run, tiny_decoder: Path, arguments: list[str], words: str
) -> None:
    done = toolchain("bench", tiny_decoder, *OPTIONS, *arguments)
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert words in line


def test_onnx_runtime_needs_a_graph(toolchain: Run, tmp_path: Path) -> None:
    done = toolchain("bench", write_artifact(tmp_path / "m"), "--executor", "onnxruntime")
    assert "there is no graph at" in done.stderr
