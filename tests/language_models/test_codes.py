"""Which codes a GGUF file's mixture of formats becomes in each scheme."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

import runtime_py as rt
from runtime_py.artifact import Artifact
from tests.gguf.builders import write
from tests.gguf.test_models import CASES, COMMON, DECODER, VOCAB, gguf_name, keys, random_model
from tests.gguf.test_tokenizer import TOKENS, bpe_keys
from toolchain.export import export_onnx
from toolchain.lowering import LoweredModel, lower_decoder
from toolchain.pipeline import export_model
from toolchain.quantize.decoder import QuantizedDecoder, quantize_decoder
from toolchain.quantize.formats import decode
from toolchain.quantize.schemes import find_decoder_scheme
from toolchain.sources import resolve
from toolchain.sources.gguf import BlockImport, GgufFile
from toolchain.verify.language import LanguageReport

KINDS = {
    "token_embd": Kind.Q8_0,
    "attn_q": Kind.Q4_1,
    "attn_k": Kind.Q4_1,
    "attn_v": Kind.Q4_1,
    "attn_output": Kind.Q8_0,
    "ffn_gate": Kind.Q5_1,
    "ffn_up": Kind.Q5_1,
    "ffn_down": Kind.Q4_0,
}
MIXED = "blk.1.attn_k.weight"  # five bits among four


@dataclass(frozen=True)
class Mixed:
    """A model of two layers whose matrices come in four formats."""

    path: Path
    lowered: LoweredModel
    codes: BlockImport

    def quantized(self, scheme: str, bits: int = 16) -> QuantizedDecoder:
        return quantize_decoder(
            self.lowered.program,
            self.lowered.weights,
            find_decoder_scheme(scheme),
            activation_bits=bits,
            codes=self.codes,
        )


def write_mixed(path: Path, vocab_size: int = VOCAB, **metadata: Any) -> Path:
    """The file, with further ``metadata``."""
    sizes = {"num_hidden_layers": 2, "intermediate_size": 64, "tie_word_embeddings": True}
    model = random_model(COMMON | CASES["qwen3"][1] | sizes | {"vocab_size": vocab_size})
    floats, blocks = {}, {}
    for name, value in model.named_parameters():
        target, array = gguf_name(name, DECODER), value.detach().numpy()
        kind = KINDS.get(target.split(".")[-2])
        if kind is None:
            floats[target] = array
        else:
            kind = Kind.Q5_1 if target == MIXED else kind
            blocks[target] = (quantize(array, kind), kind)
    more = {"attention.key_length": 16, "attention.value_length": 16}
    meta = keys("qwen3", **more) | {"qwen3.block_count": 2, "qwen3.feed_forward_length": 64}
    return write(path, "qwen3", meta | metadata, floats, blocks)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Mixed:
    folder = tmp_path_factory.mktemp("mixed")
    path = write_mixed(folder / "mixed.gguf")
    source = resolve(str(path))
    graph = export_onnx(source, folder / "graph").path
    return Mixed(path, lower_decoder(graph, source.config()), BlockImport(GgufFile(path)))


def stored(quantized: QuantizedDecoder) -> dict[str, tuple[str, str, bool]]:
    """Tensor -> format, origin, exact; of layer 0, of layer 1's qkv, and of the table."""
    return {
        loss.name.removeprefix("layers.").removesuffix(".weight"): (
            loss.format.name,
            loss.origin,
            loss.max_error == 0,
        )
        for loss in quantized.losses
        if "layers.1.mlp" not in loss.name and "1.self_attn.o" not in loss.name
    }


def test_i4_takes_four_bits_and_rounds_what_has_more(mixed: Mixed) -> None:
    assert stored(mixed.quantized("i4")) == {
        "embed_tokens": ("S8B32", "imported", True),
        "0.self_attn.qkv": ("I4B32", "imported", True),
        "0.self_attn.o_proj": ("S8B32", "imported", True),
        "0.mlp.gate_up": ("I4B32", "rounded", False),
        "0.mlp.down_proj": ("I4B32", "imported", True),
        "1.self_attn.qkv": ("I4B32", "rounded", False),
    }


def test_i8_is_lossless(mixed: Mixed) -> None:
    found = mixed.quantized("i8")
    assert stored(found) == {
        "embed_tokens": ("S8B32", "imported", True),
        "0.self_attn.qkv": ("I8B32", "imported", True),
        "0.self_attn.o_proj": ("S8B32", "imported", True),
        "0.mlp.gate_up": ("I8B32", "imported", True),
        "0.mlp.down_proj": ("I8B32", "imported", True),
        "1.self_attn.qkv": ("I8B32", "imported", True),
    }
    assert all(loss.relative_error == 0 for loss in found.losses)


def test_the_values_are_those_of_the_gguf_package(mixed: Mixed) -> None:
    found = mixed.quantized("i8")
    (down,) = [t for t in found.model.program.tensors if t.name == "layers.0.mlp.down_proj.weight"]
    file = GgufFile(mixed.path)
    truth = dequantize(np.array(file.blocks("blk.0.ffn_down.weight")), Kind.Q4_0)
    assert np.array_equal(decode(down, found.model.parts), truth)


def test_losses_are_measured(mixed: Mixed) -> None:
    found = mixed.quantized("i4")
    (loss,) = [x for x in found.losses if x.name == "layers.0.mlp.gate_up.weight"]
    (tensor,) = [t for t in found.model.program.tensors if t.name == loss.name]
    weight: NDArray[np.float64] = mixed.lowered.weights[loss.name].astype(np.float64)
    difference = decode(tensor, found.model.parts) - weight
    relative = np.sqrt(np.square(difference).mean() / np.square(weight).mean())
    assert loss.relative_error == pytest.approx(relative, rel=1e-4)
    assert loss.max_error == pytest.approx(np.abs(difference).max(), rel=1e-4)
    assert 0.01 < loss.relative_error < 0.1


def test_calibrated_codes_beat_rounded_ones(mixed: Mixed) -> None:
    """On what counts: the output of a layer for inputs like those of the calibration."""
    texts = [np.random.default_rng(i).integers(0, 64, 60).tolist() for i in range(4)]
    asked = []

    def calibration() -> list[list[int]]:
        asked.append(True)
        return texts

    program, weights = mixed.lowered.program, mixed.lowered.weights
    scheme = find_decoder_scheme("i4")
    found = quantize_decoder(program, weights, scheme, codes=mixed.codes, calibration=calibration)
    assert {loss.origin for loss in found.losses} == {"imported", "calibrated"}
    again = quantize_decoder(
        program,
        weights,
        find_decoder_scheme("i8"),
        codes=mixed.codes,
        calibration=calibration,
    )
    assert {loss.origin for loss in again.losses} == {"imported"}
    assert len(asked) == 1  # lossless codes need no texts

    from tests.lowering.generating import chunked_logits

    want = chunked_logits(mixed.lowered, texts[:2], [[60], [60]])

    def error(made: QuantizedDecoder) -> float:
        values = {t.name: decode(t, made.model.parts) for t in made.model.program.tensors}
        got = chunked_logits(LoweredModel(program, values), texts[:2], [[60], [60]])
        return float(sum(np.square(a - b).sum() for a, b in zip(got, want, strict=True)))

    assert error(found) < 0.8 * error(mixed.quantized("i4"))


@pytest.mark.parametrize("scheme", ["f16", "f32"])
def test_float_schemes_import_nothing(mixed: Mixed, scheme: str) -> None:
    found = mixed.quantized(scheme)
    assert {loss.origin for loss in found.losses} <= {"float"}
    assert {t.format.name for t in found.model.program.tensors} <= {"F16", "F32"}


def test_from_the_file_to_an_answer(tmp_path: Path) -> None:
    """Tokenizer, template, ends of an answer and codes all come from the GGUF file."""
    template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    metadata = bpe_keys(pre="smollm") | {
        "tokenizer.chat_template": template,
        "general.license": "mit",
    }
    path = write_mixed(tmp_path / "mixed.gguf", len(TOKENS), **metadata)
    report = export_model(str(path), tmp_path / "out", scheme="i8", max_tokens=100)
    assert isinstance(report.numerics, LanguageReport)
    assert report.numerics.weights.exact == report.numerics.weights.tensors > 8
    assert report.numerics.top1 > 0.99
    manifest = Artifact.open(tmp_path / "out").manifest
    assert manifest.model.license == "mit"
    assert manifest.generation is not None
    assert manifest.generation.eos_token_ids == (0, 2)
    assert (manifest.generation.bos_token, manifest.generation.eos_token) == (
        "<|im_start|>",
        "<|im_end|>",
    )
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == template
    with rt.load_sync(tmp_path / "out", executor="wasmtime") as model:
        reply = model.chat([{"role": "user", "content": "a"}], max_tokens=3)
        assert reply.usage.prompt_tokens == 3
