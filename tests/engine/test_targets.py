"""Targets and tenants of a call reach the scheduler, and nonsense is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime_py import InvalidInput, InvalidType
from runtime_py.batching import TraceRecorder
from tests.engine.tiny import make as embedder
from tests.engine.tiny import run
from tests.generation.tiny import make as writer


def arrivals(lines: list[str]) -> list[Any]:
    events = [e for line in lines[1:] for e in json.loads(line)["e"]]
    return [e for e in events if e[0] in ("arrived", "generate")]


def test_embed_passes_its_target_and_tenant() -> None:
    lines: list[str] = []

    async def test() -> None:
        async with embedder(recorder=TraceRecorder(lines.append)) as model:
            await model.embed("a", latency_target_ms=12.5, tenant="acme")
            await model.embed("a")
            assert sum(model.stats().prediction_errors.values()) == 2

    run(test)
    assert [e[-2:] for e in arrivals(lines)] == [[12_500_000, "acme"], [-1, ""]]


def test_generate_passes_its_targets_and_tenant() -> None:
    lines: list[str] = []

    async def test() -> None:
        async with writer(recorder=TraceRecorder(lines.append)) as model:
            await model.generate(
                [1, 2], max_tokens=2, ttft_target_ms=80, tpot_target_ms=15, tenant="acme"
            )
            await model.generate([1, 2], max_tokens=2)

    run(test)
    assert [e[-3:] for e in arrivals(lines)] == [
        [80_000_000, 15_000_000, "acme"],
        [-1, -1, ""],
    ]


@pytest.mark.parametrize("value", [-1, 10**10, "soon", True])
def test_targets_that_make_no_sense_are_refused_by_name(value: Any) -> None:
    async def test() -> None:
        async with embedder() as model:
            with pytest.raises(InvalidInput, match="latency_target_ms"):
                await model.embed("a", latency_target_ms=value)
        async with writer() as model:
            with pytest.raises(InvalidInput, match="ttft_target_ms"):
                await model.generate([1], ttft_target_ms=value)
            with pytest.raises(InvalidInput, match="tpot_target_ms"):
                await model.generate([1], tpot_target_ms=value)

    run(test)


def test_a_tenant_is_a_name() -> None:
    async def test() -> None:
        bad: Any = 7
        async with embedder() as model:
            with pytest.raises(InvalidType, match="tenant"):
                await model.embed("a", tenant=bad)
        async with writer() as model:
            with pytest.raises(InvalidType, match="tenant"):
                await model.generate([1], tenant=bad)

    run(test)
