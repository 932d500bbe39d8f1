"""Pyodide's core decides what CPython's does: every golden trace, digest by digest."""

from __future__ import annotations

import json

import pytest

from tests.golden.generate import FOLDER, INDEX, TRACES
from tests.pyodide.conftest import Python

pytestmark = pytest.mark.browser

REPLAY = """
import gzip
from pyodide.http import pyfetch
from runtime_py.batching import replay
index = await (await pyfetch({index!r})).json()
packed = await (await pyfetch({traces!r})).bytes()
lines = gzip.decompress(packed).decode().splitlines(keepends=True)
result = {{
    name: replay(lines[at["line"] : at["line"] + at["lines"]]) for name, at in index.items()
}}
"""


@pytest.mark.parametrize("python", ["page", "deno"], indirect=True)
def test_every_golden_trace_has_its_digest(python: Python) -> None:
    folder = python.server.share(FOLDER)
    code = REPLAY.format(index=folder + INDEX.name, traces=folder + TRACES.name)
    expected = {name: at["digest"] for name, at in json.loads(INDEX.read_text()).items()}
    assert python.run(code) == expected
