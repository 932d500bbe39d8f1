"""The tokenizer of a model directory, as transformers builds it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from runtime_py.errors import ArtifactCorrupt, ArtifactMissing, ArtifactUnsupported
from toolchain.sources.source import ModelSource


def fast_tokenizer(source: ModelSource) -> Tokenizer:
    """The model's tokenizer: of the GGUF file, of transformers, or ``tokenizer.json``.

    Raises:
        ArtifactMissing, ArtifactUnsupported, ArtifactCorrupt: there is none that is usable.
    """
    if source.gguf_path is not None:
        from toolchain.sources.gguf import GgufFile, load_tokenizer

        return load_tokenizer(GgufFile(source.gguf_path)).tokenizer
    file = source.path / "tokenizer.json"
    if (source.path / "config.json").is_file() or not file.is_file():
        return Tokenizer.from_str(auto_tokenizer(source.path).backend_tokenizer.to_str())
    try:
        return Tokenizer.from_file(str(file))
    except Exception as e:  # the library raises plain Exception
        raise ArtifactCorrupt(
            f"{file} cannot be loaded ({str(e).splitlines()[0]}); fetch it again"
        ) from None


def auto_tokenizer(path: Path) -> Any:
    """The fast ``AutoTokenizer`` of a model directory.

    Raises:
        ArtifactMissing: there is none, or it cannot be loaded.
        ArtifactUnsupported: it is written in Python.
    """
    from transformers import AutoTokenizer
    from transformers.utils import logging as transformers_logging

    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        auto = AutoTokenizer.from_pretrained(
            path, use_fast=True, local_files_only=True, trust_remote_code=False
        )
    except Exception as e:  # the library raises many types
        raise ArtifactMissing(
            f"{path} has no tokenizer that can be loaded "
            f"({str(e).splitlines()[0] if str(e) else type(e).__name__}); "
            "put tokenizer.json beside the model"
        ) from None
    finally:
        transformers_logging.set_verbosity(verbosity)
    if not auto.is_fast:
        raise ArtifactUnsupported(
            f"{type(auto).__name__} is written in Python, expected a fast tokenizer; "
            "put tokenizer.json beside the model"
        )
    return auto
