"""The chat page in Chromium: conversations that share steps, by keyboard."""

from __future__ import annotations

import pytest

from tests.demo.conftest import OpenPage

pytestmark = pytest.mark.browser


def test_three_conversations_share_steps(open_page: OpenPage) -> None:
    page = open_page("/web/chat/", ready="#ask-all:enabled")
    page.keyboard.press("Alt+KeyA")
    page.wait_for_function("(voleryDemo.model.stats().batchSizes[3] ?? 0) >= 5")
    answers = page.locator(".assistant")
    assert answers.count() == 3
    assert all(text.strip() for text in answers.all_inner_texts())

    page.keyboard.press("Escape")
    page.wait_for_function("voleryDemo.conversations.every((c) => !c.busy)")
    assert page.is_disabled("#stop-all")
    page.wait_for_function("voleryDemo.model.stats().requests === 0")

    # One more conversation, which has the focus; its answer counts on without the others.
    page.keyboard.press("Alt+KeyN")
    page.keyboard.press("Control+A")
    page.keyboard.type("Say hello.")
    page.keyboard.press("Enter")
    fourth = page.locator(".conversation >> nth=3")
    fourth.locator(".facts:has-text('batch of 1')").wait_for()
    assert fourth.locator(".user").inner_text() == "Say hello."
    assert "failed" not in (fourth.locator(".assistant").get_attribute("class") or "")
