"""What a build produced."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class BuildReport:
    """One compiled module.

    Attributes:
        name: its variant, for example ``relaxed-threads``.
        path: where it was written.
        bytes: its size.
        gzip_bytes: its size as a server sends it (gzip, level 9).
        sha256: hex digest of its bytes; equal for equal sources and compiler.
    """

    name: str
    path: Path
    bytes: int
    gzip_bytes: int
    sha256: str

    @classmethod
    def of(cls, name: str, path: Path) -> BuildReport:
        data = path.read_bytes()
        packed = gzip.compress(data, compresslevel=9, mtime=0)
        return cls(name, path, len(data), len(packed), hashlib.sha256(data).hexdigest())
