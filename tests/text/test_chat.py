"""Chat templates: the same text as Hugging Face transformers makes, and hostile ones stopped with a plain message."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import models
from transformers import PreTrainedTokenizerFast

from clearformer.errors import CheckpointError, DataError
from clearformer.text.chat import LARGEST_RESULT, render
from clearformer.text.tokenizer import PublicTokenizer

NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
TEMPLATES = {
    "ChatML": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "Llama 2": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}\
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}\
{% set system_message = false %}{% endif %}{% for message in loop_messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate \
user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}\
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}\
{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}\
{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}\
{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "Llama 3": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'\
+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}""",
    "Zephyr": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""",
    "Qwen": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(\
message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' \
+ reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "Mistral": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and \
message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported") }}
    {%- endif %}
{%- endfor %}""",
    "everything else": """{% macro say(who, what='x') -%}<{{ who|upper }}>\
{{ what | replace('a', 'b') | indent(2) }}{% endmacro -%}
{# a remark #}{% set seen = [] %}{% for m in messages if m.content %}{{ say(m.role, m.content) }}
{%- if loop.index > 3 %}{% break %}{% endif %}{{ loop.cycle('-', '+') }}{{ loop.length }}{{ loop.revindex0 }}
{% else %}none{% endfor %}{% generation %}{{ messages | map(attribute='role') | join(', ') }}{% endgeneration %}
{{ messages | tojson }}|{{ messages[0] | tojson(indent=2) }}|{{ dict(a=1).items() | list }}|{{ range(3) | list }}
{{ (7 // 2) ~ '/' ~ (2 ** 3) ~ 1.5 | round(1) ~ none ~ true }}{{ 'ab' * 2 }}{{ missing }}{{ missing | default('d') }}
{%- for key, value in messages[0].items() %}{{ key }}={{ value }};{% endfor %}{{ (1, 2) + (3,) }}{{ [1] + [2] }}
{%- for x in [[1, [2]], [3]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}{{ 'a' in 'abc' }}
{%- set block %}{{ messages[0].role }}!{% endset %}{{ block }}{% filter upper %}up{% endfilter %}{{ "-".join("q") }}""",
}
USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
TALK = [
    (SYSTEM, "Be brief."),
    (USER, " Hi, <b>you</b> & 'me'! "),
    (ASSISTANT, "<think>\nhm\n</think>\n\nHöi 👋\n"),
    (USER, "a\nb"),
]


def talk(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


@pytest.fixture(scope="module")
def public() -> PreTrainedTokenizerFast:
    engine = Engine(models.WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2}, "<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=engine, **NAMES)


def theirs(public: PreTrainedTokenizerFast, template: str, messages: Any, answer: bool) -> str:
    made = public.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=answer)
    assert isinstance(made, str)
    return made


def say(template: str, messages: Any = None, answer: bool = True) -> str:
    return render(template, talk(*TALK) if messages is None else messages, answer=answer, names=NAMES)


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("turns", [TALK, TALK[1:], TALK[1:2]], ids=["system", "talk", "one"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_texts_are_those_of_transformers(
    public: PreTrainedTokenizerFast, name: str, turns: list[tuple[str, str]], answer: bool
) -> None:
    template, messages = TEMPLATES[name], talk(*turns)
    assert render(template, messages, answer=answer, names=NAMES) == theirs(public, template, messages, answer)


@given(texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=1, max_size=5))
def test_any_content_is_passed_as_it_is(public: PreTrainedTokenizerFast, texts: list[str]) -> None:
    messages = talk(*((ASSISTANT if number % 2 else USER, text) for number, text in enumerate(texts)))
    for name in ("Qwen", "Mistral", "ChatML"):
        assert say(TEMPLATES[name], messages) == theirs(public, TEMPLATES[name], messages, True)


def test_a_conversation_by_hand() -> None:
    messages = talk((USER, "Hi"), (ASSISTANT, "Hello"))
    assert say(TEMPLATES["Llama 2"], messages) == "<s>[INST] Hi [/INST] Hello </s>"
    assert datetime.now().strftime("%Y") in say(TEMPLATES["Llama 3"], messages)


def test_what_a_template_refuses_is_told() -> None:
    with pytest.raises(DataError, match="does not take these messages: Conversation roles must alternate"):
        say(TEMPLATES["Llama 2"], talk((USER, "a"), (USER, "b")))


@pytest.mark.parametrize(
    "messages", ["hi", {"role": "user"}, [1], [{"content": "x"}], [{"role": 1, "content": "x"}], [{"role": "user"}]]
)
def test_messages_of_another_form_are_refused(messages: Any) -> None:
    with pytest.raises(DataError, match="message"):
        say(TEMPLATES["ChatML"], messages)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(DataError, match="neither text"):
        say(TEMPLATES["ChatML"], [{"role": "user", "content": object()}])


GROW = "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = "
ENDLESS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a long range": "{% for a in range(10**9) %}{% endfor %}",
    "repetition": "{{ 'a' * 10**9 }}",
    "repetition the other way": "{{ 10**9 * 'a' }}",
    "repeated lists": "{{ ([0] * 10**9) | length }}",
    "power": "{{ 9**9**9**9 }}",
    "a product of many": "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "doubling by +": GROW + "ns.x + ns.x %}{% endfor %}",
    "doubling by ~": GROW + "ns.x ~ ns.x %}{% endfor %}",
    "doubling by join": GROW + "[ns.x, ns.x] | join %}{% endfor %}",
    "doubling by str.join": GROW + "''.join([ns.x, ns.x]) %}{% endfor %}",
    "doubling by replace": GROW + "ns.x.replace('a', ns.x) %}{% endfor %}",
    "doubling by the filter replace": GROW + "ns.x | replace('a', ns.x) %}{% endfor %}",
    "a huge replacement": "{% set a = 'a' * 99999 %}{{ a.replace('a', a) | length }}",
    "a huge join": "{% set a = 'a' * 99999 %}{{ a.join(a) | length }}",
    "doubling by nesting": GROW + "[ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "doubling by dicts": GROW + "{'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x | tojson }}",
    "doubling by a block": "{% set x = 'ab' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 60,
    "doubling by a macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "doubling by a loop": "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{{ loop([1, 2]) }}{% endfor %}",
    "endless recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "much constant text": "{% set x %}{% for a in range(99999) %}" + "long " * 9999 + "{% endfor %}{% endset %}",
    "indenting": "{{ 'a\nb' | indent(10**9) }}",
    "JSON": "{{ messages | tojson(indent=10**9) }}",
    "rounding": "{{ 5 | round(-10**9) }}",
    "comparing": "{% set a = range(99999) | list %}{% for i in range(99999) %}{% if a == a %}{% endif %}{% endfor %}",
    "formatting": "{{ '%01000000000d' % 1 }}",
    "format()": "{{ '{:>1000000000}'.format(1) }}",
    "padding": "{{ 'a'.ljust(10**9) }}",
    "the filter center": "{{ 'a' | center(10**9) }}",
    "bytes": "{{ (1).to_bytes(10**9, 'big') }}",
    "a date": "{{ strftime_now('%1000000000Y') }}",
    "lipsum": "{{ lipsum(10**9) }}",
    "namespaces in namespaces": "{% set ns = namespace() %}{% set ns.x = ns %}" + "{{ ns }}" * 9 + "{{ 1 / 0 }}",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_would_not_end_is_stopped(name: str) -> None:
    with pytest.raises(CheckpointError, match="chat template"):
        say(ENDLESS[name])


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ ''|attr('__class__') }}",
        "{{ raise_exception.__globals__.x }}",
        "{{ namespace.__init__.__globals__.x }}",
        "{{ self._TemplateReference__context }}{{ self.__init__() }}",
        "{{ messages.append(1) }}",
        "{% include 'x' %}",
        "{% import 'x' as x %}",
        "{% from 'x' import y %}",
        "{% extends 'x' %}",
        "{{ '{0.__class__}'.format(1) }}",
        "{% set x = ''['__class__'] %}{{ x() }}",
    ],
)
def test_there_is_no_way_out(template: str) -> None:
    with pytest.raises(CheckpointError, match="chat template"):
        say(template)


@pytest.mark.parametrize(
    "template", ["{% for %}", "{{", "{{ x.y.z }}", "{{ 1 + 'a' }}", "{{ [][0].x }}", "{{" + "(" * 9999]
)
def test_a_faulty_template_is_named(template: str) -> None:
    with pytest.raises(CheckpointError, match="chat template cannot be used"):
        say(template)


def test_sizes_are_limited() -> None:
    with pytest.raises(CheckpointError, match="larger than 65,536 bytes"):
        say("x" * (2**16 + 1))
    assert len(say(TEMPLATES["ChatML"], talk((USER, "x" * 10**6)))) > 10**6
    with pytest.raises(DataError, match="longer than 1,048,576 characters"):
        say(TEMPLATES["ChatML"], talk((USER, "x" * LARGEST_RESULT)))


def test_long_conversations_are_no_trouble(public: PreTrainedTokenizerFast) -> None:
    messages = talk(*((ASSISTANT if number % 2 else USER, "some words " * 20) for number in range(999)))
    for name in ("Qwen", "Mistral", "Zephyr"):
        assert say(TEMPLATES[name], messages) == theirs(public, TEMPLATES[name], messages, True)


# --- where templates are found ------------------------------------------------------------------------------


def folder(path: Path, **files: Any) -> Path:
    engine = Engine(models.WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2}, "<unk>"))
    engine.save(str(path / "tokenizer.json"))
    for name, content in files.items():
        name = name.replace("__", ".")
        (path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_templates_are_found_where_they_may_be(tmp_path: Path) -> None:
    messages, settings = talk((USER, "x")), {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}

    def found(**files: Any) -> str | None:
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        place.mkdir()
        return PublicTokenizer.load(folder(place, **files)).chat(messages)

    assert found(tokenizer_config__json={**settings, "chat_template": "{{ bos_token }}!"}) == "<s>!"
    several = [{"name": "tools", "template": "no"}, {"name": "default", "template": "{{ eos_token }}!"}]
    assert found(tokenizer_config__json={**settings, "chat_template": several}) == "</s>!"
    both = {**settings, "chat_template": "no"}
    assert found(tokenizer_config__json=both, chat_template__jinja="yes") == "yes"
    assert found(chat_template__json={"chat_template": "{{ messages[0].content }}"}) == "x"
    with pytest.raises(DataError, match="no chat template"):
        found()
    with pytest.raises(CheckpointError, match="template is no text"):
        found(tokenizer_config__json={"chat_template": 5})
    with pytest.raises(CheckpointError, match="more than 65,536 are not read"):
        found(chat_template__jinja="x" * 70_000)
    with pytest.raises(CheckpointError, match="larger than 65,536"):
        found(tokenizer_config__json={"chat_template": "x" * 70_000})
