"""The command: builds the scenario, runs the policies, writes what was asked for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from runtime_py.batching import BatchingCore, TraceRecorder
from runtime_py.errors import InvalidInput
from toolchain.simulate.device import NS_PER_S, DeviceBehaviour
from toolchain.simulate.metrics import Summary, summarize
from toolchain.simulate.options import Outputs, Request, Runs
from toolchain.simulate.policies import PAIRS, POLICIES, VOLERY, Setup, make_policy
from toolchain.simulate.profile import load_profile
from toolchain.simulate.report.explain import Life
from toolchain.simulate.report.page import page
from toolchain.simulate.report.table import show
from toolchain.simulate.scenario import Run, Scenario, lane_name, policies_for, run
from toolchain.simulate.simulation import Observer, Policy
from toolchain.simulate.workloads.catalog import Plan

_REPORT_VERSION = 1


def main(request: Request, runs: Runs, outputs: Outputs) -> None:
    """What ``toolchain simulate`` does.

    Raises:
        InvalidInput: an option that makes no sense, or an unknown name.
        ArtifactError: a profile or a trace that cannot be used.
    """
    scenario = scenario_of(request)
    names = _names(scenario, runs)
    done: list[tuple[Run, Summary]] = []
    life = Life(outputs.explain) if outputs.explain is not None else None
    with _progress(names, request.duration_s, outputs.quiet) as progress:
        for i, name in enumerate(names):
            observers: list[Observer] = []
            with _recording(outputs.record if not i else None, observers) as recorder:
                if life is not None and not i:
                    observers.append(life)
                pads = runs.padded and {**POLICIES, **PAIRS}[name].pads
                result = run(
                    scenario,
                    name,
                    pads=pads,
                    observers=observers,
                    progress=progress(name),
                    make=partial(_make, recorder=recorder),
                )
            done.append((result, summarize(result)))
            if life is not None:
                break
    _write(scenario, request, done, life, outputs)


def scenario_of(request: Request) -> Scenario:
    """The scenario that a command line describes."""
    profiles = [load_profile(source) for source in request.profiles]
    by_lane = {lane_name(profile): profile for profile in profiles}
    if len(by_lane) != len(profiles) or len({p.kind for p in profiles}) != len(profiles):
        raise InvalidInput(
            "two profiles have to be one of an embedding model and one of a language model"
        )
    for name, value in (("load", request.load), ("duration", request.duration_s)):
        if not math.isfinite(value) or value <= 0:
            raise InvalidInput(f"{name} is {value}, expected a number above 0")
    plan = Plan(
        profiles=by_lane,
        load=request.load,
        duration_s=request.duration_s,
        seed=request.seed,
        threads=request.threads,
        slo_scale=request.slo_scale,
        slo_ms=request.slo_ms,
        clients=request.clients,
        think_s=request.think_s,
        trace=request.trace,
        time_scale=request.time_scale,
    )
    behaviour = DeviceBehaviour(
        noise=request.noise,
        thermal_slowdown=request.thermal,
        stall_every_s=request.stalls,
        changes=tuple(_change(text) for text in request.slow_at),
    )
    return Scenario(
        request.workload,
        plan,
        behaviour,
        request.concurrent_steps,
        profile_error=request.profile_error,
    )


def _change(text: str) -> tuple[float, float]:
    second, _, factor = text.partition(":")
    try:
        change = (float(second), float(factor))
    except ValueError:
        change = (-1.0, 0.0)
    if not all(map(math.isfinite, change)) or change[0] < 0 or change[1] <= 0:
        raise InvalidInput(f"--slow-at is {text!r}, expected SECOND:FACTOR such as 20:3")
    return change


def _names(scenario: Scenario, runs: Runs) -> list[str]:
    if runs.compare and not runs.policies:
        return policies_for(scenario)
    names = list(dict.fromkeys(runs.policies)) or [VOLERY]
    if runs.compare and VOLERY not in names:
        names.insert(0, VOLERY)
    known = {**POLICIES, **PAIRS}
    for name in names:
        if name not in known:
            raise InvalidInput(f"no policy {name!r}, expected one of {', '.join(known)}")
    return names


def _make(name: str, setup: Setup, *, recorder: TraceRecorder | None) -> Policy:
    policy = make_policy(name, setup)
    if recorder is not None and isinstance(policy, BatchingCore):
        recorder.start([lane.spec for lane in policy.lanes], policy.device, policy.config)
    return policy


@contextmanager
def _recording(path: Path | None, observers: list[Observer]) -> Iterator[TraceRecorder | None]:
    """A recorder among the observers while the policy runs; Volery's trace can be replayed."""
    if path is None:
        yield None
        return
    try:
        file = path.open("w", encoding="utf-8", newline="\n")
    except OSError as e:
        raise InvalidInput(f"cannot write {path}: {e.strerror}") from None
    with file:
        recorder = TraceRecorder(file.write)
        observers.append(recorder)
        yield recorder


@contextmanager
def _progress(
    names: Sequence[str], duration_s: float, quiet: bool
) -> Iterator[Callable[[str], Callable[[int], None] | None]]:
    """A bar per policy on a terminal; nothing elsewhere."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda name: None
        return
    columns = (
        TextColumn("{task.description:<18}"),
        BarColumn(bar_width=28),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:

        def start(name: str) -> Callable[[int], None]:
            task = bars.add_task(name, total=duration_s)
            return lambda now_ns: bars.update(task, completed=min(now_ns / NS_PER_S, duration_s))

        yield start


def _write(
    scenario: Scenario,
    request: Request,
    done: Sequence[tuple[Run, Summary]],
    life: Life | None,
    outputs: Outputs,
) -> None:
    console = Console()
    summaries = [summary for _, summary in done]
    report = _report(scenario, request, done)
    if outputs.folder is not None or outputs.html is not None:
        from toolchain.simulate.report import plots

        figures = plots.figures(done)
        if outputs.folder is not None:
            plots.write(figures, outputs.folder)
            text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
            (outputs.folder / "report.json").write_text(text, encoding="utf-8")
        if outputs.html is not None:
            drawn = {name: plots.svg(figure) for name, figure in figures.items()}
            facts = [(k, v) for k, v in _facts(scenario, done[0][0]).items()]
            title = f"{scenario.workload} on {' and '.join(_models(scenario))}"
            outputs.html.write_text(page(title, facts, summaries, drawn), encoding="utf-8")
    if life is not None:
        print("\n".join(life.text()))
    elif outputs.json:
        print(json.dumps(report, indent=1, ensure_ascii=False))
    else:
        if not console.is_terminal:
            console.width = 160
        for name, value in _facts(scenario, done[0][0]).items():
            console.print(f"[dim]{name}:[/] {escape(value)}", highlight=False, soft_wrap=True)
        console.print()
        show(console, summaries)


def _models(scenario: Scenario) -> list[str]:
    return [profile.name for profile in scenario.plan.profiles.values()]


def _report(
    scenario: Scenario, request: Request, done: Sequence[tuple[Run, Summary]]
) -> dict[str, Any]:
    typed = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(request).items()}
    return {
        "format": "volery-simulation",
        "version": _REPORT_VERSION,
        "request": typed,
        "facts": _facts(scenario, done[0][0]),
        "policies": [summary.to_plain() for _, summary in done],
    }


def _facts(scenario: Scenario, first: Run) -> dict[str, str]:
    """What one needs to read the numbers, and to repeat them."""
    plan, behaviour = scenario.plan, scenario.behaviour
    facts = {"workload": f"{scenario.workload}, load {plan.load:g}, {plan.duration_s:g} s"}
    for lane, profile in plan.profiles.items():
        cost = profile.cost
        facts[lane] = (
            f"{profile.host}: {cost.step_ns / 1e6:.3g} ms a step, {cost.token_ns / 1e6:.3g} ms a "
            f"token, {cost.pair_ns:.4g} ns a pair"
        )
    facts |= _slo_facts(first)
    noise = max(
        p.noise if behaviour.noise is None else behaviour.noise for p in plan.profiles.values()
    )
    device = [f"{plan.threads} thread{'s' if plan.threads > 1 else ''}", f"noise {noise:.0%}"]
    if behaviour.thermal_slowdown > 1:
        device.append(f"{behaviour.thermal_slowdown:g} times slower when hot")
    if behaviour.stall_every_s:
        device.append(f"a stall every {behaviour.stall_every_s:g} s")
    device += [f"{factor:g} times slower from {at:g} s" for at, factor in behaviour.changes]
    if scenario.profile_error != 1:
        device.append(f"{scenario.profile_error:g} times slower than its profile")
    facts["device"] = ", ".join(device)
    for i, note in enumerate(first.built.notes):
        facts["note" if not i else f"note {i + 1}"] = note
    facts["seed"] = str(plan.seed)
    return facts


def _slo_facts(first: Run) -> dict[str, str]:
    """Who calls what in time; tenants of equal objectives are named once."""
    facts: dict[str, str] = {}
    for source in first.built.sources:
        slo = ", ".join(
            f"{k.removesuffix('_ms')} {v:,.0f} ms" for k, v in source.slo._asdict().items() if v
        )
        who = f"SLO of the {source.traffic.name.lower()} class"
        if source.tenant == "huge":
            who += ", huge"
        several = len(first.scenario.plan.profiles) > 1
        facts.setdefault(f"{who}, {source.lane}" if several else who, slo)
    return facts
