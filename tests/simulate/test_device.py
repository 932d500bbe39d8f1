"""The simulated device and the profiles it is made from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from runtime_py.batching import LaneKind, StepShape
from runtime_py.errors import ArtifactCorrupt, ArtifactMissing, ArtifactUnsupported
from tests.simulate.small import ENCODER
from toolchain.simulate.device import NS_PER_S, Device, DeviceBehaviour
from toolchain.simulate.profile import load_profile, shipped_profiles

LANE = "small/embed"
SHAPE = StepShape(1, 10, 100)  # 2 ms
CALM = DeviceBehaviour(noise=0.0, warmup_steps=0)


def device(seed: int = 0, **behaviour: object) -> Device:
    return Device({LANE: ENCODER}, DeviceBehaviour(**behaviour), seed)  # type: ignore[arg-type]


def test_a_calm_device_keeps_to_its_profile() -> None:
    calm = Device({LANE: ENCODER}, CALM, 0)
    assert calm.run_ns(LANE, SHAPE, 0) == 2_000_000
    # Twice the threads halve the work, not the fixed part
    assert calm.run_ns(LANE, SHAPE._replace(threads=2), 0) == 1_500_000


def test_noise_has_the_mean_of_the_profile() -> None:
    noisy = device(noise=0.2, warmup_steps=0)
    ns = np.array([noisy.run_ns(LANE, SHAPE, i) for i in range(20_000)])
    assert ns.mean() == pytest.approx(2e6, rel=0.01)
    assert ns.std() / ns.mean() == pytest.approx(0.2, rel=0.05)


def test_the_first_step_is_slow() -> None:
    cold = device(noise=0.0, warmup_steps=2, warmup_factor=5.0)
    assert [cold.run_ns(LANE, SHAPE, 0) for _ in range(4)] == [10**7, 10**7, 2 * 10**6, 2 * 10**6]


def test_it_heats_up_and_cools_down() -> None:
    hot = device(noise=0.0, warmup_steps=0, thermal_slowdown=2.0, thermal_seconds=10.0)
    now, times = 0, []
    while now < 60 * NS_PER_S:
        times.append(hot.run_ns(LANE, SHAPE, now))
        now += times[-1]
    assert times[0] == 2_000_000
    assert times == sorted(times)
    assert times[-1] == pytest.approx(4_000_000, rel=0.02)
    assert hot.run_ns(LANE, SHAPE, now + 100 * NS_PER_S) == pytest.approx(2_000_000, rel=0.01)


def test_stalls_take_their_part_of_the_time_whatever_runs() -> None:
    stalled = device(noise=0.0, warmup_steps=0, stall_every_s=1.0, stall_ms=100.0)
    now, work = 0, 0
    while now < 2000 * NS_PER_S:
        now += stalled.run_ns(LANE, SHAPE, now)
        work += 2_000_000
    assert work / now == pytest.approx(1 / 1.1, rel=0.02)


def test_a_stall_between_two_steps_delays_nobody() -> None:
    stalled = device(noise=0.0, warmup_steps=0, stall_every_s=1.0, stall_ms=1.0)
    times = [stalled.run_ns(LANE, SHAPE, i * NS_PER_S) for i in range(2000)]
    assert np.mean(np.array(times) == 2_000_000) > 0.98


def test_it_changes_its_speed_for_good() -> None:
    changing = device(noise=0.0, warmup_steps=0, changes=((20.0, 0.5), (10.0, 3.0)))
    times = [changing.run_ns(LANE, SHAPE, s * NS_PER_S) for s in (0, 9, 10, 19, 20, 99)]
    assert times == [2_000_000, 2_000_000, 6_000_000, 6_000_000, 1_000_000, 1_000_000]


def test_the_shipped_profiles_are_those_of_one_model_of_each_kind() -> None:
    profiles = {name: load_profile(name) for name in shipped_profiles()}
    assert {p.kind for p in profiles.values()} == set(LaneKind)
    for p in profiles.values():
        assert p.cost.token_ns > 0
        assert 0 < p.noise < 0.2


def test_an_artifact_is_a_profile(tmp_path: Path) -> None:
    manifest = {
        "format": "volery",
        "model": {"id": "org/name"},
        "limits": {"max_tokens": 128},
        "cost_profile": {
            "host": "wasmtime",
            "threads": 1,
            "coefficients_ns": {"constant": 5.0, "num_tokens": 7.0, "sum_len_sq": 0.5},
        },
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    profile = load_profile(str(tmp_path))
    assert (profile.name, profile.max_tokens) == ("name", 128)
    assert profile.step_ns(StepShape(2, 10, 60)) == pytest.approx(5 + 70 + 30)


@pytest.mark.parametrize(
    ("plain", "error", "what"),
    [
        ({"format": "volery-profile", "version": 2}, ArtifactUnsupported, "version 2"),
        ({"format": "volery-profile", "version": 1}, ArtifactCorrupt, "coefficients_ns"),
        (
            {"format": "volery-profile", "version": 1, "coefficients_ns": {"num_tokens": -1}},
            ArtifactCorrupt,
            "-1",
        ),
        (
            {"format": "volery-profile", "version": 1, "coefficients_ns": {"constant": 1}},
            ArtifactCorrupt,
            "costs anything",
        ),
        ({"format": "volery"}, ArtifactMissing, "no cost profile"),
        ({"format": "volery", "cost_profile": {}}, ArtifactCorrupt, "malformed"),
        ([], ArtifactCorrupt, "object"),
    ],
)
def test_what_is_no_profile_is_refused(
    tmp_path: Path, plain: object, error: type[Exception], what: str
) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(plain))
    with pytest.raises(error, match=what):
        load_profile(str(path))


def test_an_unknown_profile_names_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissing, match="minilm"):
        load_profile("nothing")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ArtifactCorrupt, match="not JSON"):
        load_profile(str(tmp_path / "bad.json"))
