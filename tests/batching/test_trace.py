"""Traces: what is recorded replays to the same digest, and damage is found."""

from __future__ import annotations

import json

import pytest

from runtime_py.batching import DeviceSpec, SchedulerConfig, TrafficClass, replay
from runtime_py.errors import ArtifactCorrupt, ArtifactUnsupported
from tests.batching.world import World


@pytest.fixture
def recorded() -> tuple[list[str], str]:
    lines: list[str] = []
    world = World(lines=lines, device=DeviceSpec(2, 2), config=SchedulerConfig(step_target_ms=9))
    for i in range(30):
        world.arrive(*[3 + i] * (1 + i % 3), traffic=TrafficClass(i % 2), deadline_ms=40 + i)
        if i % 4 == 0:
            world.abort(i - 1)
            world.advance()
    world.drain()
    return lines, world.recorder.digest


def test_replay_makes_the_same_decisions(recorded: tuple[list[str], str]) -> None:
    lines, digest = recorded
    assert replay(lines) == digest == replay(iter(lines))


def test_lines_are_canonical_json_of_integers_and_strings(
    recorded: tuple[list[str], str],
) -> None:
    def check(value: object) -> None:
        assert isinstance(value, int | str | list)
        assert not isinstance(value, bool)
        if isinstance(value, list):
            for v in value:
                check(v)
        if isinstance(value, int):
            assert -(2**53) < value < 2**53

    for line in recorded[0][1:]:
        record = json.loads(line)
        assert line == json.dumps(record, sort_keys=True, separators=(",", ":")) + "\n"
        check(record["d"])
        check(record["e"])


def test_another_decision_is_found_at_its_line(recorded: tuple[list[str], str]) -> None:
    lines = list(recorded[0])
    lines[5] = lines[5].replace('"step"', '"steq"').replace('"idle"', '"idel"')
    with pytest.raises(ArtifactCorrupt, match="line 6"):
        replay(lines)


def test_another_config_decides_otherwise(recorded: tuple[list[str], str]) -> None:
    lines = list(recorded[0])
    header = json.loads(lines[0])
    header["config"]["max_batch_seqs"] = 1
    lines[0] = json.dumps(header)
    with pytest.raises(ArtifactCorrupt, match="this core makes"):
        replay(lines)


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[]",
        '{"d":[],"e":[["nonsense"]],"t":0}',
        '{"d":[],"e":[["aborted"]],"t":0}',
        '{"d":[],"e":[["arrived",1,"m/embed",5,0,-1]],"t":0}',
        '{"d":[],"e":[["arrived",1,"m/embed",[5],9,-1]],"t":0}',
        '{"d":[],"e":[["completed",0,"broken",0,[]]],"t":0}',
        '{"d":[],"t":0}',
        '{"d":[],"e":[["tick"]],"t":"now"}',
    ],
)
def test_malformed_lines_are_typed_errors(recorded: tuple[list[str], str], line: str) -> None:
    with pytest.raises(ArtifactCorrupt, match="line 2"):
        replay([recorded[0][0], line])


@pytest.mark.parametrize("header", ["", "{}", '{"volery_trace":2}'])
def test_unknown_headers(header: str) -> None:
    with pytest.raises((ArtifactCorrupt, ArtifactUnsupported)):
        replay([header])


def test_broken_headers_are_typed_errors(recorded: tuple[list[str], str]) -> None:
    header = json.loads(recorded[0][0])
    for key in ("lanes", "device", "config"):
        broken = {**header, key: {"no": 1}}
        with pytest.raises(ArtifactCorrupt, match="header"):
            replay([json.dumps(broken)])
    assert replay([json.dumps(header)])
    with pytest.raises(ArtifactCorrupt):
        replay([])
