"""Compiles the wasm runtime: four builds, reproducible, without anything but ziglang."""

from toolchain.build.compiler import CompileError, CompilerMissing
from toolchain.build.report import BuildReport
from toolchain.build.variants import VARIANTS, Variant, build, build_all

__all__ = [
    "VARIANTS",
    "BuildReport",
    "CompileError",
    "CompilerMissing",
    "Variant",
    "build",
    "build_all",
]
