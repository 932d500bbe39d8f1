"""What every engine of the benchmark does, and the prompts it does it with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from pydoc_data.topics import topics

from tokenizers import Tokenizer

STREAMS = 8
_LONG, _SHORT = 512, 32


@dataclass(frozen=True)
class Workload:
    """One measurement. Time counts from after the prompts unless it is of a prompt.

    Attributes:
        prompt: tokens of the prompt that is timed; 0 = decoding is timed instead.
        streams: how many prompts generate.
        together: whether they share every step, or run one after another.
        tokens: tokens that each stream generates, the first of them from its prompt's
            last row and untimed.
    """

    name: str
    prompt: int = 0
    streams: int = 1
    together: bool = True
    tokens: int = 1

    @property
    def kind(self) -> str:
        """What the time is for: "prompts" or "streams"."""
        return "prompts" if self.prompt else "streams"

    @property
    def counted(self) -> int:
        """Tokens that the time is for."""
        return self.prompt or self.streams * (self.tokens - 1)

    @property
    def rows(self) -> int:
        """Rows of a timed step that decodes."""
        return self.streams if self.together else 1


PREFILLS = (Workload("prefill 256", prompt=256), Workload("prefill 512", prompt=512))
ONE = Workload("decode, 1 stream", tokens=33)
TOGETHER = Workload(f"decode, {STREAMS} streams", streams=STREAMS, tokens=17)
IN_TURN = Workload(f"decode, {STREAMS} in turn", streams=STREAMS, together=False, tokens=9)
WORKLOADS = (*PREFILLS, ONE, TOGETHER, IN_TURN)
CONTEXT = _SHORT
"""Tokens of the prompts that streams start from."""


def prompts(tokenizer: Tokenizer) -> tuple[list[int], list[list[int]]]:
    """A prompt of 512 tokens and a short one for each stream, from Python's help texts."""
    texts = sorted(topics.values(), key=len, reverse=True)[: STREAMS + 1]
    long, *short = (tokenizer.encode(" ".join(text.split())).ids for text in texts)
    return long[:_LONG], [ids[:_SHORT] for ids in short]


def write(file: Path, tokenizer: Tokenizer, chunk: int) -> None:
    """Write what the engines read: prompts, the most tokens of a step, the workloads."""
    long, streams = prompts(tokenizer)
    workloads = {w.name: asdict(w) for w in WORKLOADS}
    content = {"long": long, "streams": streams, "chunk": chunk, "workloads": workloads}
    file.write_text(json.dumps(content))
