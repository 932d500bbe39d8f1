"""The Python page in Chromium: programs are typed, run, stopped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.demo.conftest import opening

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(browser: Any, origin: str) -> Iterator[Any]:
    """The page with its Python started, once for all tests."""
    with opening(browser, origin) as open:
        yield open("/web/pyodide/", ready="#run:enabled")


def run(page: Any, code: str | None = None) -> str:
    """What the program printed; without ``code``, that which is in the editor."""
    if code is not None:
        page.fill("#code", code)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#status:has-text('after')")
    return str(page.inner_text("#output"))


def test_programs_run_in_the_python_scheduler(page: Any) -> None:
    assert page.evaluate("document.activeElement.id") == "code"
    best, *_ = run(page).splitlines()
    assert best.endswith("Owls hunt by ear in complete darkness.")
    page.wait_for_function(
        "/the largest so far [1-9]/.test(document.querySelector('volery-dashboard').shadowRoot"
        ".querySelector('.batches p').textContent)"
    )

    page.get_by_role("button", name="Errors").click()
    errors = [line.split(":")[0] for line in run(page).splitlines() if line]
    assert errors == ["InvalidType", "TooLong", "DeadlineExceeded", "InvalidInput"]

    failed = run(page, "def f():\n    return 1 / 0\n\nf()")
    assert failed.splitlines() == [
        "Traceback (most recent call last):",
        '  File "<exec>", line 4, in <module>',
        '  File "<exec>", line 2, in f',
        "ZeroDivisionError: division by zero",
    ]

    # A stop counts from the first moment on, while the last program's models are closed too.
    page.fill("#code", "import asyncio\nwhile True:\n    await asyncio.sleep(0.01)")
    page.evaluate("document.querySelector('#run').click(); document.querySelector('#stop').click()")
    page.wait_for_selector("#output:has-text('Stopped.')")
    page.wait_for_selector("#run:enabled")

    # A new line keeps the indentation, and Escape ends what runs.
    page.fill("#code", "")
    page.focus("#code")
    page.keyboard.type("import asyncio\nwhile True:\nawait asyncio.sleep(0)")
    assert page.input_value("#code").endswith("while True:\n    await asyncio.sleep(0)")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#stop:enabled")
    page.keyboard.press("Escape")
    page.wait_for_selector("#output:has-text('Stopped.')")


def test_streams_of_a_language_model_share_steps(page: Any) -> None:
    shown = run(
        page,
        "import asyncio\n"
        "from page import load\n"
        "model = await load('/artifacts/smollm2/')\n"
        "calls = [model.chat([{'role': 'user', 'content': c}], max_tokens=8) for c in 'abc']\n"
        "async def answer(call): return await call\n"
        "replies = await asyncio.gather(*map(answer, calls))\n"
        "print(len(replies), model.stats().batch_sizes[3] > 3)\n",
    )
    assert shown.strip() == "3 True"
