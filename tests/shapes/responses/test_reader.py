"""Bodies of Responses become requests: items, tools, parameters, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from causerie.errors import InvalidRequest
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ImagePart, JsonSchema, TextPart, ToolCall, images
from causerie.shapes.responses.encoder import ResponseReply
from causerie.shapes.responses.reader import RESPONSES
from causerie.shapes.responses.tools import ToolForm
from causerie.shapes.sealed_reasoning import SealedReasoning, seal
from causerie.shapes.shape import ParsedRequest, PassingReply

RULES = ParsingRules()
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
PATCH = {"type": "custom", "name": "patch", "description": "Edits files."}
IMAGE = "data:image/png;base64,aGk="


def parsed(rules: ParsingRules = RULES, **fields: Any) -> ParsedRequest:
    body = json.dumps({"model": "m", "input": "Hi", **fields}).encode()
    found = RESPONSES.parse_at_once(body, rules, {})
    assert found is not None
    return found


def refused(rules: ParsingRules = RULES, **fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        parsed(rules, **fields)
    return error.value


def refused_elsewhere(**fields: Any) -> InvalidRequest:
    """What all targets answer that are no providers of this API."""
    request = parsed(**fields).request
    with pytest.raises(InvalidRequest) as error:
        request.check_translated()
    assert error.value.code == "unsupported_parameter"
    return error.value


def reply_of(found: ParsedRequest) -> ResponseReply:
    assert isinstance(found.reply, PassingReply)
    assert isinstance(found.reply.encoded, ResponseReply)
    return found.reply.encoded


def changes(found: ParsedRequest) -> list[str]:
    """The changes as the client sees them."""
    request = found.request
    told = [*request.changes, *(request.unlisted.changes if request.unlisted else ())]
    header = found.places.renamed({"x-request-changes": ", ".join(told)})
    return header["x-request-changes"].split(", ") if told else []


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    message = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed"}
    return {**message, "content": [part]}


def call(name: str, **more: Any) -> dict[str, Any]:
    plain = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": name}
    return {**plain, "arguments": "{}", "status": "completed", **more}


def output(text: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "id": "o", "call_id": "c1", "output": text, **more}


def test_a_text_is_a_message_of_the_user() -> None:
    request = parsed(instructions="Be brief.").request
    assert [(m.role, m.content) for m in request.messages] == [
        ("system", "Be brief."),
        ("user", "Hi"),
    ]


def test_parts_of_messages() -> None:
    parts = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": IMAGE, "detail": "low"},
    ]
    found = parsed(input=[{"type": "message", "role": "user", "content": parts}])
    assert found.request.messages[0].content == (TextPart("What is it?"), ImagePart(IMAGE))
    assert changes(found) == []


def test_all_items_of_a_turn_are_one_message() -> None:
    sealed = seal(SealedReasoning("I ask."))
    items = [
        {"role": "developer", "content": "Rules."},
        user("Weather?"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": None,
         "encrypted_content": sealed},
        said("A moment."),
        call("weather"),
        output("Rain."),
        user("Thanks"),
    ]  # fmt: skip
    found = parsed(input=items, tools=[WEATHER])
    system, _, turn, result, last = found.request.messages
    assert system.role == "system"
    assert turn.content == "A moment."
    assert turn.reasoning_content == "I ask."
    assert turn.tool_calls == (ToolCall("c1", "weather", "{}"),)
    assert (result.role, result.tool_call_id, result.content) == ("tool", "c1", "Rain.")
    assert last.content == "Thanks"
    assert changes(found) == []


def test_two_messages_of_the_model_stay_two() -> None:
    request = parsed(input=[user("a"), said("b"), said("c"), user("d")]).request
    assert [message.content for message in request.messages] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("item", "text", "told"),
    [
        ({"content": [{"type": "reasoning_text", "text": "raw"}], "summary": []}, "raw", []),
        ({"summary": [{"type": "summary_text", "text": "sum"}], "content": None}, "sum", []),
        (
            {"summary": [{"type": "summary_text", "text": "sum"}], "encrypted_content": "gAAA="},
            "sum",
            ["input[1].encrypted_content dropped"],
        ),
        (
            {"summary": [], "encrypted_content": seal(SealedReasoning("x"))[:-3] + "AAA"},
            None,
            ["input[1].encrypted_content dropped"],
        ),
    ],
)
def test_reasoning_that_comes_back(item: Any, text: str | None, told: list[str]) -> None:
    reasoning = {"type": "reasoning", "id": "rs", **item}
    found = parsed(input=[user("a"), reasoning, said("b"), user("c")])
    assert found.request.messages[1].reasoning_content == text
    assert changes(found) == told


def test_blocks_of_a_provider_come_back() -> None:
    block = {"type": "reasoning.text", "text": "t", "signature": "s", "format": "f", "index": 0}
    item = {"type": "reasoning", "encrypted_content": seal(SealedReasoning("t", [block]))}
    request = parsed(input=[user("a"), item, said("b"), user("c")]).request
    messages: Any = request.document["messages"]
    assert messages[1]["reasoning_details"] == [block]


def test_custom_calls_and_their_outputs() -> None:
    items = [
        user("Edit."),
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "+ x"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done."},
    ]
    messages = parsed(input=items, tools=[PATCH]).request.messages
    assert messages[1].tool_calls == (ToolCall("c1", "patch", '{"input":"+ x"}'),)
    assert messages[2].content == "Done."


def test_images_of_tools_are_shown_by_the_user() -> None:
    parts = [
        {"type": "input_text", "text": "Here."},
        {"type": "input_image", "image_url": IMAGE},
        {"type": "input_image", "image_url": "file:///etc/passwd"},
    ]
    found = parsed(input=[user("Look."), call("view"), output(parts)])
    assert [message.role for message in found.request.messages][1:] == ["assistant", "tool", "user"]
    assert found.request.messages[2].content == "Here."
    assert found.request.messages[3].content is not None
    assert ImagePart(IMAGE, optional=True) in found.request.messages[3].content
    unseen, changed = found.request.without_optional_images()
    assert not list(images(unseen.messages))
    assert len(changed) == 1
    assert changes(found) == [
        "input[2].output[1] moved to a message of the user",
        "input[2].output[2] dropped",
    ]


def test_a_broken_past_is_mended_and_named_by_its_items() -> None:
    items = [
        user("a"),
        call("weather", arguments="{broken"),
        output("late", call_id="other"),
        {"type": "message", "role": "user", "content": [{"type": "input_file", "file_id": "f"}]},
        {"type": "web_search_call", "id": "ws", "status": "completed"},
        user("b"),
    ]
    found = parsed(input=items, tools=[WEATHER])
    told = changes(found)
    assert "input[1].arguments repaired" in told
    assert "input[1] result added" in told
    assert "input[2] call added" in told
    assert "input[3].content[0] input_file dropped" in told
    assert "input[4] web_search_call dropped" in told


def test_halves_of_characters_in_the_past() -> None:
    body = (
        b'{"model": "m", "input": [{"role": "assistant", "content": "a\\ud83d"}, {"role": "user",'
    )
    found = RESPONSES.parse(body + b'"content": "b"}]}', RULES, {})
    assert found.request.messages[0].content == "a\ufffd"
    with pytest.raises(InvalidRequest):
        RESPONSES.parse(b'{"model": "m", "input": "a\\ud83d"}', RULES, {})


def test_tools_of_all_kinds() -> None:
    tools = [
        {**WEATHER, "strict": False, "description": "Tells it.", "defer_loading": True},
        PATCH,
        {"type": "custom", "name": "number",
         "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}},
        {"type": "custom", "name": "code",
         "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}},
        {"type": "namespace", "name": "agents", "description": "", "tools": [
            {"type": "function", "name": "spawn", "parameters": {"type": "object"}},
            {"type": "custom", "name": "note"},
        ]},
        {"type": "web_search", "external_web_access": False},
        {"type": "tool_search", "execution": "client", "description": "Finds."},
        {"type": "tool_search"},
    ]  # fmt: skip
    found = parsed(tools=tools)
    functions = {tool.name: tool for tool in found.request.tools}
    assert [*functions] == [
        *("weather", "patch", "number", "code", "agents__spawn", "agents__note", "tool_search")
    ]
    number: Any = functions["number"].parameters
    assert number["properties"]["input"]["pattern"] == "^(?:[0-9]+)$"
    assert 'start: "x"' in (functions["code"].description or "")
    assert functions["weather"].strict is False
    assert changes(found) == [
        "tools[0].defer_loading dropped",
        "tools[4] namespace flattened",
        "tools[5] web_search dropped",
        "tools[7] tool_search dropped",
    ]
    assert reply_of(found).forms == {
        "patch": ToolForm("custom", "patch"),
        "number": ToolForm("custom", "number"),
        "code": ToolForm("custom", "code"),
        "agents__spawn": ToolForm("function", "spawn", "agents"),
        "agents__note": ToolForm("custom", "note", "agents"),
        "tool_search": ToolForm("tool_search", "tool_search"),
    }


def test_tools_in_items() -> None:
    more = {"type": "additional_tools", "role": "developer", "tools": [PATCH, WEATHER]}
    items = [
        more,
        user("a"),
        {"type": "tool_search_call", "call_id": "c1", "arguments": {"query": "mail"}},
        {"type": "tool_search_output", "call_id": "c1", "tools": [{**WEATHER, "name": "mail"}]},
    ]
    request = parsed(input=items, tools=[WEATHER]).request
    assert [tool.name for tool in request.tools] == ["weather", "patch", "mail"]
    assert request.messages[1].tool_calls == (ToolCall("c1", "tool_search", '{"query":"mail"}'),)
    assert request.messages[2].content == '{"tools":["mail"]}'


def test_names_that_no_target_takes() -> None:
    tools = [{"type": "web_search"}, {**WEATHER, "name": "server.weather"}]
    found = parsed(tools=tools)
    assert found.request.tools[0].name == "server_weather"
    assert changes(found) == ["tools[0] web_search dropped", "tools[1].name->server_weather"]


TOOLS = [WEATHER, PATCH, {"type": "web_search"}]


@pytest.mark.parametrize(
    ("choice", "mode", "allowed"),
    [
        ("auto", "auto", None),
        ("none", "none", None),
        ("required", "required", None),
        ({"type": "function", "name": "weather"}, "required", ("weather",)),
        ({"type": "custom", "name": "patch"}, "required", ("patch",)),
        (
            {"type": "allowed_tools", "mode": "required",
             "tools": [{"type": "function", "name": "weather"}, {"type": "web_search"}]},
            "required",
            ("weather",),
        ),
        ({"type": "allowed_tools", "tools": [{"type": "custom", "name": "patch"}]}, "auto",
         ("patch",)),
        ({"type": "allowed_tools", "tools": [{"type": "web_search"}]}, "none", None),
    ],
)  # fmt: skip
def test_choices_of_tools(choice: Any, mode: str, allowed: Any) -> None:
    found = parsed(tools=TOOLS, tool_choice=choice).request.tool_choice
    assert (found.mode, found.allowed) == (mode, allowed)


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ({"type": "function", "name": "other"}, "tool_choice.name"),
        ("sometimes", "tool_choice"),
    ],
)
def test_choices_that_cannot_be_kept(choice: Any, param: str) -> None:
    assert refused(tools=TOOLS, tool_choice=choice).param == param


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ({"type": "web_search"}, "tool_choice.type"),
        ({"type": "mcp", "server_label": "x"}, "tool_choice.type"),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
            "tool_choice.tools",
        ),
    ],
)
def test_choices_that_only_a_provider_of_this_api_keeps(choice: Any, param: str) -> None:
    assert refused_elsewhere(tools=TOOLS, tool_choice=choice).param == param
    unread = parsed(tools=TOOLS, tool_choice=choice).request.unread
    assert unread is not None
    assert unread.refused is not None
    assert unread.refused.__traceback__ is None  # its frames hold the request


def test_a_demanded_call_where_nobody_runs_the_tools() -> None:
    assert "web_search" in refused_elsewhere(tools=TOOLS[2:], tool_choice="required").message


def test_parameters() -> None:
    found = parsed(
        max_output_tokens=40,
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        top_logprobs=2,
        include=["reasoning.encrypted_content", "file_search_call.results"],
        parallel_tool_calls=False,
        reasoning={"effort": "low", "summary": "auto", "context": "all_turns"},
        text={"verbosity": "low"},
        metadata={"a": "b"},
        prompt_cache_key="k",
        store=True,
        truncation="auto",
        client_metadata={"x": 1},
        service_tier="flex",
        user="u",
        stream=True,
    )
    request = found.request
    assert request.max_tokens == 40
    assert (request.sampling.temperature, request.sampling.top_k) == (0.5, 5)
    assert request.top_logprobs == 2
    assert request.thinking.effort == "low"
    assert (request.cache_key, request.parallel_tool_calls, request.stream) == ("k", False, True)
    assert request.document["verbosity"] == "low"
    assert "store" not in request.document
    assert sorted(changes(found)) == [
        "client_metadata dropped",
        "include[1] dropped",
        "reasoning.context dropped",
        "store true->false",
        "truncation auto->disabled",
    ]
    assert (reply_of(found).encrypted, reply_of(found).summarized) == (True, True)
    echo = reply_of(found).echo()
    assert (echo["max_output_tokens"], echo["temperature"], echo["metadata"]) == (
        40,
        0.5,
        {"a": "b"},
    )
    assert echo["reasoning"] == {"effort": "low", "summary": "auto"}


def test_an_answer_by_a_schema() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    request = parsed(text={"format": form}).request
    assert request.output == JsonSchema({"type": "object"}, "n")
    assert parsed(text={"format": {"type": "text"}}).request.output is None


def test_a_limit_of_one_call() -> None:
    assert parsed(tools=TOOLS, max_tool_calls=1).request.parallel_tool_calls is False


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"background": True}, "background"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [5]}, "input[0]"),
        ({"input": [{"id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "wizard", "content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "input[0].content[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0].image_url",
        ),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"reasoning": {"effort": "great"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"name": "x"}]}, "tools[0].type"),
        ({"tools": [{"type": "web_search"}, WEATHER, WEATHER]}, "tools[2].name"),
        (
            {"tools": [{"type": "custom", "name": "c",
                        "format": {"type": "grammar", "syntax": "gbnf", "definition": "x"}}]},
            "tools[0].format.syntax",
        ),
        ({"max_tool_calls": 0}, "max_tool_calls"),
        ({"truncation": "some"}, "truncation"),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_client_s_field(fields: Any, param: str) -> None:
    error = refused(**fields)
    assert error.param == param
    assert f"`{param}`" in error.message


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ({"type": "input_file", "file_id": "f"}, "type"),
        ({"type": "input_image", "file_id": "f"}, "file_id"),
        ({"type": "novelty"}, "type"),
    ],
)
def test_parts_that_only_a_provider_of_this_api_reads(part: Any, name: str) -> None:
    error = refused_elsewhere(input=[{"role": "user", "content": [part]}])
    assert error.param == f"input[0].content[0].{name}"
    assert f"`{error.param}`" in error.message
    half = [{"role": "user", "content": "\ud800"}, said("a"), {"role": "user", "content": [part]}]
    body = json.dumps({"model": "m", "input": half}).encode()
    request = RESPONSES.parse(body, RULES, {}).request
    assert request.native is None  # no provider can be given a half
    with pytest.raises(InvalidRequest) as caught:
        request.check_translated()
    assert caught.value.param == f"input[2].content[0].{name}"


def test_unknown_fields() -> None:
    found = parsed(surprise=1, n=3, input=[{**user("a"), "extra": 1}])
    assert sorted(changes(found)) == ["input[0].extra dropped", "n dropped", "surprise dropped"]
    strict = ParsingRules(reject_unknown=True)
    assert refused(strict, n=3).param == "n"
    found = parsed(strict, client_metadata={"a": 1}, prompt_cache_retention="24h")
    assert sorted(changes(found)) == ["client_metadata dropped", "prompt_cache_retention dropped"]


def test_the_count_of_tokens() -> None:
    assert RESPONSES.counting == "/responses/input_tokens"
    assert RESPONSES.count_body is not None
    assert msgspec.to_builtins(RESPONSES.count_body(3)) == {
        "object": "response.input_tokens",
        "input_tokens": 3,
    }


def test_a_provider_of_the_same_api_gets_the_body_as_it_came() -> None:
    ours = {"type": "reasoning", "encrypted_content": seal(SealedReasoning("x")), "summary": []}
    theirs = {"type": "reasoning", "encrypted_content": "gAAA=", "summary": []}
    plain = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "x"}]}
    tools = [{"type": "web_search"}]
    items = [user("a"), ours, theirs, said("b"), plain, said("c"), user("d")]
    native = parsed(input=items, tools=tools).request.native
    assert native is not None
    assert native.body["input"] == items
    assert native.unsealed is not None
    assert native.unsealed["input"] == [user("a"), theirs, said("b"), said("c"), user("d")]
    assert native.left_out == ("input[1] dropped", "input[4] dropped")
    assert native.body["tools"] == tools
    routed = b'{"model": "m", "input": "Hi", "reasoning": {"exclude": true}}'
    rules = ParsingRules(reasoning_object=True)
    assert RESPONSES.parse(routed, rules, {}).request.native is None
