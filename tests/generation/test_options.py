"""Options and prompts of a generation: what they do, and what is refused before any work."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Sequence

import pytest

from runtime_py import InvalidInput, InvalidType, TooLong
from runtime_py.generation.generator import Generator
from runtime_py.generation.options import GenerateArguments, generate_options
from tests.engine.tiny import make as embedder
from tests.engine.tiny import run
from tests.generation.test_generate import PROMPT
from tests.generation.tiny import VOCAB, greedy, make


def test_bias_and_mask_choose_tokens() -> None:
    allowed = [20, 40, 60]
    bits = sum(1 << i for i in allowed).to_bytes(4 * -(-VOCAB // 32), "little")

    async def test() -> None:
        async with make() as model:
            seen = []

            def mask(ids: Sequence[int]) -> bytes | None:
                seen.append(tuple(ids))
                return bits if len(ids) % 2 == 0 else None

            result = await model.generate(PROMPT, max_tokens=6, logits_mask=mask)
            ids = tuple(result.completions[0].token_ids)
            assert all(t in allowed for t in ids[::2])
            assert seen == [ids[:i] for i in range(6)]
            result = await model.generate(PROMPT, max_tokens=6, logit_bias={77: 1e4})
            assert result.completions[0].token_ids == [77] * 6
            result = await model.generate(
                PROMPT, max_tokens=6, logit_bias={77: 100.0}, frequency_penalty=60.0
            )
            assert result.completions[0].token_ids[:3] != [77] * 3

    run(test)


def test_a_mask_hook_that_fails_ends_only_its_request() -> None:
    def broken(ids: Sequence[int]) -> bytes:
        raise KeyError("grammar")

    async def test() -> None:
        async with make() as model:
            good = asyncio.ensure_future(model.generate(PROMPT, max_tokens=6).result())
            with pytest.raises(KeyError, match="grammar"):
                await model.generate(PROMPT, max_tokens=6, logits_mask=broken)
            with pytest.raises(InvalidInput, match="returned str"):
                await model.generate(PROMPT, logits_mask=lambda ids: "all")  # type: ignore[arg-type,return-value]
            assert tuple((await good).completions[0].token_ids) == greedy(PROMPT, 6)

    run(test)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"max_tokens": 0}, InvalidInput, "max_tokens is 0, expected 1 to 400"),
        ({"max_tokens": 401}, InvalidInput, "max_tokens is 401"),
        ({"max_tokens": 2.0}, InvalidType, "max_tokens is float"),
        ({"max_tokens": True}, InvalidType, "max_tokens is bool"),
        ({"temperature": -0.1}, InvalidInput, "temperature"),
        ({"temperature": math.nan}, InvalidInput, "temperature"),
        ({"temperature": 1e-30}, InvalidInput, "expected 0, or 1e-06 to 100"),
        ({"temperature": "hot"}, InvalidType, "temperature is str"),
        ({"top_k": -1}, InvalidInput, "top_k"),
        ({"top_p": 0.0}, InvalidInput, "top_p is 0.0, expected above 0 to 1"),
        ({"top_p": 1.1}, InvalidInput, "top_p"),
        ({"min_p": math.inf}, InvalidInput, "min_p"),
        ({"repetition_penalty": 0}, InvalidInput, "repetition_penalty"),
        ({"repetition_penalty": 1e-5}, InvalidInput, "expected 0.001 to 100"),
        ({"presence_penalty": 1e9}, InvalidInput, "presence_penalty"),
        ({"frequency_penalty": None}, InvalidType, "frequency_penalty"),
        ({"logit_bias": [1]}, InvalidType, "logit_bias is list"),
        ({"logit_bias": {101: 1.0}}, InvalidInput, "logit_bias is 101"),
        ({"logit_bias": {1: "x"}}, InvalidType, r"logit_bias\[1\]"),
        ({"logits_mask": 5}, InvalidType, "logits_mask is int"),
        ({"logprobs": 21}, InvalidInput, "logprobs is 21"),
        ({"n": 0}, InvalidInput, "n is 0"),
        ({"seed": -1}, InvalidInput, "seed"),
        ({"stop": [""]}, InvalidInput, r"stop\[0\] has 0 characters"),
        ({"stop": ["a", 3]}, InvalidType, r"stop\[1\] is int"),
        ({"stop": {"a": 1}}, InvalidType, "stop is dict"),
        ({"stop": ["a"] * 65}, InvalidInput, "65 strings"),
        ({"stop_token_ids": "12"}, InvalidType, "stop_token_ids is str"),
        ({"stop_token_ids": [500]}, InvalidInput, r"stop_token_ids\[0\] is 500"),
        ({"ignore_eos": 1}, InvalidType, "ignore_eos"),
        ({"traffic": "fast"}, InvalidInput, "traffic"),
        ({"deadline_ms": 0}, InvalidInput, "deadline_ms"),
        ({"cache_salt": 4}, InvalidType, "cache_salt"),
    ],
)
def test_options_are_checked_before_any_work(
    options: dict[str, object], error: type[Exception], words: str
) -> None:
    async def test() -> None:
        async with make() as model:
            with pytest.raises(error, match=words):
                model.generate(PROMPT, **options)
            assert model.stats().steps == 0

    run(test)


def test_prompts_are_checked_before_any_work() -> None:
    async def test() -> None:
        async with make() as model:
            for prompt, error, words in (
                ("", InvalidInput, "no tokens"),
                ([], InvalidInput, "no tokens"),
                ([1, "a"], InvalidType, r"prompt\[1\] is str"),
                ([101], InvalidInput, r"prompt\[0\] is 101"),
                (b"abc", InvalidType, "prompt is bytes"),
                ("a\ud800", InvalidInput, "surrogate"),
                ([5] * 400, TooLong, "400 tokens"),
            ):
                with pytest.raises(error, match=words):
                    model.generate(prompt)
            with pytest.raises(InvalidInput, match="makes no embeddings"):
                await model.embed("a")
        async with embedder() as model:
            with pytest.raises(InvalidInput, match="makes embeddings"):
                model.generate("a")

    run(test)


def test_generate_takes_the_options_that_its_type_names() -> None:
    def keywords(function: Callable[..., object]) -> list[str]:
        taken = inspect.signature(function).parameters.items()
        return [name for name, p in taken if p.kind is inspect.Parameter.KEYWORD_ONLY]

    own = keywords(Generator.generate)
    model, sampling = keywords(generate_options)[:2], keywords(generate_options)[2:]
    assert model == ["vocab_size", "max_context"]
    assert sampling + own == list(GenerateArguments.__annotations__)
