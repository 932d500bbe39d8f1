"""A language model made ready once, from which artifacts of any quantization are built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from runtime_py.chat import ChatTemplate, check_messages, guarded
from runtime_py.generation.tokenizer import HFTextTokenizer
from toolchain.export import OnnxModel
from toolchain.lowering import LoweredModel
from toolchain.quantize.corpus import CALIBRATION, QUESTIONS, passage, texts
from toolchain.quantize.decoder import CodeSource
from toolchain.sources import ModelSource
from toolchain.sources.generation import GenerationSpec
from toolchain.verify.graph import GraphLogits
from toolchain.verify.language import Prompt

SAMPLE_TOKENS = 512
"""Of the passage that accuracy is measured on."""
_CALIBRATION_TEXTS, _CALIBRATION_TOKENS, _CALIBRATION_LENGTH = 400, 4096, 256
_LONGEST_QUESTION = 512


@dataclass(frozen=True)
class PreparedDecoder:
    """A language model found, exported and lowered, with its tokenizer and its corpora.

    Attributes:
        max_context, max_context_source: the artifact's context and what set it.
        tokenizer: content of ``tokenizer.json``.
    """

    source: ModelSource
    generation: GenerationSpec
    onnx: OnnxModel
    lowered: LoweredModel
    max_context: int
    max_context_source: str
    tokenizer: bytes

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader of a report should know about the source."""
        if self.generation.chat_template is None:
            return ("the model has no chat template: it continues texts, and cannot chat",)
        return ()

    @cached_property
    def text_tokenizer(self) -> HFTextTokenizer:
        """What the runtime makes of `tokenizer`."""
        return HFTextTokenizer(self.tokenizer.decode())

    def encode(self, items: Sequence[str]) -> list[list[int]]:
        """Token ids of each text as a prompt, cut to the context."""
        return [self.text_tokenizer.encode(t)[: self.max_context] for t in items]

    @cached_property
    def codes(self) -> CodeSource | None:
        """The codes that a GGUF file holds."""
        if self.source.gguf_path is None:
            return None
        from toolchain.sources.gguf import BlockImport, GgufFile

        return BlockImport(GgufFile(self.source.gguf_path))

    @cached_property
    def calibration(self) -> list[list[int]]:
        """Ids of the texts that quantization may learn from, joined to longer ones."""
        longest = min(_CALIBRATION_LENGTH, self.max_context)
        ids = [
            i
            for text in texts(CALIBRATION, _CALIBRATION_TEXTS)
            for i in self.text_tokenizer.encode(text)
        ][:_CALIBRATION_TOKENS]
        return [ids[at : at + longest] for at in range(0, len(ids), longest)]

    @cached_property
    def sample(self) -> list[int]:
        """Ids of the passage that accuracy is measured on."""
        (ids,) = self.encode([passage()])
        return ids[:SAMPLE_TOKENS]

    @cached_property
    def graph(self) -> GraphLogits:
        """The f32 graph, loaded."""
        return GraphLogits(self.onnx.path)

    @cached_property
    def expected(self) -> npt.NDArray[np.float32]:
        """Logits of `sample` as the f32 graph gives them, [tokens, vocabulary]."""
        return self.graph(self.sample)

    @cached_property
    def prompts(self) -> list[Prompt]:
        """The questions whose greedy answers are compared: as chats, if the model chats."""
        tokenizer, spec = self.text_tokenizer, self.generation
        longest = min(_LONGEST_QUESTION, self.max_context // 2)
        if spec.chat_template is None:
            return [Prompt(q, tokenizer.encode(q)[:longest]) for q in QUESTIONS]
        template = ChatTemplate(
            spec.chat_template, bos_token=spec.bos_token or "", eos_token=spec.eos_token or ""
        )
        prompts = []
        for question in QUESTIONS:
            messages = check_messages([{"role": "user", "content": question}])
            safe, guard = guarded(messages, tokenizer.control_tokens)
            ids = tokenizer.encode_chat(template.render(safe), guard)
            prompts.append(Prompt(question, ids[:longest]))
        return prompts
