"""Opens an artifact: nothing is used before it has been checked."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from runtime_py.artifact.goldens import Goldens
from runtime_py.artifact.manifest import GOLDENS, MANIFEST, MAX_MANIFEST_BYTES, PROGRAM, Manifest
from runtime_py.artifact.strict_json import looks_like_html
from runtime_py.artifact.weights import ShardedWeights, read_headers
from runtime_py.errors import ArtifactCorrupt, ArtifactMissing
from runtime_py.program import Program, validate

_CHUNK = 1 << 20


class Artifact:
    """An artifact on disk whose manifest, program and shard headers are valid.

    Make it with `open`. `weights` reads lazily; it implements `WeightSource`.
    """

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        program: Program,
        goldens: Goldens,
        weights: ShardedWeights,
    ) -> None:
        self.directory = directory
        self.manifest = manifest
        self.program = program
        self.goldens = goldens
        self.weights = weights

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Artifact:
        """Read and check the artifact in folder ``path``.

        Args:
            verify: also compare the sha256 of every file with the manifest, each file
                streamed once in small chunks. Sizes and structure are always checked.

        Raises:
            ArtifactMissing: the folder or a file is not there.
            ArtifactCorrupt: a file's size, hash or content is wrong.
            ArtifactUnsupported: written by a newer version.
        """
        directory = Path(path)
        if not os.path.isdir(directory):  # unlike Path's, false for a name that is too long
            raise ArtifactMissing(
                f"{directory} is not a folder; expected an artifact made by `toolchain export`"
            )
        manifest = Manifest.parse(_small_file(directory, MANIFEST, MAX_MANIFEST_BYTES))
        for name, entry in manifest.files.items():
            _check_file(directory / name, entry.bytes, entry.sha256 if verify else None)
        program = validate(Program.decode(_whole(directory, manifest, PROGRAM)))
        _agree(manifest, program)
        goldens = Goldens.parse(
            _whole(directory, manifest, GOLDENS),
            width=program.output.width,
            vocab_size=program.vocab_size,
            max_positions=program.max_positions,
        )
        shards = {name: manifest.files[name].bytes for name in manifest.shards}
        weights = ShardedWeights(directory, program, read_headers(directory, shards))
        return cls(directory, manifest, program, goldens, weights)

    def path(self, name: str) -> Path:
        """Path of the artifact's file ``name``.

        Raises:
            ArtifactMissing: the manifest does not list it.
        """
        if name != MANIFEST and name not in self.manifest.files:
            raise ArtifactMissing(f"the artifact in {self.directory} has no file {name!r}")
        return self.directory / name


def _small_file(directory: Path, name: str, max_bytes: int) -> bytes:
    try:
        with (directory / name).open("rb") as f:
            size = min(os.fstat(f.fileno()).st_size, max_bytes + 1)  # read(n) allocates n
            return f.read(size)
    except OSError as e:
        raise ArtifactMissing(
            f"{name} cannot be read in {directory} ({e.strerror}); expected an artifact made by "
            "`toolchain export`"
        ) from None


def _whole(directory: Path, manifest: Manifest, name: str) -> bytes:
    return _small_file(directory, name, manifest.files[name].bytes)


def _check_file(path: Path, size: int, sha256: str | None) -> None:
    try:
        with path.open("rb", buffering=0) as f:
            found = os.fstat(f.fileno()).st_size
            if found != size:
                page = looks_like_html(f.read(512))
                raise ArtifactCorrupt(
                    f"{path.name} has {found} bytes, expected {size}"
                    + (" (it holds an HTML page: check the address)" if page else "")
                    + "; download it anew or export the model again"
                )
            if sha256 is None:
                return
            digest = hashlib.sha256()
            buffer = memoryview(bytearray(min(_CHUNK, size or 1)))
            while n := f.readinto(buffer):
                digest.update(buffer[:n])
    except OSError as e:
        raise ArtifactMissing(
            f"{path.name} cannot be read in {path.parent} ({e.strerror}); copy the whole "
            "artifact or export it again"
        ) from None
    if digest.hexdigest() != sha256:
        raise ArtifactCorrupt(
            f"{path.name} has sha256 {digest.hexdigest()}, expected {sha256}; "
            "download it anew or export the model again"
        )


def _agree(manifest: Manifest, program: Program) -> None:
    """The manifest's limits are the program's, so that either can be trusted."""
    limits, embedding = manifest.limits, manifest.embedding
    for name, found, expected in (
        ("limits.vocab_size", limits.vocab_size, program.vocab_size),
        ("limits.max_positions", limits.max_positions, program.max_positions),
        (
            "embedding.dimensions",
            embedding.dimensions if embedding else program.output.width,
            program.output.width,
        ),
    ):
        if found != expected:
            raise ArtifactCorrupt(
                f"{MANIFEST}: {name} is {found}, program.bin says {expected}; the files of two "
                "exports are mixed: export the model again"
            )
    if program.max_positions and limits.max_tokens > program.max_positions:
        raise ArtifactCorrupt(
            f"{MANIFEST}: limits.max_tokens is {limits.max_tokens}, program.bin has "
            f"{program.max_positions} positions; export the model again"
        )
