"""The npm package as its users get it: packed, and unpacked into a ``node_modules``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from tests.js.hosts import ROOT

WORKERS = ROOT / "workers"
PACK_SECONDS = 180


@dataclass(frozen=True)
class NpmPackage:
    """Attributes:
    node_modules: a folder with the unpacked package and its dependencies.
    tarball_bytes: size of what npm would publish.
    """

    node_modules: Path
    tarball_bytes: int

    @property
    def root(self) -> Path:
        return self.node_modules / "volery"


def pack(folder: Path) -> NpmPackage:
    """Pack ``workers`` and install it below ``folder``."""
    modules = folder / "node_modules"
    modules.mkdir(parents=True)
    # Packing writes the package's declarations and wasm folder.
    with FileLock(ROOT / "build" / "packaged_wasm.lock"):
        done = subprocess.run(
            ["npm", "pack", "--json", "--pack-destination", str(folder)],
            cwd=WORKERS,
            capture_output=True,
            text=True,
            timeout=PACK_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    # What the scripts print comes before the JSON.
    (packed,) = json.loads(done.stdout[done.stdout.index("[\n") :])
    tarball = folder / packed["filename"]
    with tarfile.open(tarball) as archive:
        archive.extractall(folder, filter="data")
    shutil.move(folder / "package", modules / "volery")
    for name in json.loads((WORKERS / "package.json").read_text())["dependencies"]:
        (modules / name).parent.mkdir(exist_ok=True)
        (modules / name).symlink_to(WORKERS / "node_modules" / name)
    return NpmPackage(modules, tarball.stat().st_size)


def installed(folder: Path) -> Path:
    """``folder``'s ``node_modules``, installed as its lock file says if it is not yet."""
    modules = folder / "node_modules"
    lock = folder / "package-lock.json"
    stamp = modules / ".installed"
    with FileLock(ROOT / "build" / f"npm-{folder.name}.lock"):
        if not stamp.exists() or stamp.read_text() != lock.read_text():
            if shutil.which("npm") is None:
                pytest.skip("npm is not on this machine")
            subprocess.run(
                ["npm", "ci", "--silent", "--no-audit", "--no-fund"],
                cwd=folder,
                check=True,
                timeout=600,
                env={**os.environ, "NO_UPDATE_NOTIFIER": "1"},
            )
            stamp.write_text(lock.read_text())
    return modules
