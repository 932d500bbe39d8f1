"""What a device tells the scheduler of its models' pools."""

from __future__ import annotations

from typing import Any

import pytest

from runtime_py.batching import DeviceSpec, LaneKind
from runtime_py.engine.hosted import device_spec
from runtime_py.executors.base import ExecutorLimits


class Model:
    """What `device_spec` looks at."""

    def __init__(self, threads: int, steps: int, *, decoder: bool = False) -> None:
        self.limits = ExecutorLimits(64, 8, threads, steps)
        self.spec = type("Spec", (), {"kind": LaneKind.DECODER if decoder else LaneKind.ENCODER})


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ([Model(1, 1)], DeviceSpec(1, 1)),
        ([Model(4, 4)], DeviceSpec(4, 4)),
        ([Model(4, 1, decoder=True)], DeviceSpec(4, 1)),
        ([Model(4, 4), Model(4, 1, decoder=True)], DeviceSpec(4, 4)),
        # Instances without shared memory: as many steps, of one thread each
        ([Model(1, 3)], DeviceSpec(3, 3, 1)),
        ([Model(1, 3), Model(1, 1, decoder=True)], DeviceSpec(1, 1)),
        ([Model(1, 3), Model(4, 4)], DeviceSpec(3, 3, 1)),
    ],
)
def test_device_spec(models: list[Any], expected: DeviceSpec) -> None:
    assert device_spec(models) == expected
