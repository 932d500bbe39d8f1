"""The benchmark's texts: sentences from the standard library's docstrings.

512 English texts of 4 to 250 tokens whose lengths follow a log-normal curve with median
25, as sentences of documents do. The same interpreter gives the same texts.
"""

from __future__ import annotations

import ast
import bisect
import hashlib
import json
import math
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TEXTS, MEDIAN, SPREAD = 512, 25, 0.72
SHORTEST, LONGEST = 4, 250


def read_corpus(file: Path) -> list[str]:
    """The ``texts`` of a JSON file."""
    texts = json.loads(file.read_text())["texts"]
    if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
        raise SystemExit(f"{file} has no list of strings named 'texts'")
    return texts


def _docstrings() -> Iterator[str]:
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        tree = ast.parse(file.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                yield ast.get_docstring(node) or ""


def _passages() -> Iterator[str]:
    """Sentences, and whole paragraphs for the long texts."""
    for docstring in _docstrings():
        for paragraph in docstring.split("\n\n"):
            text = " ".join(paragraph.split())
            if not text.isascii() or ">>>" in text or not text[:1].isupper():
                continue
            yield text
            yield from re.split(r"(?<=[.!?]) (?=[A-Z])", text)


def build_corpus(tokenizer: Tokenizer) -> list[str]:
    """Pick, for each length of the curve, the unused passage that is nearest to it."""
    passages = sorted(set(_passages()), key=lambda t: hashlib.sha256(t.encode()).digest())
    lengths = [len(e.ids) for e in tokenizer.encode_batch(passages)]
    free = sorted((n, i) for i, n in enumerate(lengths) if SHORTEST <= n <= LONGEST)
    picked = []
    for i in range(TEXTS):
        z = NormalDist().inv_cdf((i + 0.5) / TEXTS)
        wanted = min(max(MEDIAN * math.exp(SPREAD * z), SHORTEST), LONGEST)
        at = min(bisect.bisect_left(free, (round(wanted), 0)), len(free) - 1)
        picked.append(free.pop(at)[1])
    # In the order of their hashes, so that lengths are mixed.
    return [passages[i] for i in sorted(picked)]
