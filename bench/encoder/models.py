"""The models under test: the i8 artifact, and ONNX Runtime's dynamic int8 of its graph."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MODEL = "all-MiniLM-L6-v2"
HEADS, WIDTH = 12, 384


def export(folder: Path) -> tuple[Path, Path]:
    """The artifact and its f32 graph, exported into ``folder`` unless they are there."""
    artifact, graph = folder / "minilm-i8", folder / "minilm-i8.onnx" / "model.onnx"
    if not (artifact / "manifest.json").exists() or not graph.exists():
        command = [sys.executable, "-m", "toolchain", "export", MODEL, "-o", str(artifact)]
        subprocess.run([*command, "--keep-onnx", "--force"], check=True)
    return artifact, graph


def quantize_dynamic(graph: Path, folder: Path) -> Path:
    """``graph`` fused by ONNX Runtime's optimizer, with its weights quantized to int8."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model

    fused, quantized = folder / "fused.onnx", folder / "int8.onnx"
    optimize_model(
        str(graph), model_type="bert", num_heads=HEADS, hidden_size=WIDTH
    ).save_model_to_file(str(fused))
    quantize_dynamic(
        fused,
        quantized,
        weight_type=QuantType.QInt8,
        # Shape inference stops at the fused ops.
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
    )
    return quantized


def linear_operations_per_token(artifact: Path) -> int:
    """Multiplications and additions of the linear ops, for one token."""
    from runtime_py.program import OpKind, Program, Rows

    program = Program.decode((artifact / "program.bin").read_bytes())
    total = 0
    for op in program.ops:
        if op.kind is OpKind.LINEAR and program.slots[op.out].rows is Rows.TOKENS:
            rows, cols = program.tensors[op.tensor("weight")].shape
            total += 2 * rows * cols
    return total
