"""Runs the unit tests of ``unit/`` with node:test, and the package's own checks."""

from __future__ import annotations

import subprocess

import pytest

from tests.js import hosts
from tests.js.hosts import JS, ROOT, TIMEOUT_S


@pytest.mark.parametrize("make", [hosts.node24, hosts.node20])
def test_unit(make: object) -> None:
    node = make().command[0]  # type: ignore[operator]
    files = sorted(str(file) for file in (JS / "unit").glob("*.test.js"))
    done = subprocess.run(
        [node, "--test", *files], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_host_independence() -> None:
    """Node's modules are reached from the Node and Deno entries only, and nothing is
    loaded or compiled from text at run time (M6)."""
    allowed = {"deno.js", "files.js", "node.js", "worker.node.js"}
    for file in sorted((ROOT / "workers" / "src").rglob("*.js")):
        code = "\n".join(
            line
            for line in file.read_text().splitlines()
            if not line.strip().startswith(("*", "/*", "//"))
        )
        assert ("node:" in code) == (file.name in allowed), file
        for banned in ("eval(", "new Function", "http://", "https://"):
            # Node's server makes whole URLs of its own address and of what it is asked for.
            own = banned == "http://" and file.parent.name == "serve"
            assert own or banned not in code, file
        assert "await import(" not in code, file
