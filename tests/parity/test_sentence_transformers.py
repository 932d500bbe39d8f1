"""End to end through the public API: vectors are those of sentence-transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import runtime_py as rt
from tests.parity.texts import ONE_TOKEN, varied_texts


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine of each row, in float64."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.mark.parametrize(
    ("scheme", "worst", "worst_of_one_token", "max_abs_diff"),
    [
        ("f32", 0.99999, 0.99999, 1e-4),
        ("f16", 0.9999, 0.9999, 1e-3),
        ("i8", 0.999, 0.99, 0.1),
        ("i4", 0.96, 0.93, 0.2),
    ],
)
def test_E1_vectors_equal_sentence_transformers(
    minilm_artifacts: Mapping[str, Path],
    true_vectors: np.ndarray,
    scheme: str,
    worst: float,
    worst_of_one_token: float,
    max_abs_diff: float,
) -> None:
    with rt.load_sync(minilm_artifacts[scheme]) as model:
        vectors = model.embed(varied_texts())
    found = cosines(vectors, true_vectors)
    print(f"{scheme}: worst cosine {found.min():.6f}, mean {found.mean():.6f}")
    assert vectors.dtype == np.float32
    assert vectors.shape == true_vectors.shape
    assert np.isfinite(vectors).all()
    least = np.array([worst_of_one_token if t in ONE_TOKEN else worst for t in varied_texts()])
    assert (found >= least).all(), varied_texts()[int((found - least).argmin())][:80]
    assert np.abs(vectors - true_vectors).max() <= max_abs_diff


def test_sizes(minilm_artifacts: Mapping[str, Path]) -> None:
    def size(scheme: str) -> int:
        return sum(f.stat().st_size for f in minilm_artifacts[scheme].iterdir())

    assert size("i8") <= 25_000_000
    assert size("i4") < size("i8") < size("f16") < size("f32")
    for folder in minilm_artifacts.values():
        assert all(f.stat().st_size <= 24 << 20 for f in folder.iterdir())


def test_E8_empty_and_blank_texts(
    minilm_artifacts: Mapping[str, Path], sentence_transformer: SentenceTransformer
) -> None:
    texts = ["ok", "", "   ", "\u200b", "ok2", "\n\t", "\ufeff"]
    truth = sentence_transformer.encode(texts, show_progress_bar=False)
    with rt.load_sync(minilm_artifacts["f32"]) as model:
        vectors = model.embed(texts)
        alone = np.stack([model.embed(t) for t in texts])
        assert model.embed([]).shape == (0, 384)
    assert np.isfinite(vectors).all()
    assert np.abs(vectors - truth).max() <= 1e-4
    assert alone.tobytes() == vectors.tobytes()


def test_E3_unequal_lengths_and_E2_batch_mates(minilm_artifacts: Mapping[str, Path]) -> None:
    for scheme in ("f32", "i8"):
        with rt.load_sync(minilm_artifacts[scheme]) as model:
            alone = model.embed("cat")
            for batch in (["cat", "word " * 400], ["cat"] * 8, ["a", "cat", "a b c d e f g h"]):
                found = model.embed(batch)[batch.index("cat")]
                assert found.tobytes() == alone.tobytes()


def test_E9_texts_around_the_limit(
    minilm_artifacts: Mapping[str, Path], sentence_transformer: SentenceTransformer
) -> None:
    limit = 256
    texts = ["cat " * n for n in (limit - 3, limit - 2, limit - 1, limit, limit * 4)]
    texts += ["x" * 1_000_000, "short"]
    truth = sentence_transformer.encode(texts, show_progress_bar=False)
    with rt.load_sync(minilm_artifacts["f32"]) as model:
        assert model.info.max_tokens == limit
        result = model.embed_with_info(texts)
        assert result.truncated == [False, False, True, True, True, False, False]
        assert result.token_counts == [limit - 1, *[limit] * 4, 3, 3]
        assert np.abs(result.vectors - truth).max() <= 1e-4
        mates = [f"mate {i}" for i in range(8)]
        with_long = model.embed([*mates[:4], texts[4], *mates[4:]])
        assert np.delete(with_long, 4, axis=0).tobytes() == model.embed(mates).tobytes()
        with pytest.raises(
            rt.TooLong, match=r"texts\[1\] has 257 tokens, the model takes 256"
        ) as e:
            model.embed(["fits", texts[2]], truncate="error")
        assert (e.value.num_tokens, e.value.max_tokens) == (257, limit)


def test_E10_paraphrases_score_above_strangers(minilm_artifacts: Mapping[str, Path]) -> None:
    pairs = [
        ("A man is playing a guitar.", "Somebody plays an instrument."),
        ("The cat sleeps on the sofa.", "A kitten is napping on the couch."),
        ("How do I reset my password?", "I forgot my login and need a new one."),
        ("The stock market fell sharply today.", "Share prices dropped a lot."),
        ("She cooked dinner for her friends.", "The woman made an evening meal for guests."),
    ]
    for scheme in ("f32", "i8", "i4"):
        with rt.load_sync(minilm_artifacts[scheme]) as model:
            left = model.embed([a for a, _ in pairs])
            right = model.embed([b for _, b in pairs])
        scores = left @ right.T
        own = scores.diagonal()
        assert own.min() > (scores - np.eye(len(pairs)) * 10).max()


def test_matryoshka_cut_is_normalised_again(
    minilm_artifacts: Mapping[str, Path], sentence_transformer: SentenceTransformer
) -> None:
    texts = list(varied_texts()[40:60])
    truth = sentence_transformer.encode(texts, show_progress_bar=False)[:, :64]
    truth = truth / np.linalg.norm(truth, axis=1, keepdims=True)
    with rt.load_sync(minilm_artifacts["f32"]) as model:
        assert np.abs(model.embed(texts, dimensions=64) - truth).max() <= 3e-4
