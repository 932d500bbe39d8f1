"""A model made ready once, from which artifacts of any quantization are built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from runtime_py.errors import InvalidInput
from runtime_py.tokenization import HFTokenizer
from toolchain.export import OnnxModel, export_onnx
from toolchain.export.types import Exporter, Optimizer
from toolchain.lowering import LoweredModel, lower, lower_decoder
from toolchain.pack.tokenizer import tokenizer_json
from toolchain.prepare_decoder import PreparedDecoder
from toolchain.quantize.corpus import CALIBRATION, EVALUATION, QUESTIONS, passage, texts
from toolchain.quantize.schemes import check_activation_bits
from toolchain.sources import ModelSource, resolve
from toolchain.sources.generation import GenerationSpec, read_generation
from toolchain.sources.pipeline import EmbeddingPipeline, read_pipeline
from toolchain.stages import Stages
from toolchain.verify.oracle import graph_embeddings

CALIBRATION_TEXTS, CALIBRATION_TOKENS = 320, 96
"""How many texts quantization is calibrated on, and where each is cut."""
EVALUATION_TEXTS = 256
_UNLIMITED_TOKENS = 8192


@dataclass(frozen=True)
class PreparedModel:
    """A model found, exported and lowered, with its tokenizer and its corpora.

    Attributes:
        max_tokens, max_tokens_source: the length limit and what set it.
        tokenizer: content of ``tokenizer.json``.
    """

    source: ModelSource
    pipeline: EmbeddingPipeline
    onnx: OnnxModel
    lowered: LoweredModel
    max_tokens: int
    max_tokens_source: str
    tokenizer: bytes

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader of a report should know about the source."""
        return tuple(self.pipeline.notes)

    def encode(self, items: Sequence[str], cut: int | None = None) -> list[list[int]]:
        """Token ids of each text, special tokens added, cut to the limit (or to ``cut``)."""
        limit = min(cut or self.max_tokens, self.max_tokens)
        return [e.ids for e in HFTokenizer(self.tokenizer.decode(), limit).encode(items)]

    @cached_property
    def calibration(self) -> list[list[int]]:
        """Ids of the texts that quantization may learn from."""
        found = self.encode(texts(CALIBRATION, CALIBRATION_TEXTS), CALIBRATION_TOKENS)
        return [ids for ids in found if ids]

    @cached_property
    def evaluation(self) -> list[list[int]]:
        """Ids of the texts that accuracy is measured on."""
        return [ids for ids in self.encode(texts(EVALUATION, EVALUATION_TEXTS)) if ids]

    @cached_property
    def expected(self) -> npt.NDArray[np.float64]:
        """Embeddings of `evaluation` as the f32 graph gives them, [texts, dimensions]."""
        return graph_embeddings(
            self.onnx.path, self.pipeline, self.lowered.program, self.evaluation
        )


def prepare_model(
    spec: str,
    scratch: Path,
    stages: Stages,
    *,
    exporter: Exporter = "optimum",
    opset: int | None = None,
    optimize: Optimizer = "none",
    revision: str | None = None,
    offline: bool | None = None,
    max_tokens: int | None = None,
    activation_bits: int | None = None,
) -> PreparedModel | PreparedDecoder:
    """Resolve, export and lower the model that ``spec`` names.

    Args:
        scratch: folder for the graph; it must outlive the result.
        max_tokens: a lower length limit than the model's own.
        activation_bits: refused at once where it does not suit the model.

    Returns:
        A `PreparedDecoder` for a causal language model, else a `PreparedModel`.

    Raises:
        VoleryError: see the stages' own functions.
    """
    with stages("resolve"):
        source = resolve(spec, revision=revision, offline=offline)
        check_activation_bits(activation_bits, source.task)
        stages.advance(0.3)
        details: EmbeddingPipeline | GenerationSpec
        if source.task == "generate":
            details = read_generation(source)
            own, lower_case = details.max_context, False
            samples = [passage(), *QUESTIONS]
        else:
            details = read_pipeline(source)
            own = min(details.max_tokens, details.max_positions or _UNLIMITED_TOKENS)
            lower_case = details.do_lower_case
            samples = texts(EVALUATION, EVALUATION_TEXTS)
        limit, limit_source = _limit(own, details.max_tokens_source, max_tokens)
        tokenizer = tokenizer_json(source, lower_case=lower_case, samples=samples)
        stages.say(f"{source.model_id} ({source.architecture})")
    with stages("export"):
        onnx = export_onnx(
            source,
            scratch,
            exporter=exporter,
            opset=opset,
            optimize=optimize,
            progress=stages.advance,
        )
        stages.say(f"{onnx.exporter}, opset {onnx.opset}")
    with stages("lower"):
        if isinstance(details, GenerationSpec):
            lowered = lower_decoder(onnx.path, source.config())
        else:
            lowered = lower(onnx.path, details)
        stages.say(f"{len(lowered.program.ops)} ops")
    if isinstance(details, GenerationSpec):
        return PreparedDecoder(source, details, onnx, lowered, limit, limit_source, tokenizer)
    return PreparedModel(source, details, onnx, lowered, limit, limit_source, tokenizer)


def _limit(own: int, own_source: str, asked: int | None) -> tuple[int, str]:
    """The artifact's length limit in tokens and where it comes from."""
    if asked is None:
        return own, own_source
    if not 3 <= asked <= own:
        raise InvalidInput(
            f"max_tokens is {asked}, expected 3 to {own}, the limit of the model ({own_source})"
        )
    return asked, "export option"
