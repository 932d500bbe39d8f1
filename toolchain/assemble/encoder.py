"""The contents of an embedding model's artifact."""

from __future__ import annotations

from toolchain.pack import Contents
from toolchain.pack.goldens import goldens_json
from toolchain.prepare import PreparedModel
from toolchain.quantize import find_scheme, quantize
from toolchain.quantize.schemes import check_activation_bits
from toolchain.stages import Stages
from toolchain.verify.measure import measure_model, memory_weights
from toolchain.verify.numerics import NumericsReport


def encoder_contents(
    prepared: PreparedModel,
    scheme: str,
    activation_bits: int | None,
    stages: Stages,
    *,
    allow_accuracy_loss: bool,
) -> tuple[Contents, NumericsReport]:
    """Quantize the model and compare its vectors with the f32 graph's.

    Raises:
        AccuracyGate: it lost more than ``scheme`` allows.
        InvalidInput: activations of an encoder have 8 bits.
    """
    check_activation_bits(activation_bits, "embed")
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
        stages.advance(0.9)
        if not allow_accuracy_loss:
            measured.numerics.enforce(chosen.name)
        goldens = goldens_json(
            model.program, memory_weights(model), prepared.encode, chosen.golden_cosine
        )
    contents = Contents(
        source=prepared.source,
        task="embed",
        details=prepared.pipeline.manifest(),
        quantization=chosen.manifest(),
        model=model,
        max_tokens=prepared.max_tokens,
        max_tokens_source=prepared.max_tokens_source,
        tokenizer=prepared.tokenizer,
        goldens=goldens,
        numerics=measured.numerics.manifest(),
        cost_profile=measured.cost_profile,
    )
    return contents, measured.numerics
