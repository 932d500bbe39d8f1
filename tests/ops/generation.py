"""Generates with many requests at once on any executor: the plainest in-flight batching."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from runtime_py.executors.base import ModelExecutor, Sampled, SamplingRow, SeqRow, Step
from runtime_py.program import KV_BLOCK


@dataclass
class Request:
    """What is asked for, and how far it is.

    Attributes:
        row: sampling; position and penalized ids are filled in.
        joins: number of the step that first runs it.
        fork_of: index of the request whose prompt is the same and in the cache by then.
    """

    prompt: Sequence[int]
    max_tokens: int
    row: SamplingRow = field(default_factory=SamplingRow)
    joins: int = 0
    fork_of: int | None = None
    sampled: list[Sampled] = field(default_factory=list)
    done: int = 0
    table: list[int] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [*self.prompt, *(s.token_id for s in self.sampled)]

    @property
    def finished(self) -> bool:
        return len(self.sampled) == self.max_tokens


class Blocks:
    """Which blocks are free, and how many requests hold each of the others."""

    def __init__(self, count: int) -> None:
        self.free = list(range(count))
        Random(count).shuffle(self.free)
        self.holders = [0] * count

    def take(self) -> int:
        block = self.free.pop()
        self.holders[block] = 1
        return block

    def share(self, block: int) -> int:
        self.holders[block] += 1
        return block

    def give_back(self, table: list[int]) -> None:
        for block in table:
            self.holders[block] -= 1
            if not self.holders[block]:
                self.free.append(block)
        table.clear()


def generate(
    executor: ModelExecutor,
    requests: Sequence[Request],
    *,
    chunk: int = 32,
    threads: int = 1,
    preempt: Collection[tuple[int, int]] = (),
) -> list[list[int]]:
    """The token ids that each request generates.

    Args:
        chunk: most tokens of a prompt that run in one step.
        preempt: (step, request): before that step the request loses its cache.
    """
    requests = [replace(r, sampled=[], table=[]) for r in requests]
    blocks = Blocks(executor.limits.kv_blocks)
    number = 0
    while not all(r.finished for r in requests):
        copies: list[tuple[int, int]] = []
        for i, r in enumerate(requests):
            if (number, i) in preempt:
                blocks.give_back(r.table)
                r.done = 0
            if r.joins == number and r.fork_of is not None:
                copies += _fork(requests[r.fork_of], r, blocks)
        running = [r for r in requests if r.joins <= number and not r.finished]
        _run(executor, running, copies, blocks, chunk, threads)
        for r in requests:
            if r.finished:
                blocks.give_back(r.table)
        number += 1
    assert len(blocks.free) == executor.limits.kv_blocks
    return [[s.token_id for s in r.sampled] for r in requests]


def _fork(parent: Request, child: Request, blocks: Blocks) -> list[tuple[int, int]]:
    """``child`` shares the prompt's blocks but for its last token, which runs again."""
    assert parent.done >= len(parent.prompt) == len(child.prompt)
    child.done = len(child.prompt) - 1
    full = child.done // KV_BLOCK
    child.table = [blocks.share(b) for b in parent.table[:full]]
    if child.done % KV_BLOCK == 0:
        return []
    child.table.append(blocks.take())
    return [(parent.table[full], child.table[full])]


def _run(
    executor: ModelExecutor,
    running: Sequence[Request],
    copies: list[tuple[int, int]],
    blocks: Blocks,
    chunk: int,
    threads: int,
) -> None:
    ids, seqs, tables, wanted = array("i"), [], [], []
    sampling: list[SamplingRow] = []
    takers: list[Request] = []
    for r in running:
        part = r.tokens[r.done : r.done + chunk]
        end = r.done + len(part)
        while len(r.table) * KV_BLOCK < end:
            r.table.append(blocks.take())
        seqs.append(SeqRow(len(ids), len(part), r.done))
        ids.extend(part)
        tables.append(array("i", r.table))
        r.done = end
        if end == len(r.tokens):
            wanted.append(len(ids) - 1)
            sampling.append(_row(r))
            takers.append(r)
    result = executor.run(Step(ids, seqs, threads, tables, copies, wanted, sampling))
    assert not any(result.statuses)
    for r, sampled in zip(takers, result.sampled, strict=True):
        r.sampled.append(sampled)


def _row(r: Request) -> SamplingRow:
    output = [s.token_id for s in r.sampled]
    penalized = [
        (token, list(r.prompt).count(token), output.count(token))
        for token in sorted({*r.prompt, *output})
    ]
    plain = r.row.repetition_penalty == 1 and not (
        r.row.presence_penalty or r.row.frequency_penalty
    )
    return r.row._replace(position=len(r.tokens), penalized=() if plain else penalized)
