"""The contents of a language model's artifact."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime_py.executors.weights import WeightSource
from runtime_py.program import OpKind, Program
from toolchain.export.quantized_graph import write_quantized_graph
from toolchain.pack import Contents
from toolchain.pack.cost_profile import measure_decoder
from toolchain.pack.goldens import decoder_goldens_json
from toolchain.prepare_decoder import PreparedDecoder
from toolchain.quantize.decoder import QuantizedDecoder, quantize_decoder
from toolchain.quantize.schemes import DecoderScheme, find_decoder_scheme
from toolchain.stages import Stages
from toolchain.verify.backends import reference_executor, wasm_executor
from toolchain.verify.language import LanguageReport, compare_language
from toolchain.verify.measure import memory_weights

DEFAULT_ACTIVATION_BITS = 16
TEMPLATE = "chat_template.jinja"


def decoder_contents(
    prepared: PreparedDecoder,
    scheme: str,
    activation_bits: int | None,
    stages: Stages,
    *,
    allow_accuracy_loss: bool,
    quantized_graph: Path | None = None,
) -> tuple[Contents, LanguageReport]:
    """Quantize the model and compare its predictions with the f32 graph's.

    Args:
        quantized_graph: folder to write the quantized ONNX graph to.

    Raises:
        AccuracyGate: it lost more than ``scheme`` allows.
    """
    chosen, lowered = find_decoder_scheme(scheme), prepared.lowered
    bits = activation_bits or DEFAULT_ACTIVATION_BITS
    with stages("quantize"):
        quantized = quantize_decoder(
            lowered.program,
            lowered.weights,
            chosen,
            activation_bits=bits,
            codes=prepared.codes if chosen.levels else None,
            calibration=lambda: prepared.calibration,
            progress=stages.advance,
        )
        model = quantized.model
        if quantized_graph is not None:
            out = quantized_graph / f"model.{chosen.name}.onnx"
            write_quantized_graph(
                prepared.onnx.path, out, model.program, model.parts, lowered.weights
            )
        size = sum(p.nbytes for p in model.parts.values()) / 1e6
        stages.say(f"{_formats(quantized)}, {size:.1f} MB")
    with stages("measure"):
        weights = memory_weights(model)
        report, cost_profile = _measured(prepared, quantized, weights, chosen, stages)
        stages.say(f"perplexity {report.perplexity:.2f} ({report.perplexity_f32:.2f} in f32)")
        if not allow_accuracy_loss:
            report.enforce(chosen.name)
        tolerance = golden_tolerance(chosen, bits)
        goldens = decoder_goldens_json(model.program, weights, prepared.encode, tolerance)
    template = prepared.generation.chat_template
    contents = Contents(
        source=prepared.source,
        task="generate",
        details=_generation(prepared, model.program, has_template=template is not None),
        quantization={
            "name": chosen.name,
            "linear": _formats(quantized),
            "embedding": _table_format(model.program),
            "activations": _activations(model.program),
        },
        model=model,
        max_tokens=prepared.max_context,
        max_tokens_source=prepared.max_context_source,
        tokenizer=prepared.tokenizer,
        goldens=goldens,
        numerics=report.manifest(),
        cost_profile=cost_profile,
        files={} if template is None else {TEMPLATE: template.encode()},
    )
    return contents, report


def golden_tolerance(scheme: DecoderScheme, activation_bits: int) -> float:
    """Least cosine between any backend's logits and the goldens.

    With 8-bit activations a last digit decides which way a code is rounded, and what
    follows amplifies it.
    """
    return 0.995 if scheme.levels and activation_bits == 8 else 0.9999


def _measured(
    prepared: PreparedDecoder,
    quantized: QuantizedDecoder,
    weights: WeightSource,
    scheme: DecoderScheme,
    stages: Stages,
) -> tuple[LanguageReport, Mapping[str, Any] | None]:
    """The comparison, and the cost profile where the wasm backend runs."""
    program = quantized.model.program
    expected = prepared.expected
    stages.advance(0.2)
    wasm = wasm_executor(program, weights)
    executor = wasm or reference_executor(program, weights)
    try:
        report = compare_language(
            executor,
            prepared.graph,
            expected,
            prepared.sample,
            prepared.prompts,
            scheme,
            quantized.losses,
            eos=prepared.generation.eos_token_ids,
            max_context=prepared.max_context,
            decode=prepared.text_tokenizer.decode,
        )
        stages.advance(0.6)
        profile = None
        if wasm is not None:
            profile = measure_decoder(wasm, prepared.max_context, program.vocab_size)
        stages.advance(0.8)
    finally:
        executor.close()
    return report, profile


def _generation(
    prepared: PreparedDecoder, program: Program, *, has_template: bool
) -> dict[str, Any]:
    """The manifest's ``generation`` object."""
    spec = prepared.generation
    kv_width = sum(
        2 * op.uint("kv_heads") * op.uint("head_dim")
        for op in program.ops
        if op.kind is OpKind.CACHE
    )
    return {
        "eos_token_ids": spec.eos_token_ids,
        "bos_token": spec.bos_token,
        "eos_token": spec.eos_token,
        "max_context": prepared.max_context,
        "kv_bytes_per_token": 4 * kv_width,
        "chat_template": TEMPLATE if has_template else None,
    }


def _formats(quantized: QuantizedDecoder) -> str:
    """Formats of the layers' weights, the most frequent first."""
    program = quantized.model.program
    names = [
        program.tensors[op.tensor("weight")].format.name
        for op in program.ops
        if op.kind is OpKind.LINEAR
    ][:-1]
    return " + ".join(sorted(set(names), key=lambda n: -names.count(n)))


def _activations(program: Program) -> str:
    """How the inputs of linear ops are rounded."""
    bits = [op.uint("activation_bits") for op in program.ops if op.kind is OpKind.LINEAR]
    if not any(bits):
        return "f32"
    wide = f", i16 in {bits.count(16)} of {len(bits)} linear ops" if len(set(bits)) > 1 else ""
    return f"i{min(filter(None, bits))} block 32{wide}"


def _table_format(program: Program) -> str:
    embed = next(op for op in program.ops if op.kind is OpKind.EMBED)
    return program.tensors[embed.tensor("table")].format.name
