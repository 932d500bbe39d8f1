"""Varied texts: sentences of the standard library's docstrings, and the edge cases people send."""

from __future__ import annotations

import ast
import re
import sysconfig
import unicodedata
from functools import cache
from pathlib import Path

_MODULES = (
    "ast asyncio.base_events asyncio.events asyncio.streams bisect cmd code codecs copy "
    "datetime enum fileinput fnmatch getopt gettext hashlib html.parser http.cookiejar "
    "http.server imaplib importlib.abc locale logging.config numbers pathlib platform plistlib "
    "poplib random sched selectors shelve shutil smtplib socket socketserver ssl "
    "statistics string subprocess tarfile tempfile textwrap threading timeit tokenize "
    "trace traceback turtle types typing unittest.case unittest.mock urllib.parse "
    "urllib.request uuid warnings wave weakref webbrowser xml.dom.minidom zipfile"
)  # none of them is calibrated on

ONE_TOKEN = ("中" * 700, ". " * 600, "word " * 1000)
"""Texts that one token fills: its own rounding error does not average out over the mean, so
quantized artifacts are held to a bound of their own here."""

EDGE_CASES = (
    "",
    " ",
    "   \t \n ",
    "\u200b",
    "\ufeff",
    "\u00ad\u2060",
    ".",
    "!!!???",
    "a",
    "The quick brown fox jumps over the lazy dog.",
    "UPPER lower MiXeD",
    "naïve café über Straße ÅNGSTRÖM",
    unicodedata.normalize("NFD", "naïve café Việt rất đẹp 각"),
    "日本語のテキストです。",
    "中文没有空格的一句话",
    "한국어 문장",
    "ภาษาไทยไม่มีช่องว่าง",
    "العربية من اليمين إلى اليسار",
    "हिन्दी में एक वाक्य",
    "Ελληνικά και Русский",
    "👩‍🚀 🏳️‍🌈 👍🏽 ☕",
    "ﬁ ﬂ ½ ① ２０２６ Ａ",
    "\x00 control \x01 \x1b[0m \x7f",
    "line\none\r\ntwo\u2028three\x85four",
    "[CLS] [SEP] [MASK] [PAD] [UNK]",
    "<s> </s> <mask>",
    "https://example.com/a?b=c&d=%20#e",
    "def f(x): return x ** 2  # comment",
    '{"key": [1, 2.5, null]}',
    "1234567890 3.14159 1e-10 0xFF",
    "don't can't won't it's",
    "a" * 99,
    "a" * 100,
    "a" * 101,
    "x" * 1_000_000,
    "é" * 500,
    "👍" * 500,
    *ONE_TOKEN,
)


@cache
def docstring_sentences() -> tuple[str, ...]:
    """Distinct sentences of one to a few dozen words, in a fixed order."""
    found: dict[str, None] = {}
    library = Path(sysconfig.get_path("stdlib"))
    for name in _MODULES.split():
        source = (library / (name.replace(".", "/") + ".py")).read_text(encoding="utf-8")
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                doc = ast.get_docstring(node) or ""
                for paragraph in re.split(r"\n\s*\n", doc):
                    text = " ".join(paragraph.split())
                    if len(text) > 20:
                        found.setdefault(text)
    return tuple(found)


@cache
def varied_texts(count: int = 500) -> tuple[str, ...]:
    """``count`` texts: the edge cases, then docstrings spread over all modules."""
    sentences = docstring_sentences()
    wanted = count - len(EDGE_CASES)
    step = len(sentences) / wanted
    assert step >= 1, f"only {len(sentences)} sentences"
    return EDGE_CASES + tuple(sentences[int(i * step)] for i in range(wanted))
