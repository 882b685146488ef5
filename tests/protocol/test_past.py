"""What is past is mended, what is new is judged: histories that no client can repair."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from casekit import each_of, examples
from faultkit import Call, Fault, Reply, upstream
from hypothesis import given, settings
from hypothesis import strategies as st
from messages_rules import check as check_messages_api
from msgspec import structs
from servicekit import service_view

from causerie.chat.formats.registry import by_name
from causerie.chat.parser import Separation
from causerie.chat.prompt import render
from causerie.chat.template import ChatTemplate
from causerie.errors import InvalidRequest, ServiceError
from causerie.protocol.body import is_object
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest, Message
from causerie.protocol.response import CompletionIdentity, ResponseContext
from causerie.providers.dialects import DIALECTS
from causerie.providers.incoming import Incoming
from causerie.providers.outgoing import outgoing
from causerie.shapes.chat_completions.encoder import completion
from causerie.shapes.chat_completions.past import NO_RESULT, needs_mending
from causerie.shapes.chat_completions.reader import CHAT_COMPLETIONS, parse, with_reply

USER = {"role": "user", "content": "q"}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("look_up", "clock", "files.read/v2", "files.read:v2", "n" * 70)
]
NAMES = [tool["function"]["name"] for tool in TOOLS]  # type: ignore[index]  # a dict


def body_of(messages: Sequence[Any], **fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


def read(*messages: Any, **fields: Any) -> ChatRequest:
    return parse(body_of(messages, **fields), ParsingRules())


def refused(*messages: Any, **fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        read(*messages, **fields)
    return raised.value


def call(identifier: Any = "c1", name: Any = "look_up", arguments: Any = "{}") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": identifier, "type": "function", "function": function}


def calling(*calls: Any, content: Any = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(identifier: Any = "c1", content: Any = "1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identifier, "content": content}


@each_of(
    ("message", "change"),
    [
        ({"role": "assistant", "content": None}, "messages[1].content emptied"),
        ({"role": "assistant"}, "messages[1].content emptied"),
        ({"role": "assistant", "content": []}, "messages[1].content emptied"),
        (
            {"role": "assistant", "content": None, "tool_calls": []},
            "messages[1].content emptied",
        ),
        ({"role": "user"}, "messages[1].content emptied"),
        ({"role": "system", "content": None}, "messages[1].content emptied"),
        ({"role": "assistant", "content": [{"type": "odd"}]}, "messages[1].content[0] dropped"),
        ({"role": "user", "content": [{"type": "odd"}]}, "messages[1].content[0] dropped"),
        ({"role": "assistant", "content": "", "refusal": 5}, "messages[1].refusal dropped"),
        ({"role": "assistant", "content": "", "name": [1]}, "messages[1].name dropped"),
        ({"role": "assistant", "content": "", "tool_calls": {}}, "messages[1].tool_calls dropped"),
        (
            {"role": "assistant", "content": "", "reasoning_content": {}},
            "messages[1].reasoning_content dropped",
        ),
        (
            {"role": "assistant", "content": "", "tool_calls": [{"id": "a"}]},
            "messages[1].tool_calls[0] dropped",
        ),
    ],
)
def test_a_turn_that_says_nothing_is_empty(message: dict[str, Any], change: str) -> None:
    request = read(USER, message, USER)
    assert request.messages[1].text == ""
    assert request.messages[1].tool_calls == ()
    assert change in request.changes
    sent: Any = request.document
    assert sent["messages"][1]["content"] == ""


def test_texts_of_other_apis_are_kept() -> None:
    parts = ["a", {"type": "output_text", "text": "b"}, {"type": "input_text", "text": "c"}]
    assert read(USER, {"role": "assistant", "content": parts}, USER).messages[1].text == "abc"
    assert read(USER, calling(call()), result(content={"a": 1})).messages[2].content == '{"a":1}'


@each_of(
    ("given", "there"),
    [
        ("", "{}"),
        (" \n", "{}"),
        (None, "{}"),
        ("{", '{"malformed":"{"}'),
        ("[1]", '{"malformed":"[1]"}'),
        ({"a": [1]}, '{"a":[1]}'),
        (7, '{"malformed":"7"}'),
    ],
)
def test_arguments_are_an_object(given: Any, there: str) -> None:
    request = read(USER, calling(call(arguments=given)), result())
    assert request.messages[1].tool_calls[0].arguments == there
    assert request.changes == ("messages[1].tool_calls[0].function.arguments repaired",)


def test_an_id_of_two_turns_becomes_two() -> None:
    request = read(
        USER, calling(call("sh:0")), result("sh:0", "1"), USER,
        calling(call("sh:0")), result("sh:0", "2"), USER,
    )  # fmt: skip
    first, second = (one.tool_calls[0].id for one in request.messages if one.tool_calls)
    assert first == "sh:0"
    assert second != first
    assert [one.tool_call_id for one in request.messages if one.role == "tool"] == [first, second]
    assert request.changes == (
        "messages[4].tool_calls[0].id rewritten", "messages[5].tool_call_id rewritten",
    )  # fmt: skip


@pytest.mark.parametrize("identifier", ["x" * 300, "", None, 7])
def test_an_id_that_nobody_takes_is_replaced(identifier: Any) -> None:
    request = read(USER, calling(call(identifier)), result(identifier), USER)
    made = request.messages[1].tool_calls[0].id
    assert 0 < len(made) <= 40
    assert request.messages[2].tool_call_id == made
    assert len(request.messages) == 4
    again = read(USER, calling(call(identifier)), result(identifier), USER, USER)
    assert again.messages[1].tool_calls[0].id == made


def test_data_beside_a_call_goes_with_its_id() -> None:
    blocks = [{"type": "reasoning.encrypted", "data": "d", "id": "a"}]
    asked = {**calling(call("a")), "reasoning_details": blocks}
    request = read(USER, calling(call("a")), result("a"), asked, result("a"), USER)
    sent: Any = request.document
    assert sent["messages"][3]["reasoning_details"][0]["id"] == request.messages[3].tool_calls[0].id
    assert blocks[0]["id"] == "a"


def test_results_stand_behind_their_calls_in_their_order() -> None:
    request = read(USER, result("b"), calling(call("a"), call("b")), USER, result("a"))
    shape = [(one.role, one.tool_call_id) for one in request.messages]
    assert shape == [
        ("user", None), ("assistant", None), ("tool", "a"), ("tool", "b"), ("user", None),
    ]  # fmt: skip
    assert {"messages[1] moved", "messages[4] moved"} <= set(request.changes)


def test_a_call_without_a_result_has_one() -> None:
    request = read(USER, calling(call("a"), call("b")), result("b"), USER)
    assert [one.content for one in request.messages[2:4]] == [NO_RESULT, "1"]
    assert request.changes[0] == "messages[1].tool_calls[0] result added"


def test_a_result_without_a_call_has_one() -> None:
    request = read(USER, {**result("z"), "name": "clock"}, result(None), USER)
    shape = [(one.role, [each.name for each in one.tool_calls]) for one in request.messages]
    assert shape == [
        ("user", []), ("assistant", ["clock"]), ("tool", []), ("assistant", ["unknown"]),
        ("tool", []), ("user", []),
    ]  # fmt: skip
    assert request.changes[:2] == ("messages[1] call added", "messages[2] call added")


def test_halves_of_pairs_are_replaced_in_the_past_alone() -> None:
    half = {"role": "assistant", "content": "cut \ud83d"}
    asked = read(USER, half, {**USER, "content": "\ud83d\ude00 \\ud83d \0"})
    assert asked.messages[1].content == "cut \ufffd"
    assert asked.messages[2].content == "\U0001f600 \\ud83d \0"
    assert asked.changes == ("messages[1].content repaired",)
    written = calling(call(arguments='{"a":"\udc00"}'))
    call_made = read(USER, written, result(content="\udfff")).messages[1].tool_calls[0]
    assert call_made.arguments == '{"a":"\ufffd"}'
    for new in ({"messages": [half, {**USER, "content": "\ud83d"}]}, {"stop": "\ud83d"}):
        body = json.dumps({"model": "m", "messages": [USER], **new}).encode()
        with pytest.raises(InvalidRequest) as raised:
            parse(body, ParsingRules())
        assert raised.value.code == "invalid_json"


def test_what_is_new_is_judged() -> None:
    odd = {"role": "user", "content": [{"type": "odd"}]}
    assert refused({"role": "assistant"}, odd).param == "messages[1].content[0].type"
    assert refused(result(), {"role": "user"}).param == "messages[1].content"
    assert refused(USER, {"role": "system"}).param == "messages[1].content"
    assert refused({"role": "robot", "content": ""}, USER).param == "messages[0].role"
    assert refused({"content": ""}, USER).param == "messages[0].role"
    assert refused(USER, {"role": "function", "content": ""}, USER).param == "messages[1].role"


def test_an_unknown_field_of_the_past_is_dropped_by_strict_readers_too() -> None:
    past = {"role": "assistant", "content": "a", "annotations": []}
    strict = ParsingRules(reject_unknown=True)
    dialect = DIALECTS["openai"]
    sent = outgoing(parse(body_of([USER, past, USER]), strict), dialect, "m")
    assert sent.changes == ("messages[1].annotations dropped",)
    with pytest.raises(InvalidRequest) as raised:
        outgoing(parse(body_of([past, {**USER, "odd": 1}]), strict), dialect, "m")
    assert raised.value.param == "messages[1].odd"


def test_names_of_tool_servers_are_mapped_and_back() -> None:
    choice = {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [{"type": "function", "function": {"name": name}} for name in NAMES[:3]],
        },
    }
    request = read(
        USER, calling(call(name=NAMES[2])), result(), USER, tools=TOOLS, tool_choice=choice
    )
    ours = [tool.name for tool in request.tools]
    assert len(set(ours)) == len(ours)
    assert ours[:2] == NAMES[:2]
    assert [request.function_names.get(name, name) for name in ours] == NAMES
    assert request.tool_choice.allowed == tuple(ours[:3])
    assert request.messages[1].tool_calls[0].name == ours[2]
    assert f"tools[2].function.name->{ours[2]}" in request.changes
    sent: Any = json.loads(outgoing(request, DIALECTS["causerie"], "m").body)
    assert [tool["function"]["name"] for tool in sent["tools"]] == ours
    allowed = sent["tool_choice"]["allowed_tools"]["tools"]
    assert [tool["function"]["name"] for tool in allowed] == ours[:3]
    plain = read(USER, tools=[{"type": "function", "function": {"name": "a.b c"}}])
    assert plain.tools[0].name == "a_b_c"


def test_an_ordinary_history_is_not_touched() -> None:
    messages = [USER, calling(call(), content=""), result(), {"role": "assistant", "content": "x"}]
    request = read(*messages, USER, tools=TOOLS[:2])
    assert (request.changes, request.function_names) == ((), {})
    assert request.document["messages"] == [*messages, USER]


# Any history.

odd_text = st.sampled_from(["", " ", "x", "a\0b", "\ud83d", "é", "{", "</s>", "n" * 300])
identifiers = st.sampled_from(["a", "b", "sh:0", "x" * 300, "call_" + "9" * 50, "é", "", None, 3])
anything = st.one_of(
    st.none(), st.booleans(), st.integers(0, 9), odd_text, st.just([]), st.just({}),
    st.just({"a": 1}), st.lists(st.just({"type": "odd"}), max_size=2),
)  # fmt: skip
arguments = st.sampled_from(['{"a": 1}', "{}", "", " ", '{"a', "[]", "null", '{"a":"\ud83d"}'])
calls = st.builds(
    call, identifiers, st.sampled_from([*NAMES, "gone away"]) | anything, arguments | anything
)
parts = st.lists(
    st.one_of(
        st.builds(lambda text: {"type": "text", "text": text}, odd_text),
        st.builds(lambda text: {"type": "refusal", "refusal": text}, odd_text),
        st.just({"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}),
        anything,
    ),
    max_size=3,
)
contents = odd_text | parts | anything
answers = st.fixed_dictionaries(
    {"role": st.just("assistant")},
    optional={
        "content": contents,
        "tool_calls": st.lists(calls | anything, max_size=3) | anything,
        "reasoning_content": anything,
        "reasoning_details": anything | st.lists(st.just({"type": "reasoning.text", "id": "a"})),
        "refusal": anything,
        "function_call": anything,
        "name": anything,
        "annotations": anything,
    },
)
results = st.builds(result, identifiers, contents)
asked = st.fixed_dictionaries({"role": st.sampled_from(["user", "system"])}, optional={
    "content": odd_text | st.lists(st.just({"type": "odd"})) | anything,
    "name": anything,
})  # fmt: skip
whole_turns = st.builds(  # a reply of ours and what a client makes of it, in any order
    lambda made, order: [calling(*made), *(result(each["id"]) for each in order)],
    st.lists(calls, min_size=1, max_size=3),
    st.lists(calls, max_size=3),
)
histories = st.builds(
    lambda turns, last: [*(message for turn in turns for message in turn), *last],
    st.lists(whole_turns | st.lists(answers | results | asked, max_size=3), max_size=5),
    st.sampled_from([[USER], [USER, {"role": "assistant", "content": "x"}], [result("a")]]),
)


def check_pairs(messages: Sequence[Any]) -> None:
    """Check that every call has an id of its own, and its result behind it."""
    seen: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        for each in message.get("tool_calls") or ():
            assert each["id"] not in seen
            assert each["type"] == "function"
            assert is_object(each["function"]["arguments"])
            seen.add(each["id"])
            waiting.append(each["id"])
    assert not waiting


def check_mistral(messages: Sequence[Any]) -> None:
    before = ""
    for message in messages:
        assert (before, message["role"]) != ("tool", "user")
        if message["role"] == "assistant":
            assert message.get("content") or message.get("tool_calls")
        before = message["role"]
        for each in message.get("tool_calls") or ():
            assert len(each["id"]) == 9
            assert each["id"].isalnum()
    assert before != "assistant"


def fields_of(message: Message) -> object:
    return msgspec.structs.asdict(message)


@settings(max_examples=examples(200), deadline=None)
@given(histories, st.booleans())
def test_any_history_is_taken_by_every_provider(messages: list[Any], tools: bool) -> None:
    body = body_of(messages, **({"tools": TOOLS} if tools else {}))
    request = parse(body, ParsingRules())
    sent: Any = request.document
    assert not needs_mending(request.messages, sent["messages"])
    again = parse(msgspec.json.encode({**sent, "model": "m"}), ParsingRules())
    assert not again.changes
    assert [*map(fields_of, again.messages)] == [*map(fields_of, request.messages)]
    further = parse(
        body_of([*messages, {"role": "assistant", "content": "x"}, USER]), ParsingRules()
    )
    if messages[-1]["role"] != "user" or messages[-1] == USER:
        ids = [one.id for message in request.messages for one in message.tool_calls]
        assert [one.id for each in further.messages for one in each.tool_calls] == ids
    for name, dialect in DIALECTS.items():
        if not dialect.fetches and b"https://" in msgspec.json.encode(sent):
            continue
        out = json.loads(outgoing(request, dialect, "m").body)
        if dialect.api.bodies == "messages":
            check_messages_api(out)
            continue
        check_pairs(out["messages"])
        for message in out["messages"]:
            assert message.get("content") is not None or message["role"] == "assistant"
            assert message.get("content") != []
            for each in message.get("tool_calls") or ():
                assert len(each["function"]["name"]) <= 64
        if name == "mistral":
            check_mistral(out["messages"])
        if name == "openai":
            ids = [one["id"] for each in out["messages"] for one in each.get("tool_calls") or ()]
            assert all(len(one) <= 40 for one in ids)


CONTEXT = ResponseContext(CompletionIdentity("chatcmpl-1", 1, "r"), "m", "f")
ENDS = st.sampled_from(["stop", "tool_calls", "length", "content_filter", "odd", None])
usable_calls = st.builds(
    call, identifiers, st.sampled_from(NAMES), st.sampled_from(['{"a": 1}', "{}", "", "null"])
)
said_messages = answers | st.builds(
    lambda made, content: calling(*made, content=content),
    st.lists(usable_calls, min_size=1, max_size=3),
    odd_text | st.none(),
)


def with_names(message: Any, request: ChatRequest) -> Any:
    """Return a provider's message with the names that it was given for functions."""
    names = dict(zip(NAMES, (tool.name for tool in request.tools), strict=True))
    text = json.dumps(message)
    for name in sorted(NAMES, key=len, reverse=True):
        text = text.replace(json.dumps(name), json.dumps(names[name]))
    return json.loads(text)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(said_messages, ENDS), min_size=1, max_size=4))
def test_whatever_was_given_is_accepted_when_it_comes_back(
    said: list[tuple[Any, str | None]],
) -> None:
    """No reply, whatever a provider makes of it, puts anything into a history that needs repair."""
    history: list[Any] = [USER]
    for message, end in said:
        request = parse(body_of(history, tools=TOOLS), ParsingRules())
        choice = {"index": 0, "message": with_names(message, request), "finish_reason": end}
        reader = Incoming(request, DIALECTS["generic"], separators=Separation())
        try:
            events = reader.whole(json.dumps({"choices": [choice]}).encode())
        except ServiceError:
            continue
        context = structs.replace(CONTEXT, function_names=request.function_names)
        given = json.loads(msgspec.json.encode(completion(context, events).choices[0].message))
        ids = [each["id"] for each in given.get("tool_calls") or ()]
        history += [given, *map(result, ids), USER]
    request = parse(body_of(history, tools=TOOLS), ParsingRules(reject_unknown=True))
    names = re.compile(r"tools\[\d+\]\.function\.name->.*")
    cut = re.compile(r"messages\[\d+\]\.tool_calls\[\d+\]\.function\.arguments repaired")
    repairs = [each for each in request.changes if not names.fullmatch(each)]
    if {end for _, end in said} & {"length", "content_filter"}:
        repairs = [each for each in repairs if not cut.fullmatch(each)]
    assert repairs == []
    for dialect in DIALECTS.values():
        outgoing(request, dialect, "m")


TEMPLATES = sorted((Path(__file__).parents[1] / "templates").glob("*.jinja"))


@cache
def template_of(path: Path) -> ChatTemplate:
    return ChatTemplate(path.read_text(), bos_token="<BOS>", eos_token="<EOS>")


@settings(max_examples=examples(200), deadline=None)
@given(path=st.sampled_from(TEMPLATES), messages=histories)
def test_any_history_is_rendered(path: Path, messages: list[Any]) -> None:
    if b"image_url" in json.dumps(messages).encode():
        return  # of which the model must know
    request = parse(body_of(messages, tools=TOOLS), ParsingRules())
    template, form = template_of(path), by_name(path.stem)
    prompt = render(template, form, request, thinking_on=None, effort=None)
    assert render(template, form, request, thinking_on=None, effort=None).text == prompt.text


# Through a gateway.

GATEWAY = """
[[providers]]
name = "north"
base_url = "{base_url}"

[[aliases]]
id = "fast"
targets = [{{ provider = "north", model = "m" }}]
"""


async def test_a_client_sees_its_own_names_of_functions(tmp_path: Path) -> None:
    name = "files.read/v2"
    reply = Reply("", calls=(Call("files_read_v2", "{}", "k1"),))
    async with (
        upstream(reply) as up,
        service_view(tmp_path, GATEWAY.format(base_url=up.base_url)) as there,
    ):
        choice = {"type": "function", "function": {"name": name}}
        fields = {"tools": TOOLS[2:3], "tool_choice": choice, "messages": [USER]}
        status, headers, body = await there.ask("/gateway/v1", "fast", **fields)
        assert status == 200
        told = body["choices"][0]["message"]
        assert told["tool_calls"][0]["function"]["name"] == name
        assert headers["x-request-changes"] == "tools[0].function.name->files_read_v2"
        sent = up.requests[-1].body
        assert sent["tools"][0]["function"]["name"] == "files_read_v2"
        assert sent["tool_choice"]["function"]["name"] == "files_read_v2"
        asked = {"model": "fast", **fields, "stream": True}
        url = f"{there.root}/gateway/v1/chat/completions"
        async with there.session.post(url, json=asked) as response:
            text = await response.text()
        assert f'"name":"{name}"' in text
        assert "files_read_v2" not in text
        fields["messages"] = [USER, told, result("k1")]
        status, headers, _ = await there.ask("/gateway/v1", "fast", **fields)
        past = up.requests[-1].body["messages"][1]["tool_calls"][0]
        assert (status, past["function"]["name"]) == (200, "files_read_v2")


async def test_repairs_are_told_also_where_the_provider_fails(tmp_path: Path) -> None:
    past = [USER, {"role": "assistant", "content": None}, USER]
    async with (
        upstream(Fault.SERVER_ERROR) as up,
        service_view(tmp_path, GATEWAY.format(base_url=up.base_url)) as there,
    ):
        status, headers, _ = await there.ask("/gateway/v1", "fast", messages=past)
        assert status != 200
        assert headers["x-request-changes"] == "messages[1].content emptied"


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "assistant", "content": None},
        {"role": "tool", "content": "x"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}] * 20},
        {"role": "assistant", "content": ["x"] * 60},
    ],
    ids=["null", "results", "calls", "parts"],
)
def test_a_long_history_is_not_mended_in_the_event_loop(turn: dict[str, Any]) -> None:
    """What is mended there is at most 32 KB."""
    size, rules = len(json.dumps(turn)), ParsingRules()
    few, many = (body_of([USER, *[turn] * (most // size), USER]) for most in (30_000, 36_000))
    assert CHAT_COMPLETIONS.parse_at_once(few, rules, {}) == with_reply(parse(few, rules))
    assert CHAT_COMPLETIONS.parse_at_once(many, rules, {}) is None
    assert parse(many, rules).large


def test_plain_text_is_read_in_the_event_loop() -> None:
    body = body_of([USER] * 3_000)
    found = CHAT_COMPLETIONS.parse_at_once(body, ParsingRules(), {})
    assert found == with_reply(parse(body, ParsingRules()))
