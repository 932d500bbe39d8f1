"""Drives a decoder through the ABI: `driver.Host` with a cache and whole steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from runtime_py.executors.base import Sampled, SamplingRow, Step
from runtime_py.program import KV_BLOCK, Program
from tests.wasm.driver import OK, Host

TABLES, BLOCKS, COPIES, WANTED, SAMPLE, SAMPLE_DATA, SAMPLED = range(5, 12)
GENERATION = 20
"""Where the header's fields for decoders begin: u32 num_wanted, num_copies, sampling."""

F32, F16 = 0, 1
NO_MASK = 0xFFFFFFFF

SAMPLE_ROW = np.dtype(
    [
        ("temperature", "<f4"),
        ("top_k", "<u4"),
        *((name, "<f4") for name in ("top_p", "min_p", "repetition", "presence", "frequency")),
        ("top_logprobs", "<u4"),
        ("seed", "<u4", 2),
        ("position", "<u4"),
        *((f"{name}_{part}", "<u4") for name in ("penalized", "bias") for part in ("at", "count")),
        ("mask_at", "<u4"),
    ]
)
SAMPLED_ROW = np.dtype(
    [
        ("token", "<i4"),
        ("logprob", "<f4"),
        ("num_top", "<u4"),
        ("zero", "<u4"),
        ("top", [("token", "<i4"), ("logprob", "<f4")], 20),
    ]
)


def sample_rows(rows: Sequence[SamplingRow]) -> tuple[np.ndarray, np.ndarray]:
    """The records of V_WS_SAMPLE and the words of V_WS_SAMPLE_DATA."""
    records, words = np.zeros(len(rows), SAMPLE_ROW), []

    def add(part: Iterable[np.ndarray]) -> int:
        at = sum(map(len, words))
        words.extend(part)
        return at

    for record, row in zip(records, rows, strict=True):
        for name in ("temperature", "top_k", "top_p", "min_p", "top_logprobs", "position"):
            record[name] = getattr(row, name)
        for name in ("repetition", "presence", "frequency"):
            record[name] = getattr(row, f"{name}_penalty")
        record["seed"] = row.seed & 0xFFFFFFFF, row.seed >> 32
        record["penalized_at"] = add(np.array(e, "<u4") for e in row.penalized)
        record["penalized_count"] = len(row.penalized)
        bias = (np.array([i, np.float32(b).view("<u4")], "<u4") for i, b in row.bias)
        record["bias_at"], record["bias_count"] = add(bias), len(row.bias)
        masked = row.mask is not None
        record["mask_at"] = add([np.frombuffer(row.mask, "<u4")]) if masked else NO_MASK
    return records, np.concatenate(words) if words else np.zeros(0, "<u4")


class DecoderHost(Host):
    """One loaded decoder.

    Args:
        data_words: size of the pool that sampling rows point into.
    """

    def __init__(
        self,
        program: Program,
        parts: dict[str, bytes],
        variant: str = "simd",
        *,
        tokens: int = 64,
        seqs: int = 8,
        kv_blocks: int = 16,
        kv_format: int = F32,
        max_wanted: int = 64,
        data_words: int = 4096,
    ) -> None:
        super().__init__(variant)
        self.program = program
        assert self.create(program.encode(), tokens=tokens, seqs=seqs) == OK, self.detail()
        assert self.call("v_cache", kv_blocks, kv_format, max_wanted, data_words) == OK
        self.load(program, parts)

    def put_part(self, part: int, data: np.ndarray) -> None:
        assert data.nbytes <= self.call("v_part_bytes", part)
        self.write(self.call("v_workspace", 0, part), data.tobytes())

    def fill_step(self, step: Step) -> None:
        """Write a step as hosts do: tables back to back, as long as they have to be."""
        self.fill([row.num_tokens for row in step.seqs], step.token_ids)
        self.put_part(2, np.array(step.seqs, "<u4"))
        needed = [-(-(r.context_len + r.num_tokens) // KV_BLOCK) for r in step.seqs]
        self.put_part(TABLES, np.cumsum([0, *needed[:-1]]).astype("<u4"))
        tables = zip(step.block_tables, needed, strict=True)
        self.put_part(BLOCKS, np.concatenate([np.array(t[:n], "<u4") for t, n in tables]))
        self.put_part(COPIES, np.array(step.copies, "<u4"))
        self.put_part(WANTED, np.array(step.wanted, "<u4"))
        if step.sampling is not None:
            records, data = sample_rows(step.sampling)
            self.put_part(SAMPLE, records)
            self.put_part(SAMPLE_DATA, data)
        counts = [len(step.wanted), len(step.copies), step.sampling is not None]
        header = self.call("v_workspace", 0, 0)
        self.write(header + GENERATION, np.array(counts, "<u4").tobytes())

    def step(self, step: Step) -> np.ndarray:
        """Run ``step``; its logits [wanted, vocabulary]."""
        self.fill_step(step)
        assert self.call("v_run", 0) == OK, self.detail()
        return self.output(len(step.wanted), self.program.vocab_size)

    def sample(self, step: Step) -> list[Sampled]:
        """Run ``step``, which samples; its tokens."""
        self.fill_step(step)
        assert self.call("v_run", 0) == OK, self.detail()
        raw = self.read(self.call("v_workspace", 0, SAMPLED), 176 * len(step.wanted))
        return [
            Sampled(
                int(row["token"]),
                float(row["logprob"]),
                tuple((int(i), float(p)) for i, p in row["top"][: row["num_top"]]),
            )
            for row in np.frombuffer(raw, SAMPLED_ROW)
        ]


assert SAMPLE_ROW.itemsize == 64
assert SAMPLED_ROW.itemsize == 176
