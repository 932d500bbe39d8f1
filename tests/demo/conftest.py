"""Fixtures: the demos' own server, with models that the tests share, and pages in Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from demo.serve_web import serving

# Fixtures of the parts that the demos are made of
from tests.js.conftest import browser, packaged_wasm
from tests.pyodide.conftest import wheel

__all__ = ["browser", "packaged_wasm", "wheel"]

TIMEOUT_MS = 180_000
WIDE = {"width": 1280, "height": 860}

OpenPage = Callable[..., Any]


@pytest.fixture(scope="module")
def origin(
    packaged_wasm: Path,
    wheel: Path,
    minilm_artifacts: Mapping[str, Path],
    smollm2_artifacts: Mapping[str, Path],
) -> Iterator[str]:
    """The demos as `make demo-web` serves them."""
    folders = {
        "/artifacts/minilm": minilm_artifacts["i8"],
        "/artifacts/smollm2": smollm2_artifacts["i4-a8"],
        "/dist": wheel,
    }
    with serving(folders) as origin:
        yield origin


@contextmanager
def opening(browser: Any, origin: str) -> Iterator[OpenPage]:
    """Opens pages of the demos.

    At the end no page may have logged an error, or have asked for anything off its origin.
    """
    contexts: list[Any] = []
    faults: list[str] = []

    def note(request: Any) -> None:
        if not request.url.startswith((origin + "/", "data:", "blob:")):
            faults.append(f"asked for {request.url}")

    def open(path: str, *, ready: str | None = None, viewport: Any = WIDE, **options: Any) -> Any:
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("request", note)
        page.on("console", lambda m: faults.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(origin + path)
        if ready is not None:
            page.wait_for_selector(ready)
        return page

    yield open
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def open_page(browser: Any, origin: str) -> Iterator[OpenPage]:
    with opening(browser, origin) as open:
        yield open
