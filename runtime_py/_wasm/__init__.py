"""The compiled modules of the wasm runtime, as package data.

In a checkout ``toolchain build`` writes them here; a wheel carries them.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

from runtime_py.errors import ArtifactMissing, InvalidInput

VARIANTS = ("simd", "relaxed", "simd-threads", "relaxed-threads")


def module_file(variant: str) -> Traversable:
    """The module of ``variant``: a readable resource, not always a file on disk.

    Raises:
        InvalidInput: there is no such variant.
        ArtifactMissing: it has not been compiled.
    """
    if variant not in VARIANTS:
        raise InvalidInput(f"wasm variant {variant!r}, expected one of {', '.join(VARIANTS)}")
    file = files(__name__) / f"volery-{variant}.wasm"
    if not file.is_file():
        raise ArtifactMissing(
            f"the wasm module volery-{variant}.wasm has not been compiled; run `toolchain build`"
        )
    return file
