"""`/v1/chat/completions` and `/v1/completions` on every host, asked by OpenAI's own client."""

from __future__ import annotations

import math
from typing import Any

import openai
import pytest

from tests.serve.conftest import Server
from tests.serve.truth import chat_ids, continuation, ids_of

MESSAGES: Any = [{"role": "user", "content": "hi"}]
GREEDY: dict[str, Any] = {"temperature": 0, "extra_body": {"ignore_eos": True}}


def chat(server: Server, **options: Any) -> Any:
    given = {"model": "decoder", "messages": MESSAGES, **options}
    return server.client.chat.completions.create(**given)


def complete(server: Server, **options: Any) -> Any:
    return server.client.completions.create(**{"model": "decoder", **options})


def test_chat(server: Server) -> None:
    answer = chat(server, max_completion_tokens=12, **GREEDY)
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == continuation(chat_ids("hi"), 12)
    assert choice.finish_reason == "length"
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(chat_ids("hi")), 12)
    assert usage.total_tokens == usage.prompt_tokens + 12
    assert answer.id.startswith("chatcmpl-")


def test_a_streamed_chat_is_the_same(server: Server) -> None:
    options = {"max_tokens": 12, "stream_options": {"include_usage": True}, **GREEDY}
    chunks = list(chat(server, stream=True, **options))
    *pieces, last = chunks
    assert len({c.id for c in chunks}) == 1
    assert pieces[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in pieces)
    assert text == continuation(chat_ids("hi"), 12)
    assert [c.choices[0].finish_reason for c in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert all(c.usage is None for c in pieces)
    assert last.choices == []
    assert last.usage.completion_tokens == 12
    assert last.model_extra["volery"]["batch_seqs"] >= 1


def test_events_end_with_done(server: Server) -> None:
    body = {"model": "decoder", "messages": MESSAGES, "max_tokens": 3, "stream": True}
    with server.client.chat.completions.with_streaming_response.create(**body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = list(response.iter_lines())
    events = [line for line in lines if line]
    assert all(line.startswith("data: {") for line in events[:-1])
    assert events[-1] == "data: [DONE]"


def test_completions_of_several_prompts(server: Server) -> None:
    prompts = ["hi", "what?"]
    for given in (prompts, [list(ids_of(p)) for p in prompts]):
        answer = complete(server, prompt=given, max_tokens=8, n=2, **GREEDY)
        wanted = [continuation(ids_of(p), 8) for p in prompts for _ in range(2)]
        assert [c.text for c in answer.choices] == wanted
        assert [c.index for c in answer.choices] == [0, 1, 2, 3]
        assert answer.usage.prompt_tokens == sum(map(len, prompts))
        assert answer.usage.completion_tokens == 32
    streamed = [""] * 4
    for chunk in complete(server, prompt=prompts, max_tokens=8, n=2, stream=True, **GREEDY):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == wanted
    # 16 tokens when nothing is said.
    (only,) = complete(server, prompt="hi", **GREEDY).choices
    assert only.text == continuation(ids_of("hi"), 16)


def test_seeds_repeat_and_differ(server: Server) -> None:
    def sample(**options: Any) -> list[str]:
        answer = chat(server, max_tokens=20, extra_body={"ignore_eos": True}, **options)
        return [c.message.content for c in answer.choices]

    for seed in (7, -7, 2**53 - 1):
        assert sample(seed=seed, n=3) == sample(seed=seed, n=3)
        assert len(set(sample(seed=seed, n=3))) == 3
    # OpenAI's default: drawn anew.
    assert len({sample()[0] for _ in range(4)}) > 1
    answer = chat(server, max_tokens=20, extra_body={"ignore_eos": True})
    seed = answer.model_extra["volery"]["seed"]
    assert sample(seed=seed) == [answer.choices[0].message.content]
    assert sample(top_p=1e-6) == [continuation(chat_ids("hi"), 20)]


def test_stop_ends_a_text_before_it(server: Server) -> None:
    whole = continuation(ids_of("hi"), 30)
    stop = whole[4:6]
    (choice,) = complete(server, prompt="hi", max_tokens=30, stop=[stop], **GREEDY).choices
    assert (choice.text, choice.finish_reason) == (whole[: whole.index(stop)], "stop")


def test_max_tokens_beyond_the_context_is_what_it_leaves(server: Server) -> None:
    answer = complete(server, prompt="hi", max_tokens=100_000, **GREEDY)
    assert answer.usage.total_tokens == 400
    assert answer.choices[0].finish_reason == "length"


def test_logprobs(server: Server) -> None:
    answer = chat(server, max_tokens=5, logprobs=True, top_logprobs=3, **GREEDY)
    content = answer.choices[0].logprobs.content
    text = continuation(chat_ids("hi"), 5)
    assert [t.token for t in content] == list(text)
    assert [bytes(t.bytes) for t in content] == [c.encode() for c in text]
    for token in content:
        # Greedy: the token is the likeliest.
        assert token.logprob == token.top_logprobs[0].logprob
        assert sum(math.exp(t.logprob) for t in token.top_logprobs) < 1
    old = complete(server, prompt="hi", max_tokens=5, logprobs=2, **GREEDY).choices[0].logprobs
    text = continuation(ids_of("hi"), 5)
    assert old.tokens == list(text)
    assert old.text_offset == [0, 1, 2, 3, 4]
    assert [max(top, key=top.get) for top in old.top_logprobs] == list(text)
    chunks = list(chat(server, max_tokens=5, logprobs=True, top_logprobs=3, stream=True, **GREEDY))
    streamed = [t for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert streamed == content


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, None),
        ({"messages": [{"role": "king", "content": "x"}]}, None),
        ({"messages": [{"role": "tool", "content": "x"}]}, None),
        ({"messages": MESSAGES, "top_p": 2}, "top_p"),
        ({"messages": MESSAGES, "max_tokens": 0}, "max_tokens"),
        ({"messages": MESSAGES, "max_completion_tokens": "5"}, "max_completion_tokens"),
        ({"messages": MESSAGES, "n": 1000}, "n"),
        ({"messages": MESSAGES, "seed": 1.5}, "seed"),
        ({"messages": MESSAGES, "stop": [""]}, "stop[0]"),
        ({"messages": MESSAGES, "logit_bias": {"5": "x"}}, "logit_bias[5]"),
        ({"messages": MESSAGES, "logit_bias": {"99999": 1}}, "logit_bias"),
        ({"messages": MESSAGES, "logit_bias": {"": 1}}, "logit_bias"),
        ({"messages": MESSAGES, "temperature": 1e-30}, "temperature"),
        ({"messages": MESSAGES, "tools": {}}, "tools"),
        ({"messages": MESSAGES, "top_logprobs": 2}, "top_logprobs"),
        ({"messages": MESSAGES, "stream": "yes"}, "stream"),
        ({"messages": MESSAGES, "stream_options": {}}, "stream_options"),
        ({"messages": MESSAGES, "response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": MESSAGES, "tool_choice": "required"}, "tool_choice"),
        ({"messages": MESSAGES, "temprature": 0}, "temprature"),
        ({}, "messages"),
    ],
)
def test_a_bad_field_is_named(server: Server, body: dict[str, Any], param: str | None) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        server.client.post("/chat/completions", body={"model": "decoder", **body}, cast_to=object)
    assert refused.value.param == param
    assert "\n" not in refused.value.message


def test_C10_a_prompt_that_never_fits_is_refused_at_once(server: Server) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        complete(server, prompt="x" * 400)
    assert refused.value.status_code == 413
    assert "400 tokens" in refused.value.message


def test_fields_of_the_api_that_change_nothing_here(server: Server) -> None:
    answer = chat(
        server,
        max_tokens=3,
        user="me",
        store=False,
        response_format={"type": "text"},
        tool_choice="none",
        presence_penalty=None,
        **GREEDY,
    )
    assert answer.choices[0].message.content == continuation(chat_ids("hi"), 3)
