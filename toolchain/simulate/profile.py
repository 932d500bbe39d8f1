"""Device profiles: what a step costs on a measured device.

A profile is a JSON object that ``toolchain bench --profile`` writes, or the
``cost_profile`` of an artifact's manifest::

    {"format": "volery-profile", "version": 1, "host": "wasmtime", "threads": 1,
     "kind": "encoder", "coefficients_ns": {"constant": ..., "num_tokens": ...},
     "noise": {"relative": 0.03}}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime_py.batching import CostProfile, LaneKind, StepShape
from runtime_py.errors import ArtifactCorrupt, ArtifactMissing, ArtifactUnsupported

PROFILE_FORMAT = "volery-profile"
PROFILE_VERSION = 1
_SHIPPED = Path(__file__).parent / "profiles"
_FIELDS = {
    "constant": "step_ns",
    "threads": "thread_ns",
    "num_seqs": "seq_ns",
    "num_tokens": "token_ns",
    "sum_len_sq": "pair_ns",
    "kv_tokens": "kv_ns",
}
_KV_BLOCK = 32


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """A device as it was measured.

    Attributes:
        name: what to call it in reports.
        kind: what its model does.
        host: the engine that it was measured on.
        cost: nanoseconds on one thread.
        noise: standard deviation of a step's time, relative to its mean.
        max_tokens: longest sequence (encoder), or most positions (decoder).
        kv_blocks: decoder: blocks of 32 tokens that its cache holds.
    """

    name: str
    kind: LaneKind
    host: str
    cost: CostProfile
    noise: float = 0.0
    max_tokens: int = 512
    kv_blocks: int = 0

    def step_ns(self, shape: StepShape) -> float:
        """What a step of this shape takes on average, warm and unthrottled."""
        c = self.cost
        work = c.seq_ns * shape.num_seqs + c.token_ns * shape.num_tokens
        work += c.pair_ns * shape.sum_len_sq + c.kv_ns * shape.kv_tokens
        return c.step_ns + c.thread_ns * (shape.threads - 1) + work / shape.threads


def shipped_profiles() -> list[str]:
    """Names of the profiles that come with the toolchain."""
    return sorted(path.stem for path in _SHIPPED.glob("*.json"))


def load_profile(source: str) -> DeviceProfile:
    """A profile by its shipped name, from a file, or from an artifact's folder.

    Raises:
        ArtifactMissing: there is none of that name, or the artifact has none.
        ArtifactCorrupt: it is not a profile.
        ArtifactUnsupported: it is of a newer version.
    """
    shipped = _SHIPPED / f"{source}.json"
    path = shipped if "/" not in source and shipped.exists() else Path(source)
    if path.is_dir():
        path = path / "manifest.json"
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ArtifactMissing(
            f"no profile {source!r} ({e.strerror}); expected a file, an artifact's folder, or "
            f"one of {', '.join(shipped_profiles())}"
        ) from None
    except ValueError as e:
        raise ArtifactCorrupt(f"{path} is not JSON: {e}") from None
    if not isinstance(plain, dict):
        raise ArtifactCorrupt(f"{path} is not a JSON object")
    if plain.get("format") == PROFILE_FORMAT:
        return _from_profile(plain, str(plain.get("model") or path.stem), path)
    return _from_manifest(plain, path)


def _from_profile(plain: Mapping[str, Any], name: str, path: Path) -> DeviceProfile:
    if plain.get("version") != PROFILE_VERSION:
        raise ArtifactUnsupported(
            f"{path} is a profile of version {plain.get('version')!r}, this toolchain reads "
            f"{PROFILE_VERSION}"
        )
    try:
        kind = LaneKind(plain.get("kind", "encoder"))
        noise = plain.get("noise") or {}
        return DeviceProfile(
            name=name,
            kind=kind,
            host=str(plain.get("host", "")),
            cost=_cost(plain["coefficients_ns"]),
            noise=_number(noise.get("relative", 0.0)) if isinstance(noise, dict) else 0.0,
            max_tokens=int(plain.get("max_tokens", 512 if kind is LaneKind.ENCODER else 2048)),
            kv_blocks=int(plain.get("kv_blocks", 0 if kind is LaneKind.ENCODER else 512)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise ArtifactCorrupt(f"{path} is not a profile: {e!r}") from None


def _from_manifest(plain: Mapping[str, Any], path: Path) -> DeviceProfile:
    measured = plain.get("cost_profile")
    if plain.get("format") != "volery" or not isinstance(measured, dict):
        raise ArtifactMissing(
            f"{path} has no cost profile; expected a file that `toolchain bench --profile` wrote, "
            "or an artifact that was exported where the wasm backend runs"
        )
    try:
        limits = plain["limits"]
        generation = plain.get("generation")
        kind = LaneKind.DECODER if generation else LaneKind.ENCODER
        context = int(generation["max_context"]) if generation else int(limits["max_tokens"])
        return DeviceProfile(
            name=str(plain["model"]["id"]).rsplit("/", 1)[-1],
            kind=kind,
            host=str(measured.get("host", "")),
            cost=_cost(measured["coefficients_ns"]),
            max_tokens=context,
            kv_blocks=4 * context // _KV_BLOCK if generation else 0,
        )
    except (KeyError, TypeError, ValueError) as e:
        raise ArtifactCorrupt(f"{path} has a malformed cost profile: {e!r}") from None


def _cost(coefficients: Mapping[str, Any]) -> CostProfile:
    values = {_FIELDS[k]: _number(v) for k, v in coefficients.items() if k in _FIELDS}
    if not values.get("token_ns") and not values.get("seq_ns"):
        raise ValueError("neither num_tokens nor num_seqs costs anything")
    return CostProfile(**{**dict.fromkeys(_FIELDS.values(), 0.0), **values})


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{value!r} is not a number of at least 0")
    return number
