"""Conversations as clients make them up, and as models made them, on templates of all formats.

Real templates take part where CAUSERIE_TEMPLATES names a folder of them.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from casekit import examples
from formatkit import TOOLS, Call, read, write_calls, write_reasoning
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.chat.formats.format import ModelFormat
from causerie.chat.formats.registry import by_name, detect
from causerie.chat.prompt import render
from causerie.chat.template import ChatTemplate
from causerie.errors import InvalidRequest
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest, Message, Tool, ToolCall
from causerie.shapes.chat_completions.reader import parse

_OWN = sorted((Path(__file__).parents[1] / "templates").glob("*.jinja"))
_FOLDER = os.environ.get("CAUSERIE_TEMPLATES", "")
_REAL = sorted(Path(_FOLDER).glob("*.jinja")) if _FOLDER else []
_TOOLS = tuple(Tool(name, schema, name) for name, schema in TOOLS.items())

_SIGN = "ж"  # what only a user writes


@cache
def _loaded(path: Path) -> tuple[ChatTemplate, ModelFormat]:
    template = ChatTemplate(path.read_text(), bos_token="<BOS>", eos_token="<EOS>")
    return template, by_name(path.stem) if path in _OWN else detect(template.source)


_ODD = (
    *(_SIGN, "a", " ", "\n", "\r\n", "\x00", "\x85", "\u2028", "\u200b", "\u0301", "🙂", "{{ x }}"),
    *("{% if %}", "%s", "{", "}", "[", '"', "'", "\\", "</", "<BOS>", "[INST]", "<|im_end|>"),
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<|channel|>final", "<｜User｜>"),
)
_odd = st.lists(
    st.sampled_from(_ODD),
    max_size=5,
).map("".join)
_content = _odd | st.lists(_odd.map(lambda text: {"type": "text", "text": text}), max_size=3)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _odd,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_odd, inner, max_size=3),
    max_leaves=5,
)
_arguments = st.dictionaries(_odd, _json, max_size=3).map(json.dumps) | st.sampled_from(
    [
        "",
        " ",
        "{",
        "[1,",
        "null",
        "[]",
        "1",
        "{} {}",
        "{'a': 1}",
        '{"a": 1, "a": 2}',
        '{"a": 1e999}',
    ]
)
_ids = st.sampled_from(["call_1", "abcdefgh1", _SIGN])
_call = st.builds(
    lambda id, name, arguments: {"id": id, "function": {"name": name, "arguments": arguments}},
    _ids,
    st.sampled_from(["time", "gone", _SIGN]),
    _arguments,
)
_EMPTY = {"content": ""}
_message = st.one_of(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user"]), "content": _content},
        optional={"name": _odd},
    ),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": st.none() | _content},
        optional={"reasoning_content": _odd, "tool_calls": st.lists(_call, max_size=3)},
    ),
    st.fixed_dictionaries({"role": st.just("tool"), "content": _content, "tool_call_id": _ids}),
)


def _body(messages: list[dict[str, Any]], continued: bool, tools: bool) -> dict[str, object]:
    """A request of these messages, but for results of no call."""
    known: set[str] = set()
    told = []
    for message in messages:
        called = [call["id"] for call in message.get("tool_calls", ())]
        known.update(called)
        if message["role"] == "tool" and message["tool_call_id"] not in known:
            continue
        told.append(message if called or message["content"] is not None else message | _EMPTY)
    last = told[-1] if told else {"role": "user"}
    return {
        "model": "m",
        "messages": told or [{"role": "user"} | _EMPTY],
        "continue_final_message": (
            continued and last["role"] == "assistant" and not last.get("tool_calls")
        ),
        "tools": [
            {"type": "function", "function": {"name": name, "parameters": schema}}
            for name, schema in TOOLS.items()
            if tools
        ],
    }


@settings(max_examples=examples(300))
@given(
    path=st.sampled_from([*_OWN, *_REAL]),
    body=st.builds(_body, st.lists(_message, min_size=1, max_size=7), st.booleans(), st.booleans()),
    thinks=st.sampled_from([None, True, False]),
)
def test_any_conversation_is_rendered_or_refused(
    path: Path, body: dict[str, object], thinks: bool | None
) -> None:
    """Nothing else is raised, and every character of a user counts as one."""
    template, form = _loaded(path)
    try:
        request = parse(json.dumps(body).encode(), ParsingRules())
        prompt = render(template, form, request, thinking_on=thinks, effort=None)
    except InvalidRequest as refusal:
        if "chat template" not in refusal.message:
            raise
        return
    others = list(prompt.text)
    for start, stop in prompt.user:
        others[start:stop] = " " * (stop - start)
    assert _SIGN not in others


_text = st.text("aé\"'\\{}[]():,%#=\u2028\x85🙂 0", max_size=6).map("a{}b".format)
_made = st.builds(
    lambda city, others, id: Call("get_weather", {"city": city, **others}, id),
    _text,
    st.fixed_dictionaries(
        {},
        optional={
            "days": st.integers(),
            "hot": st.booleans(),
            "tags": st.lists(_text, min_size=1, max_size=2),
        },
    ),
    st.just("abcdefgh1"),
)
# Those that forget what is thought or said, or show no calls as they are declared.
_FORGETS = {
    "deepseek-r1",
    "deepseek-r1-switched",
    "deepseek-v3.1",
    "generic-thinking",
    "granite-3.3",
    "hunyuan-a13b",
    "muse",
    "nemotron-nano-2",
    "qwq",
    "qwq-switched",
}


@settings(max_examples=examples(300))
@given(
    path=st.sampled_from([path for path in _OWN if path.stem not in _FORGETS]),
    thought=_text,
    said=_text,
    call=st.none() | _made,
)
def test_what_a_model_wrote_comes_back(
    path: Path, thought: str, said: str, call: Call | None
) -> None:
    """Written as declared, read by the parser, and rendered again; but for white space."""
    template, form = _loaded(path)
    user, tools = Message("user", "USER"), _TOOLS if call else ()

    def prompt(*messages: Message) -> str:
        request = ChatRequest(model="m", messages=(user, *messages), tools=tools)
        return "".join(render(template, form, request, thinking_on=True, effort=None).text.split())

    text = write_reasoning(form.reasoning, thought)
    if call is None:
        text += form.answer_open + said
    else:
        text += form.calls.lead + write_calls(form.calls, [call])
    told = read(form, text, tools=TOOLS if call else None)
    calls = [(call.name, dict(call.arguments))] if call else []
    assert (told.reasoning, told.answer, told.calls) == (thought, "" if call else said, calls)
    answer = Message(
        "assistant",
        told.answer or None,
        told.reasoning,
        tuple(
            ToolCall("abcdefgh1", name, json.dumps(arguments, ensure_ascii=False))
            for name, arguments in told.calls
        ),
    )
    then = Message("tool", "RESULT", tool_call_id="abcdefgh1") if call else user
    first, written = prompt(), "".join(text.split())
    opened = "".join(form.reasoning.open.split())
    if first.endswith(opened):
        written = written.removeprefix(opened)
    assert prompt(answer, then).startswith(first + written)


@pytest.mark.parametrize("name", ["seed-oss", "minicpm-5"])
def test_lists_come_back_where_a_template_prints_them_bare(name: str) -> None:
    arguments = '{"city": "x", "days": 1e5, "tags": ["a\'b", null, {"k": true}]}'
    template, form = _loaded(Path(__file__).parents[1] / "templates" / f"{name}.jinja")
    call = ToolCall("abcdefgh1", "get_weather", arguments)
    messages = (
        Message("user", "USER"),
        Message("assistant", None, tool_calls=(call,)),
        Message("tool", "RESULT", tool_call_id=call.id),
    )
    request = ChatRequest(model="m", messages=messages, tools=_TOOLS)
    prompt = render(template, form, request, thinking_on=None, effort=None).text
    assert '["a\'b", null, {"k": true}]' in prompt
    assert "1e5" in prompt
