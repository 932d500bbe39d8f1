"""What is measured of a language model, and what is said about it."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from runtime_py.artifact import Artifact, LanguageNumerics
from runtime_py.engine import cost_profile
from runtime_py.errors import AccuracyGate, ArtifactCorrupt, InvalidInput
from runtime_py.executors.base import SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.program import TensorFormat
from tests.artifact.small import read_manifest, write_manifest
from tests.decoders import build_chat_decoder
from tests.generation.tiny import greedy
from tests.models import build_model
from tests.ops.cases.decoder import POSITIONS, VOCAB, decoder
from tests.ops.cases.encoder import weights_of
from toolchain.cli.app import make_app
from toolchain.pipeline import STAGES, export_model
from toolchain.verify.decoding import continue_greedily, score

PROMPT = tuple(int(i) for i in np.random.default_rng(7).integers(3, VOCAB, 23))


@pytest.fixture(scope="module")
def executor() -> ReferenceExecutor:
    program, parts = decoder(TensorFormat.F32)
    return ReferenceExecutor.from_weights(program, weights_of(program, parts))


def logits(executor: ReferenceExecutor, ids: list[int]) -> np.ndarray:
    table = array("i", range(16))
    step = Step(array("i", ids), [SeqRow(0, len(ids))], 1, [table], (), range(len(ids)), None)
    return np.array(executor.run(step).output)


def test_perplexity_and_agreement_are_those_of_torch(executor: ReferenceExecutor) -> None:
    ids = np.random.default_rng(1).integers(0, VOCAB, 150).tolist()
    mine = logits(executor, ids)
    other = mine + np.random.default_rng(2).normal(0, 0.5, mine.shape).astype(np.float32)
    found = score(executor, ids, other)
    for got, rows in ((found.perplexity, mine), (found.expected_perplexity, other)):
        loss = torch.nn.functional.cross_entropy(torch.tensor(rows[:-1]), torch.tensor(ids[1:]))
        assert got == pytest.approx(float(loss.exp()), rel=1e-5)
    assert found.top1 == pytest.approx((mine.argmax(1) == other.argmax(1)).mean())
    assert found.max_diff == pytest.approx(np.abs(mine - other).max(), rel=1e-4)


def test_greedy_answers_end_where_they_should(executor: ReferenceExecutor) -> None:
    prompts = [PROMPT[i:] for i in range(3)]
    expected = [list(greedy(p, 8)) for p in prompts]
    assert continue_greedily(executor, prompts, 8, (), POSITIONS) == expected
    stop = expected[1][3]
    ended = [e[: e.index(stop) + 1] if stop in e else e for e in expected]
    assert continue_greedily(executor, prompts, 8, (stop,), POSITIONS) == ended
    # the context is full after three tokens of the first
    short = continue_greedily(executor, prompts, 8, (), len(PROMPT) + 3)
    assert [len(a) for a in short] == [3, 4, 5]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny qwen2 in f32: small, and within any gate."""
    folder = tmp_path_factory.mktemp("exported")
    seen: list[tuple[str, float]] = []
    export_model(
        str(build_chat_decoder("qwen2", folder / "model")),
        folder / "out",
        scheme="f32",
        max_tokens=128,
        keep_onnx=True,
        progress=lambda stage, share, remark: seen.append((stage, share)),
    )
    assert [s for s, share in seen if share == 1.0] == list(STAGES)
    for stage in ("export", "quantize", "measure"):
        assert sum(s == stage for s, _ in seen) > 3, stage
    return folder / "out"


def test_the_manifest_tells_how_to_generate(exported: Path) -> None:
    manifest = Artifact.open(exported).manifest
    generation = manifest.generation
    assert generation is not None
    assert generation.eos_token_ids == (1, 3)  # generation_config.json, and the end of a turn
    assert (generation.bos_token, generation.eos_token) == ("", "<eos>")
    assert generation.max_context == manifest.limits.max_tokens == 128
    assert generation.kv_bytes_per_token == 2 * 2 * 2 * 8 * 4
    assert manifest.limits.max_tokens_source == "export option"
    assert isinstance(manifest.numerics, LanguageNumerics)
    assert manifest.numerics.top1 == 1.0
    assert manifest.cost_profile is not None
    assert set(manifest.cost_profile.coefficients_ns) == {
        "constant",
        "num_seqs",
        "num_tokens",
        "sum_len_sq",
        "kv_tokens",
    }


def test_the_engine_starts_from_the_measured_cache_cost(exported: Path) -> None:
    artifact = Artifact.open(exported)
    profile = artifact.manifest.cost_profile
    assert profile is not None
    measured = {**profile.coefficients_ns, "kv_tokens": 321.0}
    assert cost_profile(artifact.program, measured).kv_ns == 321.0


def test_commands_print_it(exported: Path) -> None:
    runner = CliRunner()
    text = runner.invoke(make_app(), ["inspect", str(exported)])
    assert text.exit_code == 0, text.output
    for words in ("perplexity", "same top token 100.00%", "cache", "with a chat template"):
        assert words in " ".join(text.output.split())
    facts = json.loads(runner.invoke(make_app(), ["inspect", "--json", str(exported)]).stdout)
    assert facts["generation"]["max_context"] == 128
    verified = runner.invoke(make_app(), ["verify", str(exported)])
    assert verified.exit_code == 0, verified.output
    assert "goldens on reference" in verified.output


def test_numerics_that_make_no_sense_are_refused(exported: Path, tmp_path: Path) -> None:
    manifest = read_manifest(exported)
    for name, value in (("top1", "high"), ("tokens", 0), ("greedy_equal", [-1])):
        broken = {**manifest, "numerics": {**manifest["numerics"], name: value}}
        copy = tmp_path / name
        copy.mkdir()
        for file in exported.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
        write_manifest(copy, broken)
        with pytest.raises(ArtifactCorrupt, match=f"numerics.{name}"):
            Artifact.open(copy)


def test_a_lossy_artifact_is_refused_and_named(tmp_path: Path) -> None:
    """Random weights predict nothing, so four bits change what they predict."""
    model = build_chat_decoder("gpt2", tmp_path / "model")
    with pytest.raises(AccuracyGate, match=r"of 160 tokens .* --allow-accuracy-loss"):
        export_model(str(model), tmp_path / "out", scheme="i4", activation_bits=8)
    assert not (tmp_path / "out").exists()
    export = ["export", str(model), "-o", str(tmp_path / "out"), "-q", "i4"]
    options = ["--activations", "8", "--allow-accuracy-loss", "--keep-onnx"]
    result = CliRunner().invoke(make_app(), [*export, *options])
    assert result.exit_code == 0, result.output
    for words in ("greedy answers", "stored matrices are exact", "same top"):
        assert words in result.output
    numerics = Artifact.open(tmp_path / "out").manifest.numerics
    assert isinstance(numerics, LanguageNumerics)
    assert numerics.rounded_tensors > 0
    assert 0.01 < numerics.worst_weight_error < 0.2
    kept = {f.name for f in (tmp_path / "out.onnx").iterdir()}
    assert kept == {"model.onnx", "model.i4.onnx"}


def test_activations_that_no_kernel_has(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="12 bits, expected 8 or 16"):
        export_model("anything", tmp_path / "out", activation_bits=12)
    with pytest.raises(InvalidInput, match="16 bits are for language models, expected 8"):
        export_model(
            str(build_model("bert", tmp_path / "bert")), tmp_path / "out", activation_bits=16
        )
    assert not (tmp_path / "out").exists()
