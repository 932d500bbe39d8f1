"""Tiny GGUF files, written with the library's own writer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

F32 = npt.NDArray[np.float32]


def write(
    path: Path,
    arch: str = "llama",
    keys: Mapping[str, Any] | None = None,
    floats: Mapping[str, F32] | None = None,
    blocks: Mapping[str, tuple[npt.NDArray[np.uint8], GGMLQuantizationType]] | None = None,
) -> Path:
    """A file with these keys, float32 tensors, and already quantized tensors."""
    writer = gguf.GGUFWriter(path, arch)
    for key, value in (keys or {}).items():
        match value:
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
            case _:
                writer.add_array(key, value)
    for name, array in (floats or {}).items():
        writer.add_tensor(name, np.ascontiguousarray(array, np.float32))
    for name, (raw, kind) in (blocks or {}).items():
        writer.add_tensor(name, raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_blocks(
    kind: GGMLQuantizationType, rows: int, columns: int, seed: int = 0
) -> npt.NDArray[np.uint8]:
    """Any bytes are codes; the f16 fields get ordinary values of both signs."""
    rng = np.random.default_rng(seed)
    block, size = GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    for at in F16_FIELDS.get(kind, ()):
        scale = rng.normal(0, 0.02, (rows, columns // block)).astype(np.float16)
        raw[..., at : at + 2] = scale[..., None].view(np.uint8)
    return raw.reshape(rows, -1)


Q = GGMLQuantizationType
F16_FIELDS = {
    Q.Q4_0: (0,),
    Q.Q4_1: (0, 2),
    Q.Q5_0: (0,),
    Q.Q5_1: (0, 2),
    Q.Q8_0: (0,),
    Q.Q2_K: (80, 82),
    Q.Q3_K: (108,),
    Q.Q4_K: (0, 2),
    Q.Q5_K: (0, 2),
    Q.Q6_K: (208,),
    Q.IQ4_NL: (0,),
    Q.IQ4_XS: (0,),
}
