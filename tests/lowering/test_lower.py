"""What `lower` promises about any graph: slots, limits, errors, a bare ONNX file."""

from __future__ import annotations

import dataclasses
import importlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from runtime_py.errors import ArtifactCorrupt, ArtifactError, ArtifactUnsupported
from runtime_py.program import OpKind, Program, Rows, validate
from tests.lowering.running import every_pooling, onnx_tokens, random_sequences, run
from tests.lowering.toy import HIDDEN, POSITIONS, VOCAB, Spelling, Toy, export
from tests.models import build_model
from toolchain.export import export_onnx
from toolchain.lowering import lower
from toolchain.sources import resolve
from toolchain.sources.pipeline import read_pipeline


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(Toy(Spelling()), tmp_path_factory.mktemp("toy") / "toy.onnx")


def test_no_op_writes_a_slot_that_it_reads(toy: Path) -> None:
    program = lower(toy, every_pooling(HIDDEN, POSITIONS)).program
    for op in program.ops:
        assert op.out not in op.ins
        assert op.out2 < 0 or op.out2 not in (*op.ins, op.out)
    # liveness: the toy needs x, a sum, [q | k | v] and the wide feed-forward value
    assert sorted(s.width for s in program.slots if s.rows is Rows.TOKENS) == [24, 24, 24, 36, 72]


def test_program_survives_the_wire(toy: Path) -> None:
    program = lower(toy, every_pooling(HIDDEN, POSITIONS)).program
    assert validate(Program.decode(program.encode())).ops[0].kind is OpKind.EMBED


def test_lowering_is_deterministic(toy: Path) -> None:
    first, second = (lower(toy, every_pooling(HIDDEN, POSITIONS)) for _ in range(2))
    assert first.program.encode() == second.program.encode()
    assert list(first.weights) == list(second.weights)


def test_misread_graph_is_refused_by_the_check(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowering = importlib.import_module("toolchain.lowering.lower")
    emit = lowering.emit_program

    def wrong(*args: object) -> object:
        program, weights = emit(*args)  # type: ignore[arg-type]
        i = next(i for i, o in enumerate(program.ops) if o.kind is OpKind.ATTENTION)
        ops = list(program.ops)
        ops[i] = dataclasses.replace(ops[i], floats=(0.2, 0.0))
        return dataclasses.replace(program, ops=tuple(ops)), weights

    monkeypatch.setattr(lowering, "emit_program", wrong)
    with pytest.raises(ArtifactError, match="differs from its graph"):
        lower(toy, every_pooling(HIDDEN, POSITIONS))


def test_graph_of_another_model(toy: Path) -> None:
    with pytest.raises(ArtifactCorrupt, match=r"24 features, config\.json says 32"):
        lower(toy, every_pooling(32, POSITIONS))
    with pytest.raises(ArtifactUnsupported, match="table has 90 rows, expected 100"):
        lower(toy, every_pooling(HIDDEN, POSITIONS), vocab_size=100)


def test_E9_more_positions_than_the_table_has(toy: Path) -> None:
    with pytest.raises(ArtifactUnsupported, match=r"does not run at batch 1, length 41"):
        lower(toy, every_pooling(HIDDEN, POSITIONS + 1))


def test_position_table_without_a_known_limit(toy: Path) -> None:
    with pytest.raises(ArtifactUnsupported, match="max_position_embeddings"):
        lower(toy, every_pooling(HIDDEN, 0))


def test_bare_onnx_file_with_only_a_tokenizer(tmp_path: Path) -> None:
    folder = build_model("roberta", tmp_path / "m")
    source = resolve(str(folder))
    made = export_onnx(source, tmp_path / "o")
    shutil.copy(folder / "tokenizer.json", tmp_path / "o")
    bare = resolve(str(tmp_path / "o"))
    pipeline = read_pipeline(bare)
    assert (pipeline.hidden_size, pipeline.max_positions, pipeline.max_tokens) == (32, 64, 64)
    assert any("no config.json" in note for note in pipeline.notes)
    assert bare.onnx_path is not None
    lowered = lower(bare.onnx_path, pipeline)
    sequences = random_sequences((1, 9, 64), lowered.program.vocab_size)
    want = np.stack([onnx_tokens(made.path, s).mean(0) for s in sequences])
    np.testing.assert_allclose(run(lowered, sequences), want, atol=1e-4)


def test_minilm_is_embed_norm_six_layers_pool_normalize(tmp_path: Path) -> None:
    source = resolve("all-MiniLM-L6-v2")
    made = export_onnx(source, tmp_path)
    lowered = lower(made.path, read_pipeline(source))
    layer = "LINEAR ATTENTION LINEAR NORM LINEAR LINEAR NORM"
    kinds = " ".join(o.kind.name for o in lowered.program.ops)
    assert kinds == f"EMBED NORM {' '.join([layer] * 6)} POOL NORMALIZE"
    qkv = next(t for t in lowered.program.tensors if "qkv.weight" in t.name)
    assert (qkv.name, qkv.shape) == ("encoder.layer.0.attention.self.qkv.weight", (1152, 384))
    sequences = random_sequences((3, 24, 100), 30522)
    want = np.stack([onnx_tokens(made.path, s).mean(0) for s in sequences])
    want /= np.linalg.norm(want, axis=1, keepdims=True)
    np.testing.assert_allclose(run(lowered, sequences), want, atol=1e-5)


def test_vocabulary_is_the_tables(toy: Path) -> None:
    assert lower(toy, every_pooling(HIDDEN, POSITIONS)).program.vocab_size == VOCAB
