"""When an output passes: values within tolerance, the same tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tests.ops.cases.steps import Output


def check_values(
    got: npt.NDArray[np.floating], wanted: npt.NDArray[np.floating], rtol: float, atol: float
) -> None:
    """Values are finite in the same places and within tolerance there."""
    assert got.shape == wanted.shape
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(np.isfinite(got), finite)
    np.testing.assert_allclose(got[finite], wanted[finite], rtol=rtol, atol=atol)


def check_output(got: Output, wanted: Output, rtol: float, atol: float) -> None:
    """`check_values` of logits; the same tokens with log-probabilities within tolerance."""
    if isinstance(wanted, np.ndarray):
        assert isinstance(got, np.ndarray)
        check_values(got, wanted, rtol, atol)
        return
    assert isinstance(got, list)
    assert [s.token_id for s in got] == [s.token_id for s in wanted]
    assert [[i for i, _ in s.top] for s in got] == [[i for i, _ in s.top] for s in wanted]
    for mine, other in zip(got, wanted, strict=True):
        values = [mine.logprob, *(v for _, v in mine.top)]
        others = [other.logprob, *(v for _, v in other.top)]
        np.testing.assert_allclose(values, others, rtol=rtol, atol=atol)  # NaN equals NaN
