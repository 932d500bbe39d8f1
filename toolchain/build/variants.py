"""The builds of the wasm runtime and how they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime_py.errors import ArtifactMissing, InvalidInput
from toolchain.build.compiler import compile_wasm
from toolchain.build.report import BuildReport

ROOT = Path(__file__).resolve().parents[2]
"""The checkout (or unpacked source distribution) that holds ``wasm/``."""

_THREADS = (
    "-matomics",
    "-Wl,--shared-memory",
    # A shared memory must declare a maximum; hosts may pass one with a smaller maximum.
    # The last page of the 4 GiB is never used, so that no address wraps around.
    f"-Wl,--max-memory={65535 << 16}",
    "-Wl,--export=__stack_pointer",
)


@dataclass(frozen=True, slots=True)
class Variant:
    """One build: its name and what it adds to the common compiler flags."""

    name: str
    flags: tuple[str, ...]

    @property
    def filename(self) -> str:
        return f"volery-{self.name}.wasm"


VARIANTS = (
    Variant("simd", ()),
    Variant("relaxed", ("-mrelaxed-simd",)),
    Variant("simd-threads", _THREADS),
    Variant("relaxed-threads", ("-mrelaxed-simd", *_THREADS)),
)


def build(
    out_dir: Path, *, variants: Sequence[Variant] = VARIANTS, bench: bool = False
) -> list[BuildReport]:
    """Compile ``variants`` into ``out_dir``.

    The bytes depend on the sources and the compiler's version only.

    Args:
        bench: a module that measures itself, named ``volery-<variant>-bench.wasm``. It
            imports ``env.now`` (a clock in milliseconds) and exports the time per op and
            the micro-kernels; see ``bench/kernels``.

    Raises:
        CompilerMissing: ziglang is not installed.
        CompileError: the sources do not compile.
        ArtifactMissing: there are no sources, as in an installed wheel.
    """
    wasm = ROOT / "wasm"
    sources = sorted(path.relative_to(ROOT).as_posix() for path in wasm.glob("src/**/*.c"))
    if not sources:
        raise ArtifactMissing(
            f"{wasm} has no C sources; compile from a checkout of the project, "
            "an installed package already carries its modules"
        )
    includes = ["wasm/include", "wasm/src"]
    extra: tuple[str, ...] = ()
    if bench:
        sources += sorted(p.relative_to(ROOT).as_posix() for p in wasm.glob("bench/*.c"))
        extra = ("-DVOLERY_BENCH",)
    reports = []
    for variant in variants:
        name = variant.name + ("-bench" if bench else "")
        out = out_dir / f"volery-{name}.wasm"
        compile_wasm(ROOT, sources, includes, (*variant.flags, *extra), out)
        reports.append(BuildReport.of(name, out))
    return reports


def build_all(out_dir: Path | None = None) -> list[BuildReport]:
    """Compile the four modules that the package carries.

    Args:
        out_dir: an existing or new folder; ``runtime_py/_wasm`` of this checkout by default.

    Raises:
        InvalidInput: ``out_dir`` is a file.
        CompilerMissing, CompileError, ArtifactMissing: see `build`.
    """
    out_dir = ROOT / "runtime_py" / "_wasm" if out_dir is None else out_dir
    if out_dir.exists() and not out_dir.is_dir():
        raise InvalidInput(f"{out_dir} is a file, expected a folder for the wasm modules")
    return build(out_dir)
