"""Several prompts at once on a language model: their tokens are computed in one batch.

python demo/generate.py ARTIFACT             # what `make demo` shows
python demo/generate.py ARTIFACT "a prompt"  # your own question
"""

from __future__ import annotations

import asyncio
import sys
import time

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

import runtime_py as rt

PROMPTS = (
    "What is the capital of France?",
    "Why do birds fly in a V?",
    "Name three birds that cannot fly.",
    "Write one sentence about a heron at dawn.",
)
MAX_TOKENS = 40

console = Console(highlight=False)


async def main(artifact: str, prompts: list[str]) -> None:
    started = time.perf_counter()
    async with await rt.load(artifact) as model:
        seconds = time.perf_counter() - started
        info = model.info
        console.print(
            Rule(f"{info.id}: {info.quantization}, loaded and checked in {seconds:.2f} s")
        )
        alone, tokens = 0.0, 0
        answers = []
        for prompt in prompts:  # also warms the caches and the cost model up
            began = time.perf_counter()
            answers.append(await ask(model, prompt))
            alone += time.perf_counter() - began
        began = time.perf_counter()
        together = await asyncio.gather(*[ask(model, prompt) for prompt in prompts])
        seconds = time.perf_counter() - began
        for prompt, answer, again in zip(prompts, answers, together, strict=True):
            console.print(Text(prompt, style="bold"))
            console.print(Text(answer[0].strip(), style="cyan"), soft_wrap=True)
            tokens += answer[1]
            if answer != again:
                console.print("the answers alone and in company differ", style="red")
        console.print(Rule("One after another, and in flight together"))
        console.print(f"one after another  {tokens / alone:6.1f} tokens a second")
        console.print(f"together           {tokens / seconds:6.1f} tokens a second")
        if all(a == b for a, b in zip(answers, together, strict=True)):
            console.print("The answers are the same, token for token, alone and in company.")


async def ask(model: rt.Model, prompt: str) -> tuple[str, int]:
    """The answer's text, and how many tokens it took."""
    reply = await model.chat([{"role": "user", "content": prompt}], max_tokens=MAX_TOKENS)
    return reply.text, reply.usage.completion_tokens


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python demo/generate.py ARTIFACT [PROMPT ...]")
    asyncio.run(main(sys.argv[1], sys.argv[2:] or list(PROMPTS)))
