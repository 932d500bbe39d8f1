"""Writes artifacts: shards, tokenizer, goldens, cost profile, manifest."""

from toolchain.pack.artifact import Contents, write_artifact
from toolchain.pack.folder import check_target

__all__ = ["Contents", "check_target", "write_artifact"]
