"""Every executor over the same small encoder, for tests of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from runtime_py.executors.base import ExecutorLimits, ModelExecutor
from runtime_py.executors.onnxruntime import EmbeddingSpec, OnnxRuntimeExecutor
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.wasmtime import WasmtimeExecutor
from runtime_py.program import TensorFormat
from tests.ops.cases import normal
from tests.ops.cases.encoder import POSITIONS, VOCAB, WIDTH, encoder, weights_of

MAX_TOKENS, MAX_SEQS = 500, 8


def _reference(folder: Path) -> ModelExecutor:
    program, parts = encoder(TensorFormat.I8B32)
    limits = ExecutorLimits(MAX_TOKENS, MAX_SEQS, threads=1, concurrent_steps=1)
    return ReferenceExecutor.from_weights(program, weights_of(program, parts), limits=limits)


def _wasmtime(threads: int) -> Callable[[Path], ModelExecutor]:
    def make(folder: Path) -> ModelExecutor:
        program, parts = encoder(TensorFormat.I8B32)
        return WasmtimeExecutor.from_weights(
            program,
            weights_of(program, parts),
            threads=threads,
            max_tokens=MAX_TOKENS,
            max_seqs=MAX_SEQS,
        )

    return make


def token_graph(path: Path, dtype: int = TensorProto.INT64) -> np.ndarray:
    """An ONNX graph whose token vectors are rows of the table that is returned.

    Padding rows are made loud, so that whoever pools them is found out.
    """
    table = normal(1, VOCAB, WIDTH)
    ids, mask, types = (
        helper.make_tensor_value_info(n, dtype, ["batch", "tokens"])
        for n in ("input_ids", "attention_mask", "token_type_ids")
    )
    nodes = [
        helper.make_node("Add", ["input_ids", "token_type_ids"], ["rows"]),
        helper.make_node("Gather", ["table", "rows"], ["vectors"]),
        helper.make_node("Cast", ["attention_mask"], ["seen"], to=TensorProto.BOOL),
        helper.make_node("Unsqueeze", ["seen", "last"], ["column"]),
        helper.make_node("Where", ["column", "vectors", "loud"], ["last_hidden_state"]),
    ]
    constants = {
        "table": table,
        "last": np.array([-1], np.int64),
        "loud": np.array(1e6, np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "tokens",
        [ids, mask, types],
        [
            helper.make_tensor_value_info(
                "last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", WIDTH]
            )
        ],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path)
    return table


def _onnxruntime(folder: Path) -> ModelExecutor:
    token_graph(folder / "model.onnx")
    return OnnxRuntimeExecutor.from_onnx(
        folder / "model.onnx",
        EmbeddingSpec(),
        vocab_size=VOCAB,
        max_positions=POSITIONS,
        limits=ExecutorLimits(MAX_TOKENS, MAX_SEQS, threads=1, concurrent_steps=1),
    )


EXECUTORS: dict[str, Callable[[Path], ModelExecutor]] = {
    "reference": _reference,
    "onnxruntime": _onnxruntime,
    "wasmtime": _wasmtime(1),
    "wasmtime-threads": _wasmtime(2),
}
