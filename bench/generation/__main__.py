"""What users of a busy model feel, on the real engine and wasmtime:

    python -m bench.generation --artifact artifacts/smollm2 [--threads 1] [--json FILE]

- the gaps of four running streams before and while a prompt of 1,000 tokens arrives, beside
  the TPOT target, and that prompt's time to its first token;
- the time to the first token of a prompt that shares its first 500 tokens with an earlier
  one, beside the same prompt cold;
- four streams with key-value memory for three: all finish with the text that they have
  alone, and how many tokens were computed again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import runtime_py as rt

BLOCK = 32
LONG, PREFIX = 1000, 500
STREAMS = 4
WORDS = "the heron waits by the river while small birds cross the evening sky and "


async def main(artifact: Path, threads: int) -> dict[str, Any]:
    found = {"long_prompt": await long_prompt(artifact, threads)}
    found["shared_prefix"] = await shared_prefix(artifact, threads)
    found["scarce_memory"] = await scarce_memory(artifact, threads)
    return found


async def long_prompt(artifact: Path, threads: int) -> dict[str, Any]:
    """Gaps between the tokens of running streams around the arrival of a long prompt."""
    target_ms = rt.SchedulerConfig().tpot_target_ms
    async with await rt.load(artifact, threads=threads) as model:
        await tokens_of(model, "Once", 16)  # compiles, and warms the cost model up
        stamps: list[list[float]] = [[] for _ in range(STREAMS)]
        stop = asyncio.Event()
        streams = [
            asyncio.create_task(stamped(model, f"{i} birds", stamps[i], stop))
            for i in range(STREAMS)
        ]
        while min(map(len, stamps)) < 24:
            await asyncio.sleep(0.01)
        arrived = time.perf_counter()
        result = await model.generate(prompt_of(LONG), max_tokens=1)
        answered = time.perf_counter()
        while min(s[-1] for s in stamps) < answered:
            await asyncio.sleep(0.01)
        stop.set()
        await asyncio.gather(*streams)
    before = [g for s in stamps for g in gaps(s, -1.0, arrived)]
    during = [g for s in stamps for g in gaps(s, arrived, answered)]
    return {
        "tpot_target_ms": target_ms,
        "prompt_tokens": result.usage.prompt_tokens,
        "ttft_ms": result.ttft_ms,
        "gap_before_ms": {"median": statistics.median(before), "worst": max(before)},
        "gap_during_ms": {"median": statistics.median(during), "worst": max(during)},
    }


async def shared_prefix(artifact: Path, threads: int) -> dict[str, Any]:
    """Time to the first token, cold and with 500 tokens in the cache."""
    async with await rt.load(artifact, threads=threads) as model:
        await tokens_of(model, "Once", 16)
        prefix = prompt_of(PREFIX)
        cold = await model.generate(prefix + "Then the owl", max_tokens=1)
        warm = await model.generate(prefix + "But a wren", max_tokens=1)
    return {
        "cold_ms": cold.ttft_ms,
        "warm_ms": warm.ttft_ms,
        "cached_tokens": warm.usage.cached_tokens,
        "prompt_tokens": warm.usage.prompt_tokens,
    }


async def scarce_memory(artifact: Path, threads: int) -> dict[str, Any]:
    """Four streams of 8 blocks each in a cache of 24."""
    length = 7 * BLOCK
    prompts = [f"Story {i}: once upon a time" for i in range(STREAMS)]
    async with await rt.load(artifact, threads=threads, kv_blocks=24) as model:
        alone = [await tokens_of(model, p, length) for p in prompts]
        before = model.stats()
        together = await asyncio.gather(*[tokens_of(model, p, length) for p in prompts])
        after = model.stats()
    recomputed = after.recomputed_tokens - before.recomputed_tokens
    return {
        "same_text": together == alone,
        "tokens": sum(map(len, together)),
        "computed": after.tokens - before.tokens,
        "recomputed": recomputed,
        "recomputed_share": recomputed / (after.tokens - before.tokens),
    }


def prompt_of(tokens: int) -> str:
    """Text of about ``tokens`` tokens: a common word is one."""
    words = (WORDS * (tokens // len(WORDS.split()) + 1)).split()
    return " ".join(words[:tokens]) + " "


async def tokens_of(model: rt.Model, prompt: str, count: int) -> list[int]:
    result = await model.generate(prompt, max_tokens=count, ignore_eos=True)
    return list(result.completions[0].token_ids)


async def stamped(model: rt.Model, prompt: str, stamps: list[float], stop: asyncio.Event) -> None:
    stream = model.generate(prompt, max_tokens=2000, ignore_eos=True)
    async for _ in stream:
        stamps.append(time.perf_counter())
        if stop.is_set():
            break
    await stream.aclose()


def gaps(stamps: list[float], start: float, end: float) -> list[float]:
    """Milliseconds between neighbours of which the later lies in the time given."""
    return [1e3 * (b - a) for a, b in pairwise(stamps) if start <= b <= end]


def show(found: dict[str, Any]) -> None:
    gap, prefix, memory = found["long_prompt"], found["shared_prefix"], found["scarce_memory"]
    before, during = gap["gap_before_ms"], gap["gap_during_ms"]
    worst = during["worst"] / gap["tpot_target_ms"]
    print(
        f"{STREAMS} streams: gaps {before['median']:.0f} ms (worst {before['worst']:.0f}); while a "
        f"prompt of {gap['prompt_tokens']} tokens is read {during['median']:.0f} ms (worst "
        f"{during['worst']:.0f} = {worst:.2f} x the TPOT target); its first token came after "
        f"{gap['ttft_ms']:.0f} ms"
    )
    print(
        f"shared prefix ({prefix['cached_tokens']} of {prefix['prompt_tokens']} tokens cached): "
        f"first token after {prefix['warm_ms']:.0f} ms, cold {prefix['cold_ms']:.0f} ms: "
        f"{prefix['warm_ms'] / prefix['cold_ms']:.3f} x"
    )
    same = "the same texts" if memory["same_text"] else "OTHER TEXTS"
    share = 100 * memory["recomputed_share"]
    print(
        f"memory for 3 of {STREAMS} streams: {same}; {memory['recomputed']} of "
        f"{memory['computed']} computed tokens were computed again ({share:.1f} %)"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What users of a busy model feel.")
    parser.add_argument("--artifact", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    figures = asyncio.run(main(args.artifact, args.threads))
    show(figures)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
