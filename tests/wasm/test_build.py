"""The modules' bytes: reproducible, small, with the exports and imports of the ABI."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import wasmtime

from runtime_py._wasm import module_file
from runtime_py.errors import ArtifactMissing, InvalidInput
from toolchain.build import (
    VARIANTS,
    BuildReport,
    CompileError,
    CompilerMissing,
    build,
    build_all,
    compiler,
    variants,
)

ROOT = Path(__file__).resolve().parents[2]
THREADS_ONLY = {"v_worker", "v_post", "v_stop", "v_lead", "v_stack_top", "v_abandon"}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[BuildReport]:
    return build_all(tmp_path_factory.mktemp("built"))


def test_same_bytes_from_another_folder(
    reports: list[BuildReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(ROOT / "wasm", copy / "wasm")
    monkeypatch.setattr(variants, "ROOT", copy)
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(tmp_path / "cache"))
    again = build(tmp_path / "out", variants=VARIANTS[2:])
    assert [r.sha256 for r in again] == [r.sha256 for r in reports[2:]]


def test_sizes(reports: list[BuildReport]) -> None:
    assert [r.name for r in reports] == ["simd", "relaxed", "simd-threads", "relaxed-threads"]
    assert all(r.bytes == r.path.stat().st_size <= 150_000 for r in reports)
    assert sum(r.gzip_bytes for r in reports) <= 200_000


def test_modules_export_exactly_the_header(reports: list[BuildReport]) -> None:
    header = (ROOT / "wasm" / "include" / "volery.h").read_text()
    declared = set(re.findall(r"^(?:u?int\d+_t|void) (v_\w+)\(", header, re.MULTILINE))
    assert declared > THREADS_ONLY
    config = wasmtime.Config()
    config.wasm_relaxed_simd = config.wasm_threads = True
    engine = wasmtime.Engine(config)
    for report in reports:
        module = wasmtime.Module(engine, report.path.read_bytes())
        threads = report.name.endswith("threads")
        exports = {e.name for e in module.exports} - {"__stack_pointer"}
        assert exports == (declared if threads else declared - THREADS_ONLY)
        (memory,) = module.imports
        assert (memory.module, memory.name) == ("env", "memory")
        assert memory.type.limits.max == (65535 if threads else None)


def test_missing_compiler_names_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompilerMissing, match=r"pip install volery\[build\]"):
        build_all(tmp_path)


def test_compile_error_is_one_line_and_leaves_no_module(tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text("int f(void) { return nonsense; }\n")
    out = tmp_path / "out" / "bad.wasm"
    with pytest.raises(CompileError, match="nonsense") as caught:
        compiler.compile_wasm(tmp_path, ["bad.c"], [], [], out)
    assert "\n" not in str(caught.value)
    assert list(out.parent.iterdir()) == []


def test_no_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "ROOT", tmp_path)
    with pytest.raises(ArtifactMissing, match="checkout"):
        build_all(tmp_path / "out")


def test_out_dir_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InvalidInput, match="is a file"):
        build_all(file)


def test_package_data_names_unknown_and_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="expected one of simd"):
        module_file("avx")
    assert module_file("simd").read_bytes()[:4] == b"\0asm"
