"""From a model's name to an artifact: resolve, export, lower, quantize, measure, pack."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolchain.stages import Progress, Stages

if TYPE_CHECKING:
    from toolchain.export.types import Exporter, Optimizer
    from toolchain.prepare import PreparedModel
    from toolchain.verify.numerics import NumericsReport
    from toolchain.verify.verify import Verified

STAGES = ("resolve", "export", "lower", "quantize", "measure", "pack")


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export made.

    Attributes:
        path: the artifact's folder.
        total_bytes: of all its files.
        numerics: the measured accuracy.
        verified: the checks that the finished folder passed.
        seconds: stage -> duration.
        onnx_path: the f32 graph, if it was kept.
        versions: packages that took part in the export.
        notes: what the reader should know.
    """

    path: Path
    model_id: str
    scheme: str
    total_bytes: int
    numerics: NumericsReport
    verified: Verified
    seconds: Mapping[str, float]
    onnx_path: Path | None
    versions: Mapping[str, str]
    notes: tuple[str, ...]


def export_model(
    spec: str,
    out_dir: str | Path,
    *,
    scheme: str = "i8",
    exporter: Exporter = "optimum",
    opset: int | None = None,
    optimize: Optimizer = "none",
    revision: str | None = None,
    offline: bool | None = None,
    keep_onnx: bool = False,
    allow_accuracy_loss: bool = False,
    max_tokens: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> ExportReport:
    """Export the model that ``spec`` names to an artifact in ``out_dir``.

    Args:
        spec: a directory, an installed model package, a hub id or an ONNX file.
        scheme: "f32", "f16", "i8" or "i4".
        keep_onnx: keep the f32 graph beside the artifact, in ``<out_dir>.onnx/``.
        allow_accuracy_loss: write the artifact even if it misses its accuracy gate.
        max_tokens: a lower length limit than the model's own.
        force: replace an artifact that is already in ``out_dir``.
        progress: told what happens.

    Raises:
        VoleryError: one line that says what is wrong with the model or the arguments;
            ``out_dir`` is then as it was before.
    """
    from toolchain.pack import check_target
    from toolchain.prepare import prepare_model
    from toolchain.quantize import find_scheme

    find_scheme(scheme)
    target = Path(out_dir)
    check_target(target, force=force)
    stages = Stages(progress)
    with tempfile.TemporaryDirectory(prefix="volery-") as scratch:
        prepared = prepare_model(
            spec,
            Path(scratch),
            stages,
            exporter=exporter,
            opset=opset,
            optimize=optimize,
            revision=revision,
            offline=offline,
            max_tokens=max_tokens,
        )
        report = build_artifact(
            prepared,
            target,
            scheme=scheme,
            allow_accuracy_loss=allow_accuracy_loss,
            force=force,
            stages=stages,
        )
        if not keep_onnx:
            return report
        graph = prepared.keep_graph(target.with_name(target.name + ".onnx"))
        return replace(report, onnx_path=graph)


def build_artifact(
    prepared: PreparedModel,
    target: Path,
    *,
    scheme: str = "i8",
    allow_accuracy_loss: bool = False,
    force: bool = False,
    stages: Stages | None = None,
) -> ExportReport:
    """Quantize a prepared model, measure it, and write the artifact.

    Raises:
        AccuracyGate: it lost more than its scheme allows; nothing was written.
        InvalidInput: ``target`` must not be replaced, or ``scheme`` is unknown.
    """
    from toolchain.pack import Contents, write_artifact
    from toolchain.pack.goldens import goldens_json
    from toolchain.quantize import find_scheme, quantize
    from toolchain.verify.measure import measure_model, memory_weights
    from toolchain.verify.verify import verify_artifact

    stages = stages or Stages(None)
    chosen, lowered = find_scheme(scheme), prepared.lowered
    with stages("quantize"):
        model = quantize(
            lowered.program,
            lowered.weights,
            chosen,
            prepared.calibration if chosen.levels else (),
            stages.advance,
        )
        stages.say(f"{chosen.name}, {sum(p.nbytes for p in model.parts.values()) / 1e6:.1f} MB")
    with stages("measure"):
        expected = prepared.expected
        stages.advance(0.6)
        measured = measure_model(model, chosen, prepared.evaluation, expected)
        stages.say(f"worst cosine {measured.numerics.worst_cosine:.6f}")
    if not allow_accuracy_loss:
        measured.numerics.enforce(chosen.name)
    with stages("pack"):
        contents = Contents(
            source=prepared.source,
            pipeline=prepared.pipeline,
            scheme=chosen,
            model=model,
            max_tokens=prepared.max_tokens,
            max_tokens_source=prepared.max_tokens_source,
            tokenizer=prepared.tokenizer,
            goldens=goldens_json(
                model.program, memory_weights(model), prepared.encode, chosen.golden_cosine
            ),
            numerics=measured.numerics.manifest(),
            cost_profile=measured.cost_profile,
        )
        checks: list[Verified] = []
        total = write_artifact(
            target,
            contents,
            force=force,
            check=lambda folder: checks.append(verify_artifact(folder)),
        )
        stages.say(f"{total / 1e6:.1f} MB")
    return ExportReport(
        path=target,
        model_id=prepared.source.model_id,
        scheme=chosen.name,
        total_bytes=total,
        numerics=measured.numerics,
        verified=checks[0],
        seconds=stages.seconds,
        onnx_path=None,
        versions=prepared.onnx.versions,
        notes=(*prepared.pipeline.notes, *lowered.notes),
    )
