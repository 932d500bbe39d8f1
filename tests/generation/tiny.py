"""A tiny decoder with random weights on the reference executor, and a character tokenizer."""

from __future__ import annotations

from functools import cache
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from runtime_py.batching import SchedulerConfig, TraceRecorder
from runtime_py.chat import ChatTemplate
from runtime_py.engine import Engine
from runtime_py.executors.base import ExecutorLimits, ModelExecutor
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.generation.generator import GenerationInfo, Generator
from runtime_py.generation.tokenizer import HFTextTokenizer
from runtime_py.info import ModelInfo
from runtime_py.model import Model
from runtime_py.program import TensorFormat
from tests.ops.cases.decoder import POSITIONS, VOCAB, decoder
from tests.ops.cases.encoder import weights_of

SPECIAL = ["<eos>", "<|im_start|>", "<|im_end|>"]
CHARS = [chr(c) for c in (10, *range(32, 127))][: VOCAB - len(SPECIAL)]
TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@cache
def tokenizer_json() -> str:
    """One token a character, then control tokens; unknown characters become ``?``."""
    vocab = {w: i for i, w in enumerate([*SPECIAL, *CHARS])}
    vocab |= {f"x{i}": i for i in range(len(vocab), VOCAB)}
    fast = Tokenizer(models.WordLevel(vocab, unk_token="?"))
    fast.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    fast.decoder = decoders.Fuse()
    fast.add_special_tokens(SPECIAL)
    return str(fast.to_str())


def reference(**limits: int) -> ReferenceExecutor:
    program, parts = decoder(TensorFormat.F32)
    sizes = {
        "max_tokens": 128,
        "max_seqs": 32,
        "threads": 1,
        "concurrent_steps": 1,
        "kv_blocks": 64,
        "max_wanted": 32,
        **limits,
    }
    return ReferenceExecutor.from_weights(
        program, weights_of(program, parts), limits=ExecutorLimits(**sizes)
    )


def make(
    executor: ModelExecutor | None = None,
    *,
    config: SchedulerConfig | None = None,
    recorder: TraceRecorder | None = None,
    eos: tuple[int, ...] = (),
    template: str | None = TEMPLATE,
) -> Model:
    """A model on ``executor``; call it inside the loop."""
    backend = executor or reference()
    engine = Engine(backend, 0, config=config, recorder=recorder, max_context=POSITIONS)
    generator = Generator(
        engine,
        HFTextTokenizer(tokenizer_json()),
        GenerationInfo(VOCAB, POSITIONS, eos, template is not None),
        None if template is None else lambda: ChatTemplate(template, eos_token="<eos>"),
    )
    info: dict[str, Any] = {"id": "tiny", "dimensions": 0, "normalized": False, "max_tokens": 400}
    return Model(engine, None, ModelInfo(**info), generator=generator)


@cache
def greedy(prompt: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
    """The most likely tokens, from the logits of whole sequences: no cache, no scheduler."""
    from array import array

    from runtime_py.executors.base import SeqRow, Step

    executor = reference(max_tokens=POSITIONS)
    ids = list(prompt)
    for _ in range(max_tokens):
        blocks = array("i", range(-(-len(ids) // 32)))
        step = Step(array("i", ids), [SeqRow(0, len(ids))], 1, [blocks], (), [len(ids) - 1], None)
        row = executor.run(step).output.tolist()[0]
        ids.append(row.index(max(row)))
    return tuple(ids[len(prompt) :])
