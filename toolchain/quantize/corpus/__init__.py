"""Texts to calibrate quantization on, and other texts to measure it on.

Both sets mix short and long, prose and code, numbers and many scripts: sentences that
ship with the toolchain, and paragraphs of the standard library's docstrings, which every
Python carries. The two sets share no sentence and no module.
"""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from importlib.resources import files
from pathlib import Path

CALIBRATION, EVALUATION = "calibration", "evaluation"

QUESTIONS = (
    "What is the capital of France?",
    "Explain in two sentences why the sky is blue.",
    "Write a short poem about a lighthouse in winter.",
    "Give me three tips for learning to cook.",
    "What does a compiler do?",
)
"""What a chat model is asked when its greedy answers are compared."""

_MODULES = {
    CALIBRATION: (
        "argparse calendar collections concurrent.futures._base configparser contextlib csv "
        "dataclasses decimal difflib doctest email.message fractions ftplib functools glob "
        "gzip heapq http.client inspect io ipaddress json.decoder logging.handlers mailbox "
        "multiprocessing.managers optparse os pdb pickle pprint queue"
    ),
    EVALUATION: (
        "asyncio.base_events asyncio.streams ast bisect bz2 cmd code codecs copy cProfile "
        "datetime _pydatetime dis enum fileinput fnmatch getopt getpass gettext hashlib "
        "html.parser http.cookiejar imaplib locale numbers pathlib platform plistlib poplib "
        "random sched selectors shelve shutil smtplib socket socketserver sqlite3.dbapi2 "
        "statistics string subprocess tarfile tempfile textwrap threading timeit tokenize "
        "trace traceback turtle typing unittest.case unittest.mock urllib.parse "
        "urllib.request uuid warnings wave weakref webbrowser xml.dom.minidom "
        "xml.etree.ElementTree xmlrpc.client zipfile"
    ),
}
_MIN_CHARS, _MAX_CHARS = 12, 2000
# Where one token fills a text, its error does not average out over the mean.
_REPEATS = tuple(
    unit * 96
    for unit in ("文", ", ", "the ", "7", "- ", "日本 ", "ha", "é ", "? ", "no no yes ", "国", "..")
)


def texts(name: str, count: int) -> list[str]:
    """At most ``count`` different texts of `CALIBRATION` or `EVALUATION`, always the same.

    The shipped sentences come first; docstrings then fill up, spread over the modules.
    """
    shipped = files(__package__).joinpath(f"{name}.txt").read_text("utf-8").splitlines()
    found = dict.fromkeys(shipped)
    if name == CALIBRATION:
        found.update(dict.fromkeys(_REPEATS))
    docs = [_paragraphs(module) for module in _MODULES[name].split()]
    for depth in range(max(map(len, docs), default=0)):
        for paragraphs in docs:
            if depth < len(paragraphs) and len(found) < count:
                found.setdefault(paragraphs[depth])
                # Short texts are the hardest: few tokens share an error, and two of them
                # are special ones, so calibration sees many.
                if name == CALIBRATION:
                    words = paragraphs[depth].split()
                    for start in (len(words) // 4, len(words) // 2):
                        found.setdefault(" ".join(words[start : start + 1 + len(found) % 4]))
    return list(found)[:count]


def passage() -> str:
    """About 750 words of connected technical English, to measure a language model on."""
    return files(__package__).joinpath("passage.txt").read_text("utf-8")


@cache
def _paragraphs(module: str) -> tuple[str, ...]:
    """Paragraphs of the docstrings in ``module``'s source, long and short alternating."""
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        return ()
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return ()
    tree = ast.parse(Path(spec.origin).read_text("utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    paragraphs: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, documented) and (doc := ast.get_docstring(node)):
            for text in (doc, *doc.split("\n\n")):
                flat = " ".join(text.split())[:_MAX_CHARS]
                if len(flat) >= _MIN_CHARS:
                    paragraphs.setdefault(flat)
    by_length = sorted(paragraphs, key=lambda t: (len(t), t))
    alternating: list[str] = []
    while by_length:
        alternating.append(by_length.pop())
        if by_length:
            alternating.append(by_length.pop(len(by_length) // 2))
    return tuple(alternating)
