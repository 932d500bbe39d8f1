"""A tiny embedding model with real parts: program, weights, tokenizer, artifact."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from runtime_py.batching import SchedulerConfig, TraceRecorder
from runtime_py.engine import Engine
from runtime_py.errors import OutOfMemory
from runtime_py.executors.base import ExecutorLimits, ModelExecutor, SeqStatus, Step, StepResult
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import MemoryWeights
from runtime_py.info import ModelInfo
from runtime_py.model import Model
from runtime_py.program import (
    Activation,
    Op,
    OpKind,
    PoolMode,
    Program,
    Rows,
    Slot,
    Tensor,
    TensorFormat,
    validate,
)
from runtime_py.tokenization import HFTokenizer

WIDTH = 12
MAX_TOKENS = 32
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz0123456789.:"]
_T = TypeVar("_T")


def program() -> Program:
    """embed + positions, linear with tanh, mean, normalize."""
    vocab = len(WORDS)
    return validate(
        Program(
            slots=(
                Slot(Rows.TOKENS, 8),
                Slot(Rows.TOKENS, WIDTH),
                Slot(Rows.SEQS, WIDTH),
                Slot(Rows.SEQS, WIDTH),
            ),
            tensors=(
                Tensor("table", TensorFormat.F32, (vocab, 8)),
                Tensor("positions", TensorFormat.F32, (64, 8)),
                Tensor("weight", TensorFormat.F32, (WIDTH, 8)),
                Tensor("bias", TensorFormat.F32, (WIDTH,)),
            ),
            ops=(
                Op(OpKind.EMBED, 0, (), (0, 1, -1), (0,), (1.0,)),
                Op(OpKind.LINEAR, 1, (0, -1), (2, 3), (Activation.TANH, 0)),
                Op(OpKind.POOL, 2, (1,), (), (PoolMode.MEAN, 0)),
                Op(OpKind.NORMALIZE, 3, (2,), (), (), (1e-12,)),
            ),
            output_slot=3,
            vocab_size=vocab,
            max_positions=64,
        )
    )


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    return {t.name: rng.standard_normal(t.shape).astype(np.float32) for t in program().tensors}


def weights() -> MemoryWeights:
    return MemoryWeights(program(), {k: v.tobytes() for k, v in arrays().items()})


def truth(ids: list[int], pool_skip: int = 0) -> np.ndarray:
    """The embedding in plain float64 numpy, [WIDTH]."""
    a = {k: v.astype(np.float64) for k, v in arrays().items()}
    x = a["table"][ids] + a["positions"][: len(ids)]
    y = np.tanh(x @ a["weight"].T + a["bias"])[pool_skip:].mean(axis=0)
    return y / np.linalg.norm(y)


def tokenizer_json(*, words: bool = False) -> str:
    """[CLS] text [SEP], with padding and truncation set in the file.

    Tokens are characters, or with ``words`` what stands between spaces.
    """
    fast = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    fast.normalizer = normalizers.Lowercase()
    split = pre_tokenizers.WhitespaceSplit()
    if not words:
        split = pre_tokenizers.Sequence([split, pre_tokenizers.Split("", "isolated")])
    fast.pre_tokenizer = split
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    fast.enable_padding(length=20)
    fast.enable_truncation(7)
    return fast.to_str()


def ids_of(text: str, limit: int = MAX_TOKENS) -> list[int]:
    """What the tokenizer must produce, spelled out."""
    words = [c for c in text.lower() if not c.isspace()]
    body = [WORDS.index(c) if c in WORDS else 1 for c in words]
    return [2, *body[: limit - 2], 3]


def reference(**limits: int) -> ReferenceExecutor:
    sizes = {"max_tokens": 256, "max_seqs": 16, "threads": 1, "concurrent_steps": 1, **limits}
    return ReferenceExecutor.from_weights(
        program(), weights(), dtype="float64", limits=ExecutorLimits(**sizes)
    )


class Gate:
    """A `ModelExecutor` that holds each step until the test lets it go.

    The step itself runs on the real executor inside. ``fault`` may replace its result.
    """

    name = "gate"

    def __init__(
        self,
        inner: ModelExecutor | None = None,
        fault: Callable[[Step], BaseException | SeqStatus | None] = lambda step: None,
        *,
        open: bool = False,
    ) -> None:
        self.inner = inner or reference()
        self.fault = fault
        self.open = open
        self.steps: list[Step] = []
        self.held: list[tuple[Step, Callable[[StepResult | BaseException], None]]] = []
        self.closed = 0

    @property
    def limits(self) -> ExecutorLimits:
        return self.inner.limits

    def run(self, step: Step) -> StepResult:
        return self.inner.run(step)

    def submit(self, step: Step, done: Callable[[StepResult | BaseException], None]) -> None:
        self.steps.append(step)
        self.held.append((step, done))
        if self.open:
            self.release()

    def release(self) -> None:
        """Complete the oldest step that is held."""
        step, done = self.held.pop(0)
        fault = self.fault(step)
        if isinstance(fault, BaseException):
            done(fault)
            return
        result = self.inner.run(step)
        if fault is not None:
            statuses = bytes([fault]) + result.statuses[1:]
            result = replace(result, statuses=statuses)
        done(result)

    def close(self) -> None:
        assert not self.held, "closed with steps in flight"
        self.closed += 1
        self.inner.close()


def make(
    executor: ModelExecutor | None = None,
    *,
    config: SchedulerConfig | None = None,
    recorder: TraceRecorder | None = None,
    tokenizer: HFTokenizer | None = None,
    **info: Any,
) -> Model:
    """A model on ``executor``; call it inside the loop."""
    backend = executor or reference()
    engine = Engine(backend, WIDTH, config=config, recorder=recorder)
    facts = {"id": "tiny", "dimensions": WIDTH, "normalized": True, "max_tokens": MAX_TOKENS}
    words = tokenizer or HFTokenizer(tokenizer_json(), MAX_TOKENS)
    return Model(engine, words, ModelInfo(**{**facts, **info}))


def run(test: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine function on a fresh loop, and check that it leaves no task behind."""

    async def main() -> _T:
        loop = asyncio.get_running_loop()
        problems: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: problems.append(context))
        result = await asyncio.wait_for(test(), 60)
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left
        assert not problems, problems
        return result

    return asyncio.run(main())


async def settle() -> None:
    """Let everything run that is ready."""
    for _ in range(10):
        await asyncio.sleep(0)


def too_large(limit: int) -> Callable[[Step], BaseException | None]:
    """A fault: steps of more than ``limit`` tokens cannot be allocated."""

    def fault(step: Step) -> BaseException | None:
        if len(step.token_ids) > limit:
            return OutOfMemory("no memory", bytes_requested=len(step.token_ids))
        return None

    return fault


def write_artifact(
    folder: Path, *, golden_shift: float = 0.0, tokenizer: bytes | None = None, **embedding: Any
) -> Path:
    """The tiny model as an artifact; ``golden_shift`` falsifies its goldens."""
    folder.mkdir(parents=True, exist_ok=True)
    p = program()
    (folder / "program.bin").write_bytes(p.encode())
    (folder / "tokenizer.json").write_bytes(tokenizer or tokenizer_json().encode())
    save_file(arrays(), folder / "weights-00001-of-00001.safetensors")
    cases = []
    for text in ("hello", "", "a b c d e f g h i j k l m n o p q r s t u v w x y z 0 1 2 3 4 5"):
        ids = ids_of(text)
        vector = truth(ids) + golden_shift * np.arange(WIDTH)
        cases.append({"text": text, "token_ids": ids, "embedding": vector.tolist()})
    goldens = {"tolerance": {"cosine": 0.9995}, "cases": cases}
    (folder / "goldens.json").write_text(json.dumps(goldens))
    files = {
        f.name: {"bytes": f.stat().st_size, "sha256": hashlib.sha256(f.read_bytes()).hexdigest()}
        for f in sorted(folder.iterdir())
        if f.name != "manifest.json"
    }
    manifest = {
        "format": "volery",
        "format_version": 1,
        "created_by": "volery 0.1.0",
        "model": {"id": "tests/tiny", "architecture": "tiny", "license": None, "revision": None},
        "tasks": ["embed"],
        "limits": {
            "max_tokens": MAX_TOKENS,
            "max_tokens_source": "test",
            "max_positions": 64,
            "vocab_size": p.vocab_size,
        },
        "embedding": {
            "dimensions": WIDTH,
            "normalized": True,
            "pooling": ["mean"],
            "include_prompt": True,
            "prompts": {"query": "q: "},
            "default_prompt_name": None,
            "similarity": "cosine",
            **embedding,
        },
        "quantization": {
            "name": "f32",
            "linear": "F32",
            "embedding": "F32",
            "activations": "f32",
        },
        "memory": {"weights_bytes": 0, "bytes_per_token": 0, "bytes_per_seq": 0},
        "cost_profile": {
            "host": "test",
            "threads": 1,
            "coefficients_ns": {"constant": 1000.0, "num_tokens": 500.0},
        },
        "files": files,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder
