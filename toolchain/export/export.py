"""One call from a model source to a verified ONNX graph."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import onnx

from runtime_py.errors import ArtifactError, InvalidInput, VoleryError
from toolchain.export.dynamo_exporter import OPSETS, export_dynamo
from toolchain.export.graph_file import EXTERNAL_DATA_BYTES, read_graph, write_graph
from toolchain.export.load import load_torch_model
from toolchain.export.optimum_exporter import DEFAULT_OPSET, export_optimum
from toolchain.export.ort_optimizer import optimize as ort_optimize
from toolchain.export.quiet import quiet
from toolchain.export.repair import repair
from toolchain.export.types import Exporter, OnnxModel, Optimizer
from toolchain.export.verify import verify_graph
from toolchain.sources.architectures import Task
from toolchain.sources.source import ModelSource

_PACKAGES = (
    "torch",
    "transformers",
    "optimum",
    "optimum-onnx",
    "onnx",
    "onnxscript",
    "onnxruntime",
)


def export_onnx(
    source: ModelSource,
    out_dir: str | Path,
    *,
    exporter: Exporter = "optimum",
    opset: int | None = None,
    optimize: Optimizer = "none",
    external_data_bytes: int = EXTERNAL_DATA_BYTES,
    progress: Callable[[float], None] | None = None,
) -> OnnxModel:
    """Export ``source`` to ``out_dir / "model.onnx"`` and prove it against PyTorch.

    An encoder's graph yields ``last_hidden_state``, a language model's ``logits``, of every
    token: it has no key-value cache, which is the runtime's business.

    Args:
        exporter: "optimum" traces with TorchScript (eager attention), "dynamo" uses
            torch.export (fused attention stays whole at opset 23).
        opset: None is 18, which every exporter and engine handles.
        optimize: "ort" runs ONNX Runtime's transformer optimizer on the graph.
        external_data_bytes: weights beyond this many bytes go to a file beside the graph.
        progress: called with the share of the work that is done, 0 to 1.

    A source that already is a graph is returned as it is.

    Raises:
        ArtifactMissing, ArtifactCorrupt: weights or graph cannot be read.
        ArtifactError: the exporter failed, or its graph differs from PyTorch.
        InvalidInput: an unknown exporter, or an opset it does not write.
    """
    if source.onnx_path is not None:
        model = read_graph(source.onnx_path)
        return OnnxModel(source.onnx_path, "given", opset_of(model), _versions())
    chosen = _check_options(exporter, opset, optimize, source.task)
    report = progress or (lambda share: None)
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    with quiet():
        report(0.02)
        model = load_torch_model(source, fused_attention=exporter == "dynamo")
        report(0.25)
        writer = _export(model, path, exporter, chosen, source.task)
        report(0.75)
        graph = repair(onnx.load(str(path)))
        if optimize == "ort":
            write_graph(graph, path, external_data_bytes)
            config = model.config
            graph = ort_optimize(path, config.num_attention_heads, config.hidden_size)
        _remove_strays(folder, path)
        write_graph(graph, path, external_data_bytes)
        del graph
        report(0.85)
        worst = verify_graph(
            path,
            model,
            task=source.task,
            vocab_size=model.config.vocab_size,
            pad_token_id=model.config.pad_token_id or 0,
        )
    return OnnxModel(path, writer, chosen, _versions(), worst)


def opset_of(model: onnx.ModelProto) -> int:
    """Version of the default operator set that ``model`` imports."""
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)


def _export(model: Any, path: Path, exporter: Exporter, opset: int, task: Task) -> str:
    try:
        if exporter == "optimum":
            return export_optimum(model, path, opset, task)
        return export_dynamo(model, path, opset, task)
    except VoleryError:
        raise
    except Exception as error:
        text = str(error).strip().splitlines()
        versions = ", ".join(f"{k} {v}" for k, v in _versions().items())
        raise ArtifactError(
            f"{exporter} cannot export a {model.config.model_type} at opset {opset} "
            f"({(text or [type(error).__name__])[0][:300]}); installed: {versions}"
        ) from None


def _check_options(exporter: str, opset: int | None, optimize: str, task: Task) -> int:
    if exporter not in ("optimum", "dynamo"):
        raise InvalidInput(f"exporter {exporter!r}, expected 'optimum' or 'dynamo'")
    if optimize not in ("none", "ort"):
        raise InvalidInput(f"optimize {optimize!r}, expected 'none' or 'ort'")
    if optimize == "ort" and task == "generate":
        raise InvalidInput(
            "optimize='ort' fuses encoders only, and this is a language model; expected 'none'"
        )
    chosen = DEFAULT_OPSET if opset is None else opset
    if not OPSETS[0] <= chosen <= OPSETS[1]:
        raise InvalidInput(f"opset {chosen}, expected {OPSETS[0]} to {OPSETS[1]}")
    return chosen


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _remove_strays(folder: Path, path: Path) -> None:
    """Data files that the exporter wrote; the graph holds their content by now."""
    for name in (path.name + ".data", path.name + "_data"):
        (folder / name).unlink(missing_ok=True)
