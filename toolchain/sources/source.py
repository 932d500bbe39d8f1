"""What a model is resolved to: a directory on this machine and what is known about it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runtime_py.errors import ArtifactCorrupt, ArtifactMissing
from toolchain.sources.architectures import Task, task_of

SourceKind = Literal["directory", "package", "hub", "onnx", "gguf"]


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model, found.

    Attributes:
        kind: where it was found.
        path: directory that holds the tokenizer, the configuration and the weights.
        model_id: name for the manifest and for people.
        license: SPDX-like identifier from the model card, if it states one.
        revision: commit of the hub repository, if it came from there.
        architecture: ``model_type`` of the configuration ("unknown" for an ONNX file
            without one).
        onnx_path: the graph, when the source already is one.
        gguf_path: the GGUF file that holds everything, when the model comes in one.
    """

    kind: SourceKind
    path: Path
    model_id: str
    license: str | None
    revision: str | None
    architecture: str
    onnx_path: Path | None = None
    gguf_path: Path | None = None

    @property
    def task(self) -> Task:
        """What the model is for: a decoder generates, anything else embeds."""
        return task_of(self.architecture)

    def config(self) -> dict[str, Any]:
        """``config.json``, or an empty dictionary for an ONNX source without one.

        A GGUF file's is rebuilt from its metadata.
        """
        if self.gguf_path is not None:
            from toolchain.sources.gguf import GgufFile, hf_config

            return hf_config(GgufFile(self.gguf_path))
        file = self.path / "config.json"
        if self.kind == "onnx" and not file.exists():
            return {}
        return read_json(file)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``.

    Raises:
        ArtifactMissing: there is no such file.
        ArtifactCorrupt: it is not JSON, or not an object.
    """
    value = read_json_value(path)
    if not isinstance(value, dict):
        raise ArtifactCorrupt(f"{path} holds a {type(value).__name__}, expected a JSON object")
    return value


def read_json_value(path: Path) -> Any:
    """Any JSON value in ``path``; raises like `read_json`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtifactMissing(
            f"{path} does not exist; a model directory needs {path.name}"
        ) from None
    except (UnicodeDecodeError, ValueError) as error:
        raise ArtifactCorrupt(f"{path} is not valid JSON ({error}); fetch it again") from None


def card_license(path: Path) -> str | None:
    """The ``license`` of the model card's front matter, or None."""
    card = path / "README.md"
    if not card.is_file():
        return None
    text = card.read_text(encoding="utf-8", errors="replace")
    front = re.match(r"---\s*\n(.*?)\n---", text, re.DOTALL)
    found = re.search(r"^license:\s*['\"]?([\w.+-]+)", front[1], re.MULTILINE) if front else None
    return found[1] if found else None
