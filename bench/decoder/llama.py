"""llama.cpp on one thread, through llama-cpp-python's low-level interface.

PYTHON bench/decoder/llama.py MODEL.gguf WORKLOAD.json

Runs in an environment of its own that holds ``llama-cpp-python`` and numpy alone, so it
imports nothing of Volery's.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp as llama
import numpy as np

CONTEXT = 2048


class Model:
    """A model with room for a few sequences.

    Args:
        most: tokens of a batch.
        sequences: how many share a batch.
    """

    def __init__(self, gguf: str, most: int, sequences: int) -> None:
        llama.llama_backend_init()
        quiet = llama.llama_log_callback(lambda *_: None)
        llama.llama_log_set(quiet, None)
        model = llama.llama_model_default_params()
        model.n_gpu_layers = 0
        # The repacked kernels of 0.3.36 stop with SIGILL on processors that hide AMX.
        model.use_extra_bufts = False
        self._quiet = quiet
        self._model = llama.llama_model_load_from_file(gguf.encode(), model)
        if not self._model:
            raise SystemExit(f"llama.cpp cannot load {gguf}")
        context = llama.llama_context_default_params()
        context.n_ctx, context.n_batch, context.n_ubatch = CONTEXT, most, most
        context.n_seq_max = sequences
        context.n_threads = context.n_threads_batch = 1
        context.kv_unified = True
        self._context = llama.llama_init_from_model(self._model, context)
        self._vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self._model))
        self._batch = llama.llama_batch_init(most, 0, 1)

    def clear(self) -> None:
        llama.llama_memory_clear(llama.llama_get_memory(self._context), True)

    def step(self, rows: list[tuple[int, list[int], int]]) -> list[int]:
        """The greedy token after each (sequence, its next tokens, its position)."""
        batch, wanted, at = self._batch, [], 0
        for sequence, tokens, position in rows:
            for i, token in enumerate(tokens):
                batch.token[at] = token
                batch.pos[at] = position + i
                batch.n_seq_id[at] = 1
                batch.seq_id[at][0] = sequence
                batch.logits[at] = i == len(tokens) - 1
                at += 1
            wanted.append(at - 1)
        batch.n_tokens = at
        if llama.llama_decode(self._context, batch) != 0:
            raise SystemExit("llama_decode failed")
        return [self._greedy(row) for row in wanted]

    def _greedy(self, row: int) -> int:
        logits = llama.llama_get_logits_ith(self._context, row)
        return int(np.ctypeslib.as_array(logits, (self._vocabulary,)).argmax())


def timed(work: Callable[[], None]) -> dict[str, float]:
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall_s": time.perf_counter() - start, "cpu_s": time.process_time() - cpu}


def main() -> None:
    gguf, file = sys.argv[1:]
    given = json.loads(Path(file).read_text())
    model = Model(gguf, len(given["long"]), len(given["streams"]))

    def prefill(texts: list[list[int]]) -> list[list[int]]:
        """The first token of each."""
        model.clear()
        return [model.step([(i, text, 0)]) for i, text in enumerate(texts)]

    def decode(texts: list[list[int]], ids: list[list[int]], group: list[int], count: int) -> None:
        for _ in range(count):
            rows = [(i, ids[i][-1:], len(texts[i]) + len(ids[i]) - 1) for i in group]
            for i, token in zip(group, model.step(rows), strict=True):
                ids[i].append(token)

    def measure(workload: dict[str, Any]) -> dict[str, Any]:
        ids: list[list[int]] = []
        if workload["prompt"]:
            text = given["long"][: workload["prompt"]]
            times = timed(lambda: ids.extend(prefill([text])))
            return {**times, "ids": ids}
        texts = given["streams"][: workload["streams"]]
        ids += prefill(texts)
        every = list(range(len(texts)))
        groups = [every] if workload["together"] else [[i] for i in every]

        def run() -> None:
            for group in groups:
                decode(texts, ids, group, workload["tokens"] - 1)

        return {**timed(run), "ids": ids}

    version = llama.__version__
    print(json.dumps({"ready": {"variant": f"llama-cpp-python {version}"}}), flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(given["workloads"][json.loads(line)["run"]])), flush=True)


if __name__ == "__main__":
    main()
