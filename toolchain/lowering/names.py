"""Readable names for the tensors of a program."""

from __future__ import annotations

import re

_WRAPPERS = ("model.model.", "model.", "m.", "auto_model.", "0.auto_model.", "transformer.")
_GENERATED = re.compile(r"^(onnx::|val_|/|_|t_|cat_|expand|slice|mul_|add_|volery/)|_\d+$|^$")


def clean(hint: str) -> str:
    """A hint without the wrapper module's prefix; "" when it says nothing to people."""
    for prefix in _WRAPPERS:
        if hint.startswith(prefix):
            hint = hint[len(prefix) :]
            break
    return "" if _GENERATED.search(hint) else hint


def joint_name(hints: list[str], name: str) -> str:
    """One name for tensors that became one: ``a.query.weight``, ... -> ``a.<name>.weight``."""
    if len(set(hints)) == 1:
        return hints[0]  # parts of one tensor
    split = [h.split(".") for h in hints]
    if not all(clean(h) for h in hints) or len({len(s) for s in split}) != 1:
        return ""
    differs = [i for i, parts in enumerate(zip(*split, strict=True)) if len(set(parts)) > 1]
    if len(differs) != 1:
        return ""
    joined = list(split[0])
    joined[differs[0]] = name
    return ".".join(joined)


class Names:
    """Hands out unique names."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def unique(self, hint: str, fallback: str) -> str:
        """``hint`` made readable, or ``fallback`` where it says nothing; never one twice.

        Parts of a quantized tensor are named after it with ``.scale`` and ``.min``.
        """
        base = clean(hint) or fallback
        name, n = base, 1
        while self._clashes(name):
            n += 1
            name = f"{base}.{n}"
        self._used.update((name, name + ".scale", name + ".min"))
        return name

    def _clashes(self, name: str) -> bool:
        return any(part in self._used for part in (name, name + ".scale", name + ".min"))
