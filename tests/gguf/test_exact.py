"""Block types in our formats, with the ``gguf`` library's dequantizers as the truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf.quants import dequantize, quantize

from runtime_py.errors import ArtifactUnsupported
from tests.gguf.builders import F16_FIELDS, Q, random_blocks, write
from toolchain.sources.gguf import BlockImport, GgufFile
from toolchain.sources.gguf.exact import block_rows, pack_nibbles, unpack_nibbles

EXACT = {
    Q.Q4_0: "I4B32",
    Q.Q4_1: "I4B32",
    Q.Q5_0: "I8B32",
    Q.Q5_1: "I8B32",
    Q.Q8_0: "S8B32",
}
ROUNDED = {
    Q.Q2_K: "S8B32",
    Q.Q3_K: "S8B32",
    Q.Q4_K: "I4B32",
    Q.Q5_K: "I8B32",
    Q.Q6_K: "S8B32",
    Q.IQ4_NL: "S8B32",
    Q.IQ4_XS: "S8B32",
}


def file_of(tmp_path: Path, kind: Q, rows: int = 7, columns: int = 512) -> GgufFile:
    return GgufFile(
        write(
            tmp_path / "w.gguf",
            floats={"norm": np.ones(4, np.float32)},
            blocks={"w": (random_blocks(kind, rows, columns, seed=kind.value), kind)},
        )
    )


@pytest.mark.parametrize("kind", EXACT, ids=lambda k: k.name)
def test_exact_types(kind: Q, tmp_path: Path) -> None:
    file = file_of(tmp_path, kind)
    rows = block_rows(file, "w", slice(None))
    truth = dequantize(file.blocks("w"), kind)
    assert rows.format == EXACT[kind]
    assert np.array_equal(rows.dequantize(), truth)
    assert np.array_equal(rows.widened().dequantize(), truth)
    (report,) = BlockImport(file).report
    assert (report.kind, report.exact, report.max_error) == (kind.name, True, 0.0)


@pytest.mark.parametrize("kind", ROUNDED, ids=lambda k: k.name)
def test_rounded_types_report_their_loss(kind: Q, tmp_path: Path) -> None:
    file = file_of(tmp_path, kind)
    imported = BlockImport(file)
    (report,) = imported.report
    truth = dequantize(file.blocks("w"), kind).astype(np.float64)
    error = np.abs(block_rows(file, "w", slice(None)).dequantize() - truth)
    assert (report.format, report.exact) == (ROUNDED[kind], False)
    assert report.max_error == pytest.approx(error.max(), rel=1e-6)
    assert report.mean_error == pytest.approx(error.mean(), rel=1e-6)
    assert report.relative_error == pytest.approx(
        (np.square(error).sum() / np.square(truth).sum()) ** 0.5, rel=1e-6
    )
    assert report.relative_error < (6e-4 if kind in (Q.Q4_K, Q.Q5_K) else 8e-3)
    found = imported.lookup_rows(truth.astype(np.float32))
    assert found is not None
    assert not found.exact


def test_a_k_quant_whose_products_fit_is_exact(tmp_path: Path) -> None:
    raw = random_blocks(Q.Q4_K, 2, 512).reshape(2, 2, 144)
    for at in (0, 2):
        raw[..., at : at + 2] = np.array([2.0**-6], np.float16).view(np.uint8)
    blocks = {"w": (raw.reshape(2, -1), Q.Q4_K)}
    (report,) = BlockImport(GgufFile(write(tmp_path / "w.gguf", blocks=blocks))).report
    assert report.exact


def test_a_min_beyond_f16_is_not_called_exact(tmp_path: Path) -> None:
    raw = random_blocks(Q.Q5_0, 1, 32)
    raw[0, :2] = np.array([30000.0], np.float16).view(np.uint8)
    (report,) = BlockImport(
        GgufFile(write(tmp_path / "w.gguf", blocks={"w": (raw, Q.Q5_0)}))
    ).report
    assert not report.exact


def test_nibbles_round_trip() -> None:
    codes = np.random.default_rng(1).integers(0, 16, (3, 96), dtype=np.uint8)
    packed = pack_nibbles(codes)
    assert packed.shape == (3, 48)
    assert packed[0, 0] == codes[0, 0] | codes[0, 16] << 4
    assert np.array_equal(unpack_nibbles(packed), codes)


class TestLookup:
    @pytest.fixture
    def file(self, tmp_path: Path) -> GgufFile:
        rng = np.random.default_rng(3)
        q4 = quantize(rng.normal(size=(40, 64)).astype(np.float32), Q.Q4_1)
        q5 = quantize(rng.normal(size=(20, 64)).astype(np.float32), Q.Q5_1)
        q8 = quantize(rng.normal(size=(30, 64)).astype(np.float32), Q.Q8_0)
        zeros = np.zeros((2, 64), np.float32)
        q8 = np.concatenate([q8, quantize(zeros, Q.Q8_0)])
        q4 = np.concatenate([quantize(zeros, Q.Q4_1), q4])
        blocks = {"q4": (q4, Q.Q4_1), "q5": (q5, Q.Q5_1), "q8": (q8, Q.Q8_0)}
        return GgufFile(write(tmp_path / "w.gguf", blocks=blocks))

    @staticmethod
    def values(file: GgufFile, name: str) -> np.ndarray:
        return dequantize(file.blocks(name), file.tensors[name].kind)

    def test_rows_in_any_order(self, file: GgufFile) -> None:
        weights = self.values(file, "q4")[np.random.default_rng(0).permutation(42)]
        found = BlockImport(file).lookup_rows(weights)
        assert found is not None
        assert (found.exact, found.tensors, found.rows.format) == (True, ("q4",), "I4B32")
        assert np.array_equal(found.rows.dequantize(), weights)

    def test_one_row_by_its_bytes(self, file: GgufFile) -> None:
        row = self.values(file, "q8")[5]
        found = BlockImport(file).lookup(row.astype("<f4").tobytes())
        assert found is not None
        assert np.array_equal(found.rows.dequantize()[0], row)

    def test_four_and_five_bits_together_widen(self, file: GgufFile) -> None:
        weights = np.concatenate([self.values(file, "q5"), self.values(file, "q4")])
        found = BlockImport(file).lookup_rows(weights)
        assert found is not None
        assert found.rows.format == "I8B32"
        assert np.array_equal(found.rows.dequantize(), weights)

    def test_a_mixture_that_no_format_holds(self, file: GgufFile) -> None:
        weights = np.concatenate([self.values(file, "q8"), self.values(file, "q4")])
        assert BlockImport(file).lookup_rows(weights) is None

    def test_a_row_that_several_tensors_hold_follows_its_neighbours(self, file: GgufFile) -> None:
        found = BlockImport(file).lookup_rows(self.values(file, "q8"))
        assert found is not None
        assert found.tensors == ("q8",)

    def test_negative_zero_is_zero(self, file: GgufFile) -> None:
        weights = self.values(file, "q4").copy()
        weights[weights == 0] = -0.0
        assert BlockImport(file).lookup_rows(weights) is not None

    def test_any_changed_bit_is_a_miss(self, file: GgufFile) -> None:
        weights = self.values(file, "q4").copy()
        weights[3, 9] = np.nextafter(weights[3, 9], np.float32(9))
        assert BlockImport(file).lookup_rows(weights) is None
        assert BlockImport(file).lookup_rows(weights[:3]) is not None
        assert BlockImport(file).lookup_rows(weights[:3, :32]) is None

    def test_colliding_hashes_are_told_apart(
        self, file: GgufFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "toolchain.sources.gguf.lookup._row_keys", lambda rows: np.zeros(len(rows), np.uint64)
        )
        imported = BlockImport(file)
        weights = self.values(file, "q5")
        found = imported.lookup_rows(weights)
        assert found is not None
        assert np.array_equal(found.rows.dequantize(), weights)
        assert imported.lookup_rows(weights + 1) is None


def test_a_type_that_cannot_be_decoded(tmp_path: Path) -> None:
    raw = np.zeros((1, 292), np.uint8)
    file = GgufFile(write(tmp_path / "w.gguf", blocks={"w": (raw, Q.Q8_K)}))
    with pytest.raises(ArtifactUnsupported, match="Q8_K, which cannot be decoded"):
        BlockImport(file)


def test_float_tensors_are_no_import(tmp_path: Path) -> None:
    file = GgufFile(write(tmp_path / "w.gguf", floats={"w": np.ones((4, 32), np.float32)}))
    imported = BlockImport(file)
    assert imported.report == []
    assert imported.lookup_rows(np.ones((1, 32), np.float32)) is None


def test_every_type_with_f16_fields_is_covered() -> None:
    assert set(EXACT) | set(ROUNDED) == set(F16_FIELDS)
