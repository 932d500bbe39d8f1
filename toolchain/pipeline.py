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
    from toolchain.pack import Contents
    from toolchain.prepare import PreparedModel
    from toolchain.prepare_decoder import PreparedDecoder
    from toolchain.verify.language import LanguageReport
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
        onnx_path: the f32 graph, if it was kept; a language model's quantized graph lies
            beside it.
        versions: packages that took part in the export.
        notes: what the reader should know.
    """

    path: Path
    model_id: str
    scheme: str
    total_bytes: int
    numerics: NumericsReport | LanguageReport
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
    activation_bits: int | None = None,
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
        spec: a directory, an installed model package, a hub id, a GGUF or an ONNX file.
        scheme: "f32", "f16", "i8" or "i4".
        activation_bits: of a quantized language model's activations: 16 (the default) or 8.
        keep_onnx: keep the f32 graph beside the artifact, in ``<out_dir>.onnx/``, and a
            language model's quantized graph with it.
        allow_accuracy_loss: write the artifact even if it misses its accuracy gate.
        max_tokens: a lower length limit than the model's own.
        force: replace an artifact that is already in ``out_dir``.
        progress: told what happens.

    Raises:
        VoleryError: one line that says what is wrong with the model or the arguments;
            ``out_dir`` is then as it was before.
    """
    from toolchain.export.graph_file import copy_graph
    from toolchain.pack import check_target
    from toolchain.prepare import prepare_model
    from toolchain.quantize import find_scheme
    from toolchain.quantize.schemes import check_activation_bits

    find_scheme(scheme)
    check_activation_bits(activation_bits)
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
            activation_bits=activation_bits,
        )
        graphs = target.with_name(target.name + ".onnx") if keep_onnx else None
        report = build_artifact(
            prepared,
            target,
            scheme=scheme,
            activation_bits=activation_bits,
            allow_accuracy_loss=allow_accuracy_loss,
            force=force,
            quantized_graph=graphs,
            stages=stages,
        )
        if graphs is None:
            return report
        return replace(report, onnx_path=copy_graph(prepared.onnx.path, graphs))


def build_artifact(
    prepared: PreparedModel | PreparedDecoder,
    target: Path,
    *,
    scheme: str = "i8",
    activation_bits: int | None = None,
    allow_accuracy_loss: bool = False,
    force: bool = False,
    quantized_graph: Path | None = None,
    stages: Stages | None = None,
) -> ExportReport:
    """Quantize a prepared model, measure it, and write the artifact.

    Args:
        quantized_graph: folder for a language model's quantized ONNX graph.

    Raises:
        AccuracyGate: it lost more than its scheme allows; nothing was written.
        InvalidInput: ``target`` must not be replaced, ``scheme`` is unknown, or an
            encoder is asked for another width of its activations than 8 bits.
    """
    from toolchain.assemble import decoder_contents, encoder_contents
    from toolchain.pack import write_artifact
    from toolchain.prepare_decoder import PreparedDecoder
    from toolchain.verify.verify import verify_artifact

    stages = stages or Stages(None)
    contents: Contents
    numerics: NumericsReport | LanguageReport
    if isinstance(prepared, PreparedDecoder):
        contents, numerics = decoder_contents(
            prepared,
            scheme,
            activation_bits,
            stages,
            allow_accuracy_loss=allow_accuracy_loss,
            quantized_graph=quantized_graph,
        )
    else:
        contents, numerics = encoder_contents(
            prepared, scheme, activation_bits, stages, allow_accuracy_loss=allow_accuracy_loss
        )
    with stages("pack"):
        stages.advance(0.1)
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
        scheme=scheme,
        total_bytes=total,
        numerics=numerics,
        verified=checks[0],
        seconds=stages.seconds,
        onnx_path=None,
        versions=prepared.onnx.versions,
        notes=(*prepared.notes, *prepared.lowered.notes),
    )
