"""Steps over a paged cache: who runs how many tokens, and in which blocks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from runtime_py.executors.base import SamplingRow, SeqRow, Step
from runtime_py.program import KV_BLOCK

Chunk = tuple[int, int]
"""(sequence, how many of its next tokens run)."""


@dataclass
class Paged:
    """Lays out the steps of some sequences, allocating blocks in a scattered order.

    Attributes:
        sequences: the token ids of each; forks repeat those of their parent.
        steps: what was laid out.
        rows: for each step, the (sequence, position) of each wanted row.
    """

    sequences: Sequence[Sequence[int]]
    blocks: int
    seed: int = 0
    steps: list[Step] = field(default_factory=list)
    rows: list[list[tuple[int, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._free = list(range(self.blocks))
        Random(self.seed).shuffle(self._free)
        self._tables: dict[int, list[int]] = {}
        self._done: dict[int, int] = {}
        self._shared: set[int] = set()
        self._copies: list[tuple[int, int]] = []

    def step(
        self,
        *chunks: Chunk,
        wanted: str = "all",
        sampling: Sequence[SamplingRow] | None = None,
        threads: int = 1,
    ) -> Step:
        """Run ``chunks`` as one step.

        Args:
            wanted: "all" rows, each chunk's "last" one, or "none".
        """
        ids, seqs, tables, want = array("i"), [], [], []
        rows: list[tuple[int, int]] = []
        for sequence, tokens in chunks:
            done = self._done.get(sequence, 0)
            assert done + tokens <= len(self.sequences[sequence])
            chosen = {"all": range(tokens), "last": [tokens - 1], "none": []}[wanted]
            want += [len(ids) + i for i in chosen]
            rows += [(sequence, done + i) for i in chosen]
            seqs.append(SeqRow(len(ids), tokens, done))
            ids.extend(self.sequences[sequence][done : done + tokens])
            tables.append(array("i", self._room(sequence, done + tokens)))
            self._done[sequence] = done + tokens
        made = Step(ids, seqs, threads, tables, tuple(self._copies), tuple(want), sampling)
        self._copies = []
        self.steps.append(made)
        self.rows.append(rows)
        return made

    def fork(self, parent: int, child: int) -> None:
        """``child`` starts with what ``parent`` has in the cache; full blocks are shared."""
        done = self._done[parent]
        assert list(self.sequences[child][:done]) == list(self.sequences[parent][:done])
        self._tables[child] = table = list(self._tables[parent])
        self._done[child] = done
        self._shared.update(table)
        if done % KV_BLOCK:
            table[-1] = self._free.pop()
            self._copies.append((self._tables[parent][-1], table[-1]))

    def end(self, sequence: int) -> None:
        """Give the blocks of ``sequence`` back, to be written by others."""
        self._free += [b for b in self._tables.pop(sequence) if b not in self._shared]

    def _room(self, sequence: int, tokens: int) -> list[int]:
        table = self._tables.setdefault(sequence, [])
        while len(table) * KV_BLOCK < tokens:
            table.append(self._free.pop())
        return table
