"""How the lowering says no: one line that names the node and what was expected."""

from __future__ import annotations

from runtime_py.errors import ArtifactUnsupported


class NotLowered(Exception):
    """Raised inside a rule; the interpreter adds which node it was."""


def unsupported(node_name: str, op: str, why: str) -> ArtifactUnsupported:
    """The public error for node ``node_name`` of type ``op``."""
    return ArtifactUnsupported(f"cannot lower node {node_name!r} ({op}): {why}")
