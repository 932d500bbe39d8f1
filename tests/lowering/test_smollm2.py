"""A real language model, from its GGUF file through ONNX to a program."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from runtime_py.executors.base import ExecutorLimits, SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import MemoryWeights
from runtime_py.program import OpKind
from toolchain.export.load import load_torch_model
from toolchain.lowering import LoweredModel, lower_decoder
from toolchain.sources import ModelSource, resolve
from toolchain.sources.gguf import BlockImport, GgufFile, load_tokenizer

PROMPT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
    "<|im_start|>assistant\n"
)
ANSWER = "The capital of France is Paris.<|im_end|>"
LAYERS, HIDDEN = 30, 576


@pytest.fixture(scope="module")
def source(smollm2_graph: Path) -> ModelSource:
    return resolve("SmolLM2-135M-Instruct")


@pytest.fixture(scope="module")
def lowered(smollm2_graph: Path, source: ModelSource) -> LoweredModel:
    return lower_decoder(smollm2_graph, source.config())


@pytest.fixture(scope="module")
def executor(lowered: LoweredModel) -> Iterator[ReferenceExecutor]:
    parts = {k: w.data.cast("B") for k, w in lowered.weights.items()}
    made = ReferenceExecutor.from_weights(
        lowered.program,
        MemoryWeights(lowered.program, parts),
        dtype="float32",
        limits=ExecutorLimits(128, 4, 1, 1, kv_blocks=4, max_wanted=128),
    )
    yield made
    made.close()


def test_ops_and_weights(lowered: LoweredModel) -> None:
    kinds = Counter(o.kind.name for o in lowered.program.ops)
    assert kinds == {
        "EMBED": 1,
        "NORM": 2 * LAYERS + 1,
        "LINEAR": 4 * LAYERS + 1,
        "GLU": LAYERS,
        "ROPE": LAYERS,
        "CACHE": LAYERS,
        "ATTENTION": LAYERS,
        "ROWS": 2,
    }
    shapes = {n: w.shape for n, w in lowered.weights.items() if ".7." in n}
    assert shapes == {
        "layers.7.input_layernorm.weight": (HIDDEN,),
        "layers.7.self_attn.qkv.weight": (HIDDEN + 2 * 192, HIDDEN),
        "layers.7.self_attn.o_proj.weight": (HIDDEN, HIDDEN),
        "layers.7.post_attention_layernorm.weight": (HIDDEN,),
        "layers.7.mlp.gate_up.weight": (2 * 1536, HIDDEN),
        "layers.7.mlp.down_proj.weight": (HIDDEN, 1536),
    }
    total = sum(w.size for w in lowered.weights.values())
    assert total == 134_515_008 + 32  # the embedding once, and the rotary frequencies
    assert (lowered.program.vocab_size, lowered.program.max_positions) == (49152, 8192)


def test_logits_and_greedy_answer(source: ModelSource, executor: ReferenceExecutor) -> None:
    assert source.gguf_path is not None
    tokenizer = load_tokenizer(GgufFile(source.gguf_path)).tokenizer
    ids = tokenizer.encode(PROMPT).ids

    def step(tokens: list[int], context: int) -> NDArray[np.float32]:
        out = executor.run(
            Step(
                array("i", tokens),
                [SeqRow(0, len(tokens), context)],
                block_tables=[array("i", [2, 0, 3, 1])],
                wanted=range(len(tokens)),
            )
        ).output
        return np.array(out, np.float32)

    got = np.concatenate([step(ids[:19], 0), step(ids[19:], 19)])
    model = load_torch_model(source, fused_attention=False)
    with torch.no_grad():
        want = model(torch.tensor([ids])).logits[0].numpy()
    del model
    np.testing.assert_allclose(got, want, atol=2e-5 * np.abs(want).max(), rtol=0)
    assert np.array_equal(got.argmax(1), want.argmax(1))

    new = [int(got[-1].argmax())]
    while len(new) < 9 and tokenizer.id_to_token(new[-1]) != "<|im_end|>":
        new.append(int(step(new[-1:], len(ids) + len(new) - 1)[0].argmax()))
    assert tokenizer.decode(new, skip_special_tokens=False) == ANSWER


def test_every_row_is_found_in_the_file_again(source: ModelSource, lowered: LoweredModel) -> None:
    assert source.gguf_path is not None
    imported = BlockImport(GgufFile(source.gguf_path))
    program = lowered.program
    weights = [
        program.tensors[o.tensor("weight")].name for o in program.ops if o.kind is OpKind.LINEAR
    ]
    formats = []
    for name in (*weights[:4], *weights[60:64], weights[-1]):
        found = imported.lookup_rows(lowered.weights[name][:2048])
        assert found is not None, name
        assert found.exact
        formats.append(found.rows.format)
    assert formats == ["I4B32"] * 8 + ["S8B32"]
