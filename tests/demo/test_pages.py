"""What holds for every page of the demos: they load, fit, have names, and say what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.demo.conftest import OpenPage, serving

pytestmark = pytest.mark.browser

PAGES = {
    "/web/": "main",
    "/web/search/": "#query:enabled",
    "/web/chat/": "#ask-all:enabled",
    "/web/dashboard/": "#load:enabled",
    "/web/pyodide/": "#code",
}
PHONE = {"width": 390, "height": 844}
UNNAMED = """
() => [...document.querySelectorAll("a, button, input, textarea, progress, [role], section")]
  .filter((e) => !(e.ariaLabel || e.labels?.length || e.textContent.trim()))
  .map((e) => e.outerHTML)
"""
CONTRAST = """
() => {
  const light = (color) => {
    const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map((c) => {
      const s = c / 255;
      return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll("h1, .lead, nav a, h2")].map((e) => {
    const ink = light(getComputedStyle(e).color);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  });
}
"""
"""Of every text on the page's own ground, by the definition of WCAG 2."""


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_a_phone_and_names_its_parts(open_page: OpenPage, path: str) -> None:
    page = open_page(path, ready=PAGES[path], viewport=PHONE, color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate(UNNAMED) == []
    assert min(page.evaluate(CONTRAST)) >= 4.5
    page.emulate_media(color_scheme="light")
    assert min(page.evaluate(CONTRAST)) >= 4.5


def test_both_models_of_the_dashboard_are_served(open_page: OpenPage) -> None:
    page = open_page("/web/dashboard/", ready="#load:enabled")
    page.focus("#chats")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#chats-value") == "4"
    page.wait_for_function("voleryDemo.writer.stats().runningSeqs === 4")
    page.wait_for_function("voleryDemo.embedder.stats().finished.done > 3")
    page.focus("#chats")
    page.keyboard.press("Home")
    page.wait_for_function("voleryDemo.writer.stats().requests === 0")
    # The threads are the embedder's again.
    page.wait_for_function("voleryDemo.embedder.stats().steps > 20")


@pytest.fixture(scope="module")
def empty(packaged_wasm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The demos of a fresh checkout."""
    nothing = tmp_path_factory.mktemp("nothing")
    with serving({"/artifacts": nothing, "/dist": nothing}) as origin:
        yield origin


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/web/search/", "toolchain export all-MiniLM-L6-v2"),
        ("/web/chat/", "toolchain export SmolLM2-135M-Instruct"),
        ("/web/dashboard/", "toolchain export all-MiniLM-L6-v2"),
        ("/web/pyodide/", "make wheel"),
    ],
)
def test_what_is_missing_is_told_with_its_command(
    browser: Any, empty: str, path: str, command: str
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(empty + path)
    page.wait_for_selector("#status.error")
    assert command in page.inner_text("#status")
    context.close()
