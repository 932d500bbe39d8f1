"""Merges of a BPE from the scores of a SentencePiece model.

SentencePiece joins, again and again, the neighbours whose union has the best score.
A BPE with ranked merges does the same if every way to split a piece into two pieces is
a merge, ranked by the piece's score.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def merges_from_scores(
    vocab: dict[str, int], scores: npt.NDArray[np.float64]
) -> list[tuple[str, str]]:
    """Merges in descending order of score.

    Args:
        vocab: piece to id, of the pieces that may be joined.
        scores: float64, by id.

    Returns:
        (left, right) pairs; pieces of equal score by id of the union, and the splits of
        one piece by where they cut.
    """
    ranked: list[tuple[float, int, int, str]] = []
    for piece, i in vocab.items():
        for cut in range(1, len(piece)):
            if piece[:cut] in vocab and piece[cut:] in vocab:
                ranked.append((-float(scores[i]), i, cut, piece))
    ranked.sort()
    return [(piece[:cut], piece[cut:]) for _, _, cut, piece in ranked]
