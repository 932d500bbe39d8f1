"""`ChatSession`: turns, options and files, without a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_py import ArtifactCorrupt, InvalidInput, InvalidType, ModelInfo
from toolchain.cli.chat_session import ChatSession

INFO = ModelInfo("tiny", 0, False, 400, max_context=400, vocab_size=101, chat=True)


def roles(session: ChatSession) -> str:
    return "".join(m["role"][0] for m in session.messages)


def session(turns: int = 0, system: str | None = None) -> ChatSession:
    made = ChatSession(INFO, {"max_tokens": 9}, system=system)
    for i in range(turns):
        made.ask(f"q{i}")
        made.answered(f"a{i}")
    return made


def test_turns_come_and_go() -> None:
    chat = session(3, system="be good")
    assert (roles(chat), chat.turns, chat.system) == ("suauaua", 3, "be good")
    assert chat.undo() == "q2"
    chat.ask("again")
    assert chat.undo() == "again"
    assert roles(chat) == "suaua"
    chat.system = "be better"
    assert chat.messages[0] == {"role": "system", "content": "be better"}
    chat.system = ""
    assert (roles(chat), chat.system) == ("uaua", None)
    chat.system = "x"
    chat.reset()
    assert roles(chat) == "s"
    with pytest.raises(InvalidInput, match="nothing has been said"):
        chat.undo()


@given(st.lists(st.booleans(), max_size=12), st.booleans())
def test_forgetting_keeps_the_system_message_and_the_last_question(
    answered: list[bool], system: bool
) -> None:
    chat = session(0, system="s" if system else None)
    for i, has_answer in enumerate([*answered, False]):
        chat.ask(f"q{i}")
        if has_answer:
            chat.answered(f"a{i}")
    while chat.forget_oldest():
        assert roles(chat)[system] == "u"
    assert roles(chat) == "s" * system + "u"
    assert chat.messages[-1]["content"] == f"q{len(answered)}"


def test_options_are_checked_when_they_are_set() -> None:
    chat = session()
    chat.set("temperature", "0.5")
    chat.set("stop", r"a\nb")
    chat.set("seed", "7")
    chat.set("max_tokens", "20")
    assert chat.options == {"temperature": 0.5, "stop": ["a\nb"], "seed": 7, "max_tokens": 20}
    before = dict(chat.options)
    for name, value, words in (
        ("heat", "1", "there is no option 'heat', expected one of max_tokens, temperature"),
        ("temperature", "hot", "temperature is 'hot', expected a number"),
        ("top_k", "1.5", "top_k is '1.5', expected a whole number"),
        ("top_p", "2", "top_p is 2.0"),
        ("max_tokens", "999", "max_tokens is 999, expected 1 to 400"),
        ("temperature", "nan", "temperature is nan"),
    ):
        with pytest.raises(InvalidInput, match=words):
            chat.set(name, value)
    assert chat.options == before
    for name in before:
        chat.set(name, "default")
    assert chat.options == {"max_tokens": 9}  # what the command began with
    assert chat.settings()["top_p"] == 1.0
    with pytest.raises(InvalidInput, match="top_k"):
        ChatSession(INFO, {"top_k": -1})


def test_a_saved_chat_continues(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    chat = session(2, system="é")
    chat.set("temperature", "1")
    chat.save(path)
    other = session(5)
    other.load(path)
    assert (other.messages, other.options) == (chat.messages, chat.options)
    session().save(path)
    other.load(path)
    assert other.messages == []


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        ("{", ArtifactCorrupt, "not a saved chat"),
        ("[" * 100_000, ArtifactCorrupt, "not a saved chat"),
        ("[]", ArtifactCorrupt, "expected what /save wrote"),
        ({"version": 2}, ArtifactCorrupt, "version 2"),
        ({"options": {"n": 4}}, ArtifactCorrupt, "options that a chat does not have"),
        ({"options": {"top_p": 9}}, InvalidInput, "top_p is 9"),
        ({"options": {"top_p": "x"}}, InvalidType, "top_p is str"),
        ({"messages": [{"role": "king", "content": "a"}]}, InvalidInput, "role 'king'"),
        ({"messages": 5}, InvalidType, "messages is int"),
    ],
)
def test_a_bad_file_changes_nothing(
    tmp_path: Path, content: object, error: type[Exception], words: str
) -> None:
    plain = {"format": "volery-chat", "version": 1, "messages": [], "options": {}}
    text = content if isinstance(content, str) else json.dumps({**plain, **content})  # type: ignore[dict-item]
    (tmp_path / "chat.json").write_text(text)
    chat = session(2)
    before = list(chat.messages), dict(chat.options)
    with pytest.raises(error, match=words):
        chat.load(tmp_path / "chat.json")
    assert (chat.messages, chat.options) == before
    with pytest.raises(InvalidInput, match="cannot be read"):
        chat.load(tmp_path / "none.json")
    with pytest.raises(InvalidInput, match="cannot be written"):
        chat.save(tmp_path / "no" / "chat.json")
