"""`Model.embed`: values, shapes, options and bad input, against float64 numpy."""

from __future__ import annotations

import asyncio
import inspect
import random
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_py import EmbedResult, InvalidInput, InvalidType, TooLong
from runtime_py.model import Model
from runtime_py.options import EmbedOptions
from tests.engine.tiny import MAX_TOKENS, WIDTH, ids_of, make, run, truth


def with_model(use, **options):  # type: ignore[no-untyped-def]
    async def test():  # type: ignore[no-untyped-def]
        async with make(**options) as model:
            return await use(model)

    return run(test)


def check(vectors: np.ndarray, texts: list[str]) -> None:
    assert vectors.shape == (len(texts), WIDTH)
    assert vectors.dtype == np.float32
    for vector, text in zip(vectors, texts, strict=True):
        np.testing.assert_allclose(vector, truth(ids_of(text)), atol=1e-6)


def test_lists_and_single_texts() -> None:
    async def use(model: Model) -> None:
        check(await model.embed(["hello", "volery of birds"]), ["hello", "volery of birds"])
        check(await model.embed(text for text in ("a", "b")), ["a", "b"])
        one = await model.embed("hello")
        assert one.shape == (WIDTH,)
        np.testing.assert_allclose(one, truth(ids_of("hello")), atol=1e-6)
        one[0] = 5.0  # the caller's own, writable

    with_model(use)


def test_E8_empty_list_is_an_empty_array() -> None:
    async def use(model: Model) -> None:
        empty = await model.embed([])
        assert empty.shape == (0, WIDTH)
        assert empty.dtype == np.float32
        result = await model.embed_with_info([])
        assert (result.token_counts, result.truncated, result.steps) == ([], [], 0)
        assert (await model.embed([], dimensions=3, dtype="float16")).shape == (0, 3)

    with_model(use)


@pytest.mark.parametrize("blank", ["", "   ", "\u200b", "\n\t"])
def test_E8_blank_text_is_finite_and_fails_no_neighbour(blank: str) -> None:
    async def use(model: Model) -> None:
        check(await model.embed(["ok", blank, "ok2"]), ["ok", blank, "ok2"])
        alone = await model.embed(blank)
        assert np.isfinite(alone).all()

    with_model(use)


@pytest.mark.parametrize(("bad", "index"), [([1], 0), (["a", None], 1), (["a", "b", b"c"], 2)])
def test_E8_non_string_is_a_type_error_naming_the_index(bad: list[object], index: int) -> None:
    async def use(model: Model) -> None:
        with pytest.raises(TypeError, match=rf"texts\[{index}\]") as caught:
            await model.embed(bad)  # type: ignore[arg-type]
        assert isinstance(caught.value, InvalidType)
        assert model.stats().steps == 0

    with_model(use)


@pytest.mark.parametrize("bad", [5, None, b"abc", {"a": "b"}, 1.5])
def test_texts_of_the_wrong_kind(bad: object) -> None:
    async def use(model: Model) -> None:
        with pytest.raises(InvalidType, match="expected str or an iterable"):
            await model.embed(bad)  # type: ignore[arg-type]

    with_model(use)


def test_C5_unencodable_text_names_its_index_and_the_loop_survives() -> None:
    async def use(model: Model) -> None:
        with pytest.raises(InvalidInput, match=r"texts\[3\].*surrogate"):
            await model.embed(["a", "b", "c", "d\ud800", "e"])
        check(await model.embed(["a"] * 8), ["a"] * 8)

    with_model(use)


@pytest.mark.parametrize("length", [MAX_TOKENS - 2, MAX_TOKENS - 1, 4 * MAX_TOKENS, 50_000])
def test_E9_long_text_is_truncated_and_reported_mates_unaffected(length: int) -> None:
    async def use(model: Model) -> EmbedResult:
        texts = ["a", "b" * length, "c d"]
        result = await model.embed_with_info(texts)
        check(result.vectors, texts)
        cut = length > MAX_TOKENS - 2
        assert result.truncated == [False, cut, False]
        assert result.token_counts == [3, min(length + 2, MAX_TOKENS), 4]
        if cut:
            with pytest.raises(TooLong, match=r"texts\[1\]") as caught:
                await model.embed(texts, truncate="error")
            assert caught.value.num_tokens == length + 2
            assert caught.value.max_tokens == MAX_TOKENS
        else:
            check(await model.embed(texts, truncate="error"), texts)
        return result

    with_model(use)


texts_strategy = st.lists(
    st.text(string.ascii_lowercase + " é", max_size=60), min_size=1, max_size=40
)


@settings(max_examples=30)
@given(texts_strategy, st.integers(0, 10**6))
def test_E4_E3_E2_bytes_do_not_depend_on_batch_or_order(texts: list[str], seed: int) -> None:
    order = random.Random(seed).sample(texts, len(texts))
    parts = [order[i::3] for i in range(3)]

    async def use(model: Model) -> None:
        alone = {text: (await model.embed(text)).tobytes() for text in texts}
        together = await model.embed(texts)
        assert [v.tobytes() for v in together] == [alone[t] for t in texts]
        results = await asyncio.gather(
            model.embed(parts[0]),
            model.embed(parts[1], traffic="throughput"),
            model.embed(parts[2], traffic="throughput", deadline_ms=10_000),
        )
        for part, vectors in zip(parts, results, strict=True):
            assert [v.tobytes() for v in vectors] == [alone[t] for t in part]

    with_model(use)


def test_large_lists_are_fed_in_pieces_and_keep_their_order() -> None:
    async def use(model: Model) -> None:
        texts = [f"text {i}" for i in range(1500)]
        result = await model.embed_with_info(texts, traffic="throughput")
        check(result.vectors, texts)
        assert result.token_counts == [len(ids_of(t)) for t in texts]
        assert result.batch_seqs <= 16
        assert result.steps >= 1500 / 16

    with_model(use)


def test_matryoshka_dimensions_are_cut_and_normalised_again() -> None:
    async def use(model: Model) -> None:
        full = await model.embed(["hello", "world"])
        cut = await model.embed(["hello", "world"], dimensions=5)
        expected = full[:, :5].astype(np.float64)
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(cut, expected, atol=1e-6)
        assert (await model.embed("hello", dimensions=5)).tobytes() == cut[0].tobytes()
        assert (await model.embed("hello", dimensions=WIDTH)).tobytes() == full[0].tobytes()
        half = await model.embed(["hello"], dtype="float16")
        assert half.dtype == np.float16
        np.testing.assert_allclose(half[0], full[0], atol=1e-3)

    with_model(use)


def test_without_a_normalising_model_cutting_keeps_values_unless_asked() -> None:
    async def use(model: Model) -> None:
        full = await model.embed(["hello"])
        cut = await model.embed(["hello"], dimensions=5)
        np.testing.assert_array_equal(cut, full[:, :5])
        unit = await model.embed(["hello"], dimensions=5, normalize=True)
        np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)
        np.testing.assert_array_equal(await model.embed(["hello"], normalize=False), full)

    with_model(use, normalized=False)


@pytest.mark.parametrize("include", [True, False])
def test_prompts(include: bool) -> None:
    prompts = {"query": "q: ", "passage": "p: "}

    async def use(model: Model) -> None:
        skip = 0 if include else 3  # [CLS] q :
        for options, text in (
            ({"prompt_name": "query"}, "q: hello"),
            ({"prompt": "q: "}, "q: hello"),
            ({}, "p: hello"),
            ({"prompt": ""}, "hello"),
        ):
            vector = await model.embed("hello", **options)
            expected = truth(ids_of(text), skip if options.get("prompt") != "" else 0)
            np.testing.assert_allclose(vector, expected, atol=1e-6)
        blank = await model.embed("", prompt_name="query")
        assert np.isfinite(blank).all()
        with pytest.raises(InvalidInput, match=r"\['passage', 'query'\]"):
            await model.embed("x", prompt_name="quary")
        with pytest.raises(InvalidInput, match="both"):
            await model.embed("x", prompt_name="query", prompt="q: ")
        with pytest.raises(InvalidType, match="prompt is int"):
            await model.embed("x", prompt=5)  # type: ignore[arg-type]

    with_model(use, prompts=prompts, include_prompt=include, default_prompt_name="passage")


@pytest.mark.parametrize(
    "options",
    [
        {"dimensions": 0},
        {"dimensions": WIDTH + 1},
        {"dimensions": 2.0},
        {"dimensions": True},
        {"dtype": "int8"},
        {"truncate": "start"},
        {"traffic": "bulk"},
        {"deadline_ms": 0},
        {"deadline_ms": -5},
        {"deadline_ms": "soon"},
        {"deadline_ms": float("nan")},
        {"deadline_ms": float("inf")},
        {"normalize": False},
    ],
)
def test_options_outside_their_range(options: dict[str, object]) -> None:
    async def use(model: Model) -> None:
        with pytest.raises(InvalidInput, match=next(iter(options))):
            await model.embed("x", **options)  # type: ignore[arg-type]
        assert model.stats().requests == 0

    with_model(use)


def test_both_ways_to_embed_take_the_same_options() -> None:
    taken = inspect.signature(Model.embed_with_info).parameters
    keywords = [n for n, p in taken.items() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    assert keywords == list(EmbedOptions.__annotations__)

    async def test() -> None:
        async with make() as model:
            with pytest.raises(TypeError, match="dimension"):
                await model.embed("a", dimension=3)  # type: ignore[call-arg]

    run(test)
