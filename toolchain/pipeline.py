"""From a model's name to an artifact: resolve, export, lower, quantize, measure, pack."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runtime_py.errors import InvalidInput
from toolchain.stages import Progress, Stages

if TYPE_CHECKING:
    from toolchain.export.types import Exporter, Optimizer
    from toolchain.sources.pipeline import EmbeddingPipeline
    from toolchain.verify.numerics import NumericsReport
    from toolchain.verify.verify import Verified

STAGES = ("resolve", "export", "lower", "quantize", "measure", "pack")
CALIBRATION_TEXTS, CALIBRATION_TOKENS = 200, 96
"""How many texts quantization is calibrated on, and where each is cut."""
EVALUATION_TEXTS = 256
_UNLIMITED_TOKENS = 8192


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
    from runtime_py.tokenization import HFTokenizer
    from toolchain.export import export_onnx
    from toolchain.lowering import lower
    from toolchain.pack import Contents, check_target, write_artifact
    from toolchain.pack.goldens import goldens_json
    from toolchain.pack.tokenizer import tokenizer_json
    from toolchain.quantize import find_scheme, quantize
    from toolchain.quantize.corpus import CALIBRATION, EVALUATION, texts
    from toolchain.sources import resolve
    from toolchain.sources.pipeline import read_pipeline
    from toolchain.verify.measure import measure_model, memory_weights
    from toolchain.verify.verify import verify_artifact

    stages = Stages(progress)
    target, chosen = Path(out_dir), find_scheme(scheme)
    check_target(target, force=force)
    samples = texts(EVALUATION, EVALUATION_TEXTS)
    with tempfile.TemporaryDirectory(prefix="volery-") as scratch:
        with stages("resolve"):
            source = resolve(spec, revision=revision, offline=offline)
            pipeline = read_pipeline(source)
            limit, limit_source = _limit(pipeline, max_tokens)
            tokenizer = tokenizer_json(source, lower_case=pipeline.do_lower_case, samples=samples)
            stages.say(f"{source.model_id} ({source.architecture})")

        def encode(items: Sequence[str], cut: int = limit) -> list[list[int]]:
            return [e.ids for e in HFTokenizer(tokenizer.decode(), cut).encode(items)]

        with stages("export"):
            onnx = export_onnx(
                source, Path(scratch), exporter=exporter, opset=opset, optimize=optimize
            )
            stages.say(f"{onnx.exporter}, opset {onnx.opset}")
        with stages("lower"):
            lowered = lower(onnx.path, pipeline)
            stages.say(f"{len(lowered.program.ops)} ops")
        with stages("quantize"):
            calibration = (
                encode(texts(CALIBRATION, CALIBRATION_TEXTS), min(limit, CALIBRATION_TOKENS))
                if chosen.levels
                else []
            )
            model = quantize(
                lowered.program,
                lowered.weights,
                chosen,
                [ids for ids in calibration if ids],
                stages.advance,
            )
            stages.say(f"{chosen.name}, {sum(p.nbytes for p in model.parts.values()) / 1e6:.1f} MB")
        with stages("measure"):
            evaluation = [ids for ids in encode(samples) if ids]
            measured = measure_model(model, chosen, onnx.path, pipeline, evaluation, stages.advance)
            stages.say(f"worst cosine {measured.numerics.worst_cosine:.6f}")
        if not allow_accuracy_loss:
            measured.numerics.enforce(chosen.name)
        with stages("pack"):
            goldens = goldens_json(
                model.program, memory_weights(model), encode, chosen.golden_cosine
            )
            contents = Contents(
                source=source,
                pipeline=pipeline,
                scheme=chosen,
                model=model,
                max_tokens=limit,
                max_tokens_source=limit_source,
                tokenizer=tokenizer,
                goldens=goldens,
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
        kept = _keep_graph(onnx.path, Path(scratch), target) if keep_onnx else None
    return ExportReport(
        path=target,
        model_id=source.model_id,
        scheme=chosen.name,
        total_bytes=total,
        numerics=measured.numerics,
        verified=checks[0],
        seconds=stages.seconds,
        onnx_path=kept,
        versions=onnx.versions,
        notes=(*pipeline.notes, *lowered.notes),
    )


def _limit(pipeline: EmbeddingPipeline, asked: int | None) -> tuple[int, str]:
    """The artifact's length limit in tokens and where it comes from."""
    own = min(pipeline.max_tokens, pipeline.max_positions or _UNLIMITED_TOKENS)
    if asked is None:
        return own, pipeline.max_tokens_source
    if not 3 <= asked <= own:
        raise InvalidInput(
            f"max_tokens is {asked}, expected 3 to {own}, the limit of the model "
            f"({pipeline.max_tokens_source})"
        )
    return asked, "export option"


def _keep_graph(graph: Path, scratch: Path, target: Path) -> Path:
    """Copy the graph, with its external data, to ``<target>.onnx/``."""
    folder = target.with_name(target.name + ".onnx")
    folder.mkdir(parents=True, exist_ok=True)
    made_here = scratch in graph.parents
    files = [f for f in scratch.iterdir() if f.is_file()] if made_here else [graph]
    for file in files:
        shutil.copy2(file, folder / file.name)
    return folder / graph.name
