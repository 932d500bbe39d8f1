"""``toolchain simulate``: the production scheduler under a virtual clock, beside others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolchain.simulate.options import Outputs, Request, Runs


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(simulate)


def simulate(
    workload: Annotated[
        str,
        typer.Argument(
            help="poisson, bursts, closed-loop, diurnal, flash-crowd, huge-request, "
            "flooding-tenant, mixed, bulk-flood, bulk-trickle, azure-code or azure-conv."
        ),
    ] = "poisson",
    profile: Annotated[
        list[str] | None,
        typer.Option(
            "--profile",
            help="A device: minilm or smollm2, a file of `toolchain bench --profile`, or an "
            "artifact. Twice for an embedding and a language model on one device.",
            show_default="minilm",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", help="A policy to run. May be repeated.", show_default="volery"),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Run every policy that can serve the workload.")
    ] = False,
    padded: Annotated[
        bool,
        typer.Option("--padded", help="Servers that pad in their usual set-up pad here, too."),
    ] = False,
    load: Annotated[
        float, typer.Option(min=0.01, max=100, help="Work offered, of what the device can do.")
    ] = 0.8,
    duration: Annotated[
        float, typer.Option(min=0.1, max=1e6, help="Seconds for which requests arrive.")
    ] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    slo_ms: Annotated[
        float,
        typer.Option(min=0, help="Latency (or TTFT) that counts as in time.", show_default="scale"),
    ] = 0.0,
    slo_scale: Annotated[
        float, typer.Option(min=1, help="... as a multiple of what the mean request takes alone.")
    ] = 10.0,
    clients: Annotated[int, typer.Option(min=1, help="Of the closed loop.")] = 1,
    think: Annotated[float, typer.Option(min=0, help="Seconds that each of them thinks.")] = 0.0,
    trace: Annotated[
        Path | None,
        typer.Option(help="A trace to replay instead of the sample.", show_default=False),
    ] = None,
    time_scale: Annotated[
        float,
        typer.Option(
            min=0, help="By which a trace's times are multiplied.", show_default="by load"
        ),
    ] = 0.0,
    threads: Annotated[int, typer.Option(min=1, max=256, help="Of the device.")] = 1,
    concurrent_steps: Annotated[
        int, typer.Option(min=1, max=256, help="Steps that it runs at once.")
    ] = 1,
    noise: Annotated[
        float | None,
        typer.Option(min=0, max=2, help="Relative, of a step's time.", show_default="profile"),
    ] = None,
    thermal: Annotated[
        float, typer.Option(min=1, help="How many times slower it is when it is hot.")
    ] = 1.0,
    stalls: Annotated[
        float, typer.Option(min=0, help="Seconds between stalls of 50 ms; 0 = none.")
    ] = 0.0,
    slow_at: Annotated[
        list[str] | None,
        typer.Option(
            help="SECOND:FACTOR, from when on it is so many times slower. May be repeated.",
            show_default=False,
        ),
    ] = None,
    profile_error: Annotated[
        float, typer.Option(min=0.01, help="It is so many times slower than the profile says.")
    ] = 1.0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for plots (PNG and SVG) and report.json."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="File for a self-contained page.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    record: Annotated[
        Path | None,
        typer.Option(help="File for the trace of the first policy.", show_default=False),
    ] = None,
    explain: Annotated[
        int | None,
        typer.Option(min=0, help="Print the life of this request instead.", show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Simulate a server: the production scheduler, or models of others, on a virtual clock.

    Loads, service level objectives and the scaling of traces are relative to the device
    profile. The same seed gives the same report.
    """
    from toolchain.simulate.command import main

    main(
        Request(
            workload=workload,
            profiles=tuple(profile or ("minilm",)),
            load=load,
            duration_s=duration,
            seed=seed,
            slo_ms=slo_ms,
            slo_scale=slo_scale,
            clients=clients,
            think_s=think,
            trace=trace,
            time_scale=time_scale,
            threads=threads,
            concurrent_steps=concurrent_steps,
            noise=noise,
            thermal=thermal,
            stalls=stalls,
            slow_at=tuple(slow_at or ()),
            profile_error=profile_error,
        ),
        Runs(tuple(policy or ()), compare, padded),
        Outputs(output, html, json, record, explain, quiet),
    )
