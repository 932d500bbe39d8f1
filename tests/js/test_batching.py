"""The JavaScript batching core decides as the Python one does, line by line.

`World` and `DecoderWorld` drive the Python core and record what goes in and comes out;
`replay` in JavaScript feeds the same events to its own core and compares every decision.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, settings

from runtime_py.batching import DeviceSpec, TrafficClass
from tests.batching import test_decoder_state_machine, test_state_machine
from tests.batching.world import World
from tests.golden.generate import load
from tests.js import hosts
from tests.js.hosts import JS, Host

GOLDEN = load()

SETTINGS = settings(
    max_examples=40,
    stateful_step_count=50,
    suppress_health_check=list(HealthCheck),
)


class Replayer:
    """A Node process that replays traces."""

    def __init__(self) -> None:
        command = [hosts.node24().command[0], str(JS / "replay_traces.js")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def digest(self, lines: Sequence[str]) -> str:
        """The digest of JavaScript's decisions; they are the recorded ones."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(lines) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        assert "error" not in answer, answer["error"]
        digest: str = answer["digest"]
        return digest

    def close(self) -> None:
        self._process.communicate(timeout=hosts.TIMEOUT_S)
        assert self._process.returncode == 0


@pytest.fixture(scope="module", autouse=True)
def replayer() -> Iterator[Replayer]:
    found = Replayer()
    EncoderCore.replayer = DecoderCore.replayer = found
    yield found
    found.close()


class EncoderCore(test_state_machine.Encoders):
    """Random lives of encoder lanes."""

    replayer: Replayer

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "world"):
            assert self.replayer.digest(self.lines) == self.world.recorder.digest


class DecoderCore(test_decoder_state_machine.Decoders):
    """Random lives of generations."""

    replayer: Replayer

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "world"):
            assert self.replayer.digest(self.lines) == self.world.recorder.digest


EncoderCore.TestCase.settings = SETTINGS
DecoderCore.TestCase.settings = SETTINGS
TestEncoderCore = EncoderCore.TestCase
TestDecoderCore = DecoderCore.TestCase


def test_every_host_replays_the_golden_traces(host: Host) -> None:
    """202 small lives that cover every branch of the policy, and the digests of CPython."""
    traces = [[name, lines] for name, (lines, _) in GOLDEN.items()]
    found = host.run("golden_traces", {"traces": traces})
    assert found == {name: digest for name, (_, digest) in GOLDEN.items()}


@pytest.mark.parametrize("step_threads", [1, 2])
def test_threads_that_share_no_memory_run_steps_of_their_own(
    replayer: Replayer, step_threads: int
) -> None:
    """A backlog is divided among them; no step ever has more threads than it can."""
    lines: list[str] = []
    world = World(device=DeviceSpec(4, 4, step_threads), lines=lines)
    world.arrive_together(*[20] * 12)
    assert len(world.running) > 1
    rng = random.Random(step_threads)
    for _ in range(200):
        world.arrive(
            *rng.choices(range(1, 60), k=rng.choice([1, 1, 4])),
            traffic=TrafficClass(rng.randrange(2)),
        )
        if rng.random() < 0.7:
            world.advance()
    world.drain()
    assert {step.shape.threads for step in world.steps} <= set(range(1, step_threads + 1))
    assert replayer.digest(lines) == world.recorder.digest
