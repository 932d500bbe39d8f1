"""Knobs: what is refused and by which name, their plain form, and what drivers may not do."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from runtime_py.batching import (
    BatchingCore,
    DeviceSpec,
    LaneSpec,
    QueuePolicy,
    RequestArrived,
    SchedulerConfig,
    Tick,
    TimeoutAction,
)
from runtime_py.errors import InvalidInput

INTS = [f.name for f in fields(SchedulerConfig) if f.type == "int"]


@pytest.mark.parametrize("name", INTS)
@pytest.mark.parametrize("value", [-1, 1.5, True, None, "3", 10**10])
def test_knobs_outside_their_range_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=name):
        SchedulerConfig(**{name: value})  # type: ignore[arg-type]


def test_every_knob_is_documented_and_has_a_default() -> None:
    SchedulerConfig()
    for name in [f.name for f in fields(SchedulerConfig)]:
        assert f"        {name}: " in (SchedulerConfig.__doc__ or "")


def test_policies_are_checked() -> None:
    with pytest.raises(InvalidInput, match="max_queue_size"):
        QueuePolicy(max_queue_size=0)
    with pytest.raises(InvalidInput, match="timeout_ms"):
        QueuePolicy(timeout_ms=-1)
    with pytest.raises(ValueError, match="explode"):
        QueuePolicy(timeout_action="explode")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="QueuePolicy"):
        SchedulerConfig(latency={"max_queue_size": 3})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="throughput_share_percent"):
        SchedulerConfig(throughput_share_percent=101)


def test_plain_form_round_trips_through_json() -> None:
    config = SchedulerConfig(step_target_ms=7, throughput=QueuePolicy(9, 5, TimeoutAction.DEMOTE))
    plain = json.loads(json.dumps(config.to_plain()))
    assert SchedulerConfig.from_plain(plain) == config


def test_what_a_driver_may_not_do_is_refused() -> None:
    lane = LaneSpec("a", 10, 10)
    for lanes in ([], [lane, lane]):
        with pytest.raises(InvalidInput, match="lanes"):
            BatchingCore(lanes)
    with pytest.raises(InvalidInput, match="device"):
        BatchingCore([lane], DeviceSpec(0, 1))
    core = BatchingCore([lane])
    core.handle(RequestArrived(1, "a", (3,)), 0)
    with pytest.raises(InvalidInput, match="in use"):
        core.handle(RequestArrived(1, "a", (3,)), 0)
    with pytest.raises(InvalidInput, match="unknown lane"):
        core.handle(RequestArrived(2, "b", (3,)), 0)
    for now in (-1, 2**53):
        with pytest.raises(InvalidInput, match="now_ns"):
            core.handle(Tick(), now)


def test_time_that_runs_backwards_stands_still() -> None:
    core = BatchingCore([LaneSpec("a", 10, 10)])
    core.handle(Tick(), 1000)
    core.handle(RequestArrived(1, "a", (3,), deadline_ns=1005), 10)
    assert core.handle(Tick(), 1004)[-1].wake_at_ns == 1005  # type: ignore[union-attr]
