"""Runs lowered language models, with and without their cache, next to torch."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from runtime_py.executors.base import SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import MemoryWeights
from runtime_py.program import KV_BLOCK
from toolchain.lowering import LoweredModel

Floats = NDArray[np.float64]


def executor(lowered: LoweredModel) -> ReferenceExecutor:
    """The float64 reference executor with the model's weights."""
    parts = {k: w.data.cast("B") for k, w in lowered.weights.items()}
    return ReferenceExecutor.from_weights(lowered.program, MemoryWeights(lowered.program, parts))


def chunked_logits(
    lowered: LoweredModel, prompts: Sequence[Sequence[int]], chunks: Sequence[Sequence[int]]
) -> list[Floats]:
    """Logits [tokens, vocabulary] of every prompt, which join and leave steps by chunks.

    ``chunks[i]`` are the lengths that prompt i is cut into: step s runs chunk s of every
    prompt that has one. Blocks are handed out in an order that no prompt has to itself.
    """
    rows: list[list[Floats]] = [[] for _ in prompts]
    done = [0] * len(prompts)
    tables = [
        array("i", (b * len(prompts) + i for b in range(-(-len(p) // KV_BLOCK))))
        for i, p in enumerate(prompts)
    ]
    run = executor(lowered)
    try:
        for step in range(max(len(c) for c in chunks)):
            ids, seqs, who = array("i"), [], []
            for i, lengths in enumerate(chunks):
                if step < len(lengths):
                    seqs.append(SeqRow(len(ids), lengths[step], done[i]))
                    ids.extend(prompts[i][done[i] : done[i] + lengths[step]])
                    done[i] += lengths[step]
                    who.append(i)
            out = run.run(
                Step(ids, seqs, block_tables=[tables[i] for i in who], wanted=range(len(ids)))
            ).output
            for i, row in zip(who, seqs, strict=True):
                part = np.asarray(out)[row.first_token : row.first_token + row.num_tokens]
                rows[i].append(np.array(part, np.float64))
    finally:
        run.close()
    return [np.concatenate(r) for r in rows]


def uncached_logits(lowered: LoweredModel, prompts: Sequence[Sequence[int]]) -> list[Floats]:
    """The same of a program without a cache: all prompts whole, in one step."""
    ids, seqs = array("i"), []
    for p in prompts:
        seqs.append(SeqRow(len(ids), len(p)))
        ids.extend(p)
    run = executor(lowered)
    try:
        out = np.asarray(run.run(Step(ids, seqs)).output, np.float64)
    finally:
        run.close()
    return np.split(out, [s.first_token for s in seqs[1:]])


def torch_logits(folder: Path, prompts: Sequence[Sequence[int]]) -> list[Floats]:
    """Logits of the model in ``folder``, in float64, each prompt by itself."""
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    model = model.double()
    with torch.no_grad():
        return [model(torch.tensor([p]), use_cache=False).logits[0].numpy() for p in prompts]


def random_prompts(lengths: Sequence[int], vocab: int) -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [rng.integers(1, vocab, n).tolist() for n in lengths]
