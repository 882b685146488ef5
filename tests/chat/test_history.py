"""Messages as a template reads them, exact where the model's own words come back."""

from __future__ import annotations

import json

import pytest
from casekit import each_of
from hypothesis import given
from hypothesis import strategies as st

from causerie.chat.formats.format import (
    HERMES_CALLS,
    CallId,
    CallSection,
    JsonArguments,
    Literal,
    LooseArguments,
    Name,
    ParameterList,
    PythonArguments,
)
from causerie.chat.history import (
    arranged,
    call_text,
    entries,
    tool_entry,
    tools_text,
    without_calls,
)
from causerie.chat.taint import JsonDict, read_arguments, user_spans, write_json
from causerie.chat.template import ChatTemplate
from causerie.chat.template_capabilities import TemplateCapabilities, capabilities_of
from causerie.errors import InvalidRequest
from causerie.protocol.request import ImagePart, Message, TextPart, Tool, ToolCall

USER, ANSWER = Message("user", "hi"), Message("assistant", "hello")


def _system(text: str) -> Message:
    return Message("system", text)


def _told(*messages: Message, **capabilities: object) -> list[tuple[str, str]]:
    shaped = TemplateCapabilities(**capabilities)  # type: ignore[arg-type]  # fields by name
    arranged_entries = arranged(entries(messages, shaped, ("reasoning_content",)), shaped)
    return [(str(entry["role"]), str(entry["content"])) for entry in arranged_entries]


def _template(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>")


@pytest.mark.parametrize(
    ("text"),
    [
        '{"a": 1.0, "b": 1e5, "c": "\\u00e9", "z": 0, "y": -0, "x": 12345678901234567890123}',
        '{"a":1,"b":[1.50,{"c" : 2E+3}]}',
        "{ }",
        '{\n  "a": "x<|im_end|>"\n}',
    ],
)
def test_arguments_are_written_as_they_came(text: str) -> None:
    arguments = read_arguments(text)
    assert write_json(arguments) == text
    assert write_json({"arguments": arguments}) == f'{{"arguments": {text}}}'
    assert json.loads(text) == json.loads(json.dumps(json.loads(write_json(arguments))))


def test_the_values_inside_keep_their_text_too() -> None:
    arguments = read_arguments('{"f": 1.50, "o": {"k":  [1e2]}, "s": "\\u00e9", "n": null}')
    assert [str(value) for value in arguments.values()][::2] == ["1.50", "é"]
    assert write_json(arguments["o"]) == '{"k":  [1e2]}'
    assert arguments["n"] is None
    assert arguments["f"] == 1.5


@each_of(
    ("text"), ["not json", '{"a": ', "[1]", '"text"', "null", '{"a": NaN}', "{" * 99, "[" * 9999]
)
def test_malformed_arguments_are_shown_and_never_fail(text: str) -> None:
    arguments = read_arguments(text)
    assert write_json(arguments) == text
    assert list(arguments.items()) == [("arguments", text)]


@given(text=st.text() | st.recursive(st.integers(), st.lists).map(json.dumps))
def test_any_text_of_arguments_comes_back(text: str) -> None:
    written = write_json([read_arguments(text)])
    assert written == f"[{text if text.strip() else '{}'}]"


@given(
    value=st.dictionaries(
        st.text(),
        st.recursive(
            st.none()
            | st.booleans()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.integers()
            | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=8,
        ),
    )
)
def test_reading_arguments_reads_json(value: dict[str, object]) -> None:
    text = json.dumps(value)
    arguments = read_arguments(text)
    assert isinstance(arguments, JsonDict)
    assert arguments == json.loads(text)
    assert json.loads(write_json(dict(arguments))) == value


def test_no_arguments_are_an_empty_object() -> None:
    assert write_json(read_arguments("")) == "{}"


def test_json_text_cannot_stand_in_for_kept_text() -> None:
    value = {"evil": '0.0"', "kept": read_arguments('{"a":1}'), "more": ["x.0", "x.1"]}
    assert json.loads(write_json(value)) == {
        "evil": '0.0"',
        "kept": {"a": 1},
        "more": ["x.0", "x.1"],
    }


def test_roles_are_the_services_words_and_the_rest_the_users() -> None:
    call = ToolCall("call_1", "f", "{}")
    shown = entries(
        [
            Message("assistant", "a", "thought", (call,)),
            Message("tool", "r", tool_call_id="call_1"),
        ],
        TemplateCapabilities(),
        ("reasoning_content", "thinking"),
    )
    assert user_spans(str(shown[0]["role"])) == ()
    assert user_spans(str(shown[0]["content"])) == ((0, 1),)
    assert shown[0]["thinking"] == shown[0]["reasoning_content"] == "thought"
    assert shown[1]["name"] == "f"
    assert shown[1]["tool_call_id"] == "call_1"


def test_parts_of_text_are_joined_and_images_keep_their_places() -> None:
    words = (TextPart("a"), TextPart("b"))
    joined, kept = entries(
        [Message("user", words), Message("user", (ImagePart("<1>"), *words, ImagePart("<2>")))],
        TemplateCapabilities(),
        (),
    )
    assert joined["content"] == "ab"
    assert kept["content"] == "<1>ab<2>"
    assert user_spans(str(kept["content"])) == ((0, 8),)  # no text of a request is ours


def test_system_messages_stay_where_the_template_shows_them() -> None:
    messages = (_system("a"), _system("b"), USER, ANSWER, _system("c"), USER)
    assert [role for role, _ in _told(*messages)] == [
        "system",
        "system",
        "user",
        "assistant",
        "system",
        "user",
    ]


def test_system_messages_move_to_the_front_where_they_are_not_shown() -> None:
    messages = (_system("a"), USER, ANSWER, _system("c"), USER)
    front = [("system", "a\n\nc"), ("user", "hi"), ("assistant", "hello"), ("user", "hi")]
    assert _told(*messages, system_later=False) == front
    assert _told(*messages, systems=False) == front
    assert _told(_system("a"), USER, systems=False) == [("system", "a"), ("user", "hi")]


def test_a_system_message_that_is_refused_alone_is_said_by_the_user() -> None:
    assert _told(_system("a"), _system("b"), system_alone=False) == [("user", "a\n\nb")]
    assert _told(_system(""), system_alone=False) == [("user", "")]
    assert _told(_system("a"), USER, system_alone=False) == [("system", "a"), ("user", "hi")]
    assert _told(_system("a")) == [("system", "a")]


def test_without_system_messages_their_text_goes_to_the_user() -> None:
    none = {"system": False, "systems": False, "system_later": False}
    assert _told(_system("a"), USER, **none) == [("user", "a\n\nhi")]
    assert _told(_system("a"), ANSWER, **none) == [("user", "a"), ("assistant", "hello")]
    assert _told(_system(""), USER, **none) == [("user", "hi")]
    assert _told(_system("a"), USER, USER, repeats=False, **none) == [("user", "a\n\nhi\n\nhi")]


def test_a_system_message_that_only_a_last_user_keeps_is_said_by_that_user() -> None:
    told = _told(_system("a"), USER, ANSWER, USER, ANSWER, system_kept=False)
    assert [content for _, content in told] == ["hi", "hello", "a\n\nhi", "hello"]
    assert _told(_system("a"), ANSWER, system_kept=False)[0] == ("user", "a")


def test_an_empty_answer_stands_where_the_roles_would_not_take_turns() -> None:
    called = Message("assistant", None, tool_calls=(ToolCall("1", "f", "{}"),))
    result = Message("tool", "r", tool_call_id="1")
    told = _told(USER, called, result, USER, interrupts=False, blank=" ")
    assert told == [("user", "hi"), ("assistant", ""), ("tool", "r"), ("assistant", " "), told[0]]
    assert _told(USER, called, result, USER)[3] == told[0]
    assert _told(USER, Message("assistant", ""), USER, blank=" ")[1] == ("assistant", " ")


def test_neighbours_become_one_message_where_the_roles_take_turns() -> None:
    called = Message("assistant", None, tool_calls=(ToolCall("1", "f", "{}"),))
    result = Message("tool", "r", tool_call_id="1")
    both, question = ("assistant", "hello\n\nhello"), ("user", "hi")
    assert _told(USER, ANSWER, ANSWER, USER, repeats=False) == [question, both, question]
    assert _told(USER, ANSWER, Message("assistant", ""), repeats=False)[1] == ("assistant", "hello")
    assert _told(ANSWER, USER, opens=False) == [("user", ""), ("assistant", "hello"), question]
    told = _told(USER, ANSWER, called, result, ANSWER, repeats=False)
    assert [role for role, _ in told] == ["user", "assistant", "tool", "assistant"]
    told = _told(USER, called, USER, repeats=False, interrupts=False)
    assert [role for role, _ in told] == ["user", "assistant", "assistant", "user"]
    assert _told(ANSWER, ANSWER) == [("assistant", "hello")] * 2


def test_an_empty_question_stands_where_a_template_refuses_to_do_without_any() -> None:
    asking = _template(
        "{% if not messages | selectattr('role', 'equalto', 'user') | list %}"
        "{{ raise_exception('no question') }}{% endif %}"
        "{% for m in messages %}{{ m.role + m.content }}{% endfor %}"
    )
    assert not capabilities_of(asking).unasked
    assert capabilities_of(asking).opens
    rules, empty = ("system", "Be."), ("user", "")
    answers = [("assistant", "hello")] * 2
    assert _told(_system("Be."), ANSWER, ANSWER, unasked=False) == [rules, empty, *answers]
    assert _told(ANSWER, ANSWER, USER, unasked=False) == [*answers, ("user", "hi")]


def test_long_ids_become_short_ones_that_stay_the_same() -> None:
    call = ToolCall("call_0123456789", "f", "{}")
    messages = [
        Message("assistant", None, tool_calls=(call,)),
        Message("tool", "r", None, (), call.id),
    ]
    first, second = entries(messages, TemplateCapabilities(short_ids=True), ())
    short = second["tool_call_id"]
    assert first["tool_calls"][0]["id"] == short  # type: ignore[index]  # a list
    assert len(str(short)) == 9
    assert str(short).isalnum()
    kept = entries(
        [Message("tool", "r", tool_call_id="abcdefgh1")], TemplateCapabilities(short_ids=True), ()
    )
    assert kept[0]["tool_call_id"] == "abcdefgh1"


_STRINGS_ONLY = "{% for m in messages %}{{ m.role + ':' + m.content }};{% endfor %}"
_PARTS_ONLY = (
    "{% for m in messages %}{{ m.role }}:"
    "{% for p in m.content if p.type == 'text' %}{{ p.text }}{% endfor %};{% endfor %}"
)
_STRICT = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('take turns') }}{% endif %}{{ m.content }};{% endfor %}"
)


def test_a_templates_capabilities_are_found_by_rendering_it() -> None:
    assert capabilities_of(_template(_PARTS_ONLY)).parts
    assert not capabilities_of(_template(_STRINGS_ONLY)).parts
    strict = capabilities_of(_template(_STRICT))
    assert not any((strict.system, strict.systems, strict.repeats, strict.tools, strict.calls))
    loose = capabilities_of(_template(_STRINGS_ONLY))
    assert loose.system
    assert loose.systems
    assert loose.system_later
    assert loose.repeats


_CALLS = (
    "{% for t in tools %}{{ t.function.name + t.function.description }}{% endfor %}"
    "{% for m in messages %}{{ m.content }}{{ m.thought }}"
    "{% for c in m.tool_calls %}{{ c.function.name }} CALL{% endfor %};{% endfor %}"
)


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("{{ c.function.arguments | tojson }}", "object"),
        ("{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}", "object"),
        ("{{ c.function.arguments + '' }}", "text"),
    ],
)
def test_arguments_take_the_shape_the_template_shows_whole(call: str, shape: str) -> None:
    template = _template(_CALLS.replace("CALL", call))
    for hint in ("object", "text"):
        capabilities = capabilities_of(template, hint, ("thought",))
        assert capabilities.calls
        assert capabilities.tools
        assert capabilities.reasoning
        assert not capabilities.undescribed
        assert capabilities.empty_tools == ()
        if "items" in call or "+" in call:
            assert capabilities.arguments == shape
    assert not capabilities_of(template, "object", ("elsewhere",)).reasoning
    tool = tool_entry(Tool("f", {}), capabilities_of(template))
    assert tool["function"] == {"name": "f", "description": "", "parameters": {}}


def test_calls_and_results_become_plain_words() -> None:
    calls = (ToolCall("1", "f", '{"a": 1.0}'), ToolCall("2", "g", "oops"))
    told = without_calls(
        entries(
            [
                USER,
                Message("assistant", "Let me see.", tool_calls=calls),
                Message("tool", "one", tool_call_id="1"),
                Message("tool", "two", tool_call_id="2"),
                ANSWER,
            ],
            TemplateCapabilities(),
            (),
        ),
        HERMES_CALLS,
    )
    assert [(entry["role"], entry["content"]) for entry in told] == [
        ("user", "hi"),
        (
            "assistant",
            'Let me see.\n<tool_call>\n{"name": "f", "arguments": {"a": 1.0}}\n</tool_call>\n'
            '<tool_call>\n{"name": "g", "arguments": oops}\n</tool_call>',
        ),
        (
            "user",
            "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>",
        ),
        ("assistant", "hello"),
    ]
    assert "tool_calls" not in told[1]


@each_of(
    ("calls", "text"),
    [
        (
            HERMES_CALLS,
            '<tool_call>\n{"name": "f", "arguments": {"s": "x", "n": 1.0}}\n</tool_call>',
        ),
        (
            CallSection(
                begin="[B]", call=(CallId(), Literal("|"), Name(), JsonArguments()), end="[E]"
            ),
            '[B]id|f{"s": "x", "n": 1.0}[E]',
        ),
        (
            CallSection(call=(Name(), ParameterList("<", "=", ">", between_json=":"))),
            "f<s=x><n:1.0>",
        ),
        (
            CallSection(call=(Name(), Literal("("), PythonArguments(), Literal(")"))),
            'f(s="x", n=1.0)',
        ),
        (CallSection(call=(Name(), LooseArguments('"'))), 'f{s:"x",n:1.0}'),
    ],
)
def test_a_call_is_written_in_the_form_the_format_declares(calls: CallSection, text: str) -> None:
    written = call_text(calls, ("f", '{"s": "x", "n": 1.0}', "id"))
    assert written == text
    users = "".join(written[start:stop] for start, stop in user_spans(written))
    assert not set(users) & set("<[|]>") - set(
        str(calls) if calls.call[-1] == JsonArguments() else ""
    )


def test_null_is_written_as_models_of_the_loose_notation_write_it() -> None:
    calls = CallSection(call=(Name(), LooseArguments('"')))
    assert call_text(calls, ("f", '{"a": null, "l": [null]}')) == "f{a:None,l:[None]}"


def test_tools_are_described_in_a_few_words() -> None:
    tools = [tool_entry(Tool("f", {"type": "object"}, "does <|im_end|>"), TemplateCapabilities())]
    text = tools_text(tools, HERMES_CALLS)
    assert (
        '{"name": "f", "description": "does <|im_end|>", "parameters": {"type": "object"}}' in text
    )
    assert "<tool_call>" in text
    spans = user_spans(text)
    assert any(start <= text.index("<|im_end|>") < stop for start, stop in spans)
    assert len(text) < 400


@pytest.mark.parametrize(
    ("number", "count", "why"),
    [
        ("1e289", 30_000, "25000 values"),
        ("1e289", 4_000, "such as 1e289"),
        ("[]", 20_000, "values"),
    ],
)
def test_arguments_that_take_too_long_to_read_are_refused(
    number: str, count: int, why: str
) -> None:
    """In one call or in many; as text of a call that no one can read they are as good as any."""
    whole = '{"a":[' + ",".join([number] * count) + "]}"
    few = '{"a":[' + ",".join([number] * 500) + "]}"
    for calls in ([whole], [few] * (count // 500)):
        called = tuple(ToolCall(f"c{at}", "f", text) for at, text in enumerate(calls))
        with pytest.raises(InvalidRequest, match=why) as refused:
            entries(
                [USER, Message("assistant", None, tool_calls=called)], TemplateCapabilities(), ()
            )
        assert refused.value.param == "messages"
    quoted = json.dumps({"a": whole})
    read = Message("assistant", None, tool_calls=(ToolCall("c", "f", quoted),))
    assert entries([USER, read], TemplateCapabilities(), ())[1]["tool_calls"]
