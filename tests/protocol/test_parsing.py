"""Every parameter is honoured, dropped as a hint, or refused by name."""

from __future__ import annotations

import json

import pytest
from casekit import each_of

from causerie.errors import InvalidRequest
from causerie.protocol.parameters import HINT_NAMES, REFUSED, ParsingRules
from causerie.protocol.request import (
    ChatRequest,
    Grammar,
    ImagePart,
    JsonObject,
    JsonSchema,
    Regex,
    TextChoice,
    TextPart,
    Thinking,
    ToolChoice,
)
from causerie.shapes.chat_completions.reader import parse

USER = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "clock"}}


def read(rules: ParsingRules | None = None, **fields: object) -> ChatRequest:
    body = {"model": "m", "messages": [USER], **fields}
    return parse(json.dumps(body).encode(), rules or ParsingRules())


def refuse(rules: ParsingRules | None = None, **fields: object) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(rules, **fields)
    assert caught.value.status == 400
    return caught.value


def test_the_smallest_request_has_defaults() -> None:
    request = read()
    assert request.model == "m"
    assert request.messages[0].text == "Hello"
    assert (request.stream, request.n, request.max_tokens, request.top_logprobs) == (
        False,
        1,
        None,
        None,
    )
    assert request.parallel_tool_calls is None
    assert request.add_generation_prompt
    assert request.params == {"model", "messages"}


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_an_output_limit_of_minus_one_is_none(name: str) -> None:
    request = read(**{name: -1})
    assert request.max_tokens is None
    assert list(request.changes) == [f"{name} -1 dropped"]
    assert name not in request.document
    for wrong in (-2, 0, -1.5, True):
        assert refuse(**{name: wrong}).param == name


def test_what_a_door_says_of_long_output_reaches_every_request() -> None:
    for more in ({}, {"n": 1}):
        assert not read(**more).keeps_output_limit
        assert read(ParsingRules(reject_long_output=True), **more).keeps_output_limit


@each_of("name", sorted(HINT_NAMES))
def test_hints_are_taken_and_dropped_whatever_they_hold(name: str) -> None:
    request = read(**{name: {"any": ["thing"]}})
    assert request.unlisted is None or name == "prediction"
    assert name not in request.params


def test_logprobs_that_are_declined_are_not_asked_for() -> None:
    assert "logprobs" not in read(logprobs=False).params
    assert "logprobs" in read(logprobs=True).params


@each_of("name", sorted(REFUSED))
def test_what_is_known_and_not_offered_is_refused_by_name(name: str) -> None:
    error = refuse(**{name: True})
    assert (error.code, error.param) == ("unsupported_parameter", name)
    assert read(**{name: None}).unlisted is None


def test_unknown_fields_are_named_and_are_not_among_what_is_passed_on() -> None:
    assert read().unlisted is None
    request = read(foo=1, bar=None, stream_options={"baz": 1, "include_usage": True})
    assert request.unlisted is not None
    assert request.unlisted.names == ("foo", "stream_options.baz")
    assert request.unlisted.body["foo"] == 1
    assert request.document.keys() == {"model", "messages", "stream_options"}
    assert request.document["stream_options"] == {"include_usage": True}
    assert not request.strict


@each_of(
    ("name", "good", "bad"),
    [
        ("temperature", [0, 0.5, 2], [-0.1, 2.1, 10**300]),
        ("top_p", [0.01, 1], [0, 1.1, -1]),
        ("min_p", [0, 1], [-0.1, 1.1]),
        ("top_k", [-1, 0, 40], [-2, 2**31]),
        ("repetition_penalty", [0.5, 1.3], [0, -1, 11]),
        ("frequency_penalty", [-2, 2], [-2.1, 2.1]),
        ("presence_penalty", [-2, 2], [-2.1, 2.1]),
        ("seed", [-(2**63), 2**63 - 1], [2**63, -(2**63) - 1]),
        ("n", [1, 16], [0, 17, -1]),
        ("max_tokens", [1, 4096], [0, -2, 2**31]),
        ("max_completion_tokens", [1], [0]),
        ("min_tokens", [0, 5], [-1]),
        ("thinking_token_budget", [0, 100], [-1]),
    ],
)
def test_numbers_are_held_to_their_range(name: str, good: list[float], bad: list[float]) -> None:
    for value in good:
        assert name in read(**{name: value}).params
    for value in bad:
        error = refuse(**{name: value})
        assert (error.code, error.param) == ("invalid_value", name)
    for value in (True, "1", [1], {}):
        error = refuse(**{name: value})
        assert (error.code, error.param) == ("invalid_type", name)


@each_of("name", ["seed", "n", "max_tokens", "top_k", "min_tokens"])
def test_integers_have_no_fraction_but_zero(name: str) -> None:
    assert name in read(**{name: 2.0}).params
    broken = refuse(**{name: 1.5})
    assert broken.code == "invalid_type"
    assert broken.message == f"`{name}` must be an integer, not a number with a fraction."
    assert refuse(**{name: 1e300}).code == "invalid_value"


@each_of(
    "name",
    ["stream", "logprobs", "ignore_eos", "parallel_tool_calls", "include_reasoning"],
)
def test_switches_are_booleans(name: str) -> None:
    assert refuse(**{name: "true"}).code == "invalid_type"
    assert refuse(**{name: 1}).param == name


def test_two_names_of_one_limit_must_agree() -> None:
    assert read(max_tokens=7, max_completion_tokens=7).max_tokens == 7
    assert read(max_completion_tokens=9).max_tokens == 9
    assert refuse(max_tokens=7, max_completion_tokens=8).param == "max_tokens"
    assert refuse(max_tokens=7, min_tokens=8).param == "min_tokens"


def test_stop_is_a_string_or_a_few() -> None:
    assert read(stop="x").stop == ("x",)
    assert read(stop=["a", "b"]).stop == ("a", "b")
    assert read(stop=["a"] * 16).stop == ("a",) * 16
    assert refuse(stop=["a"] * 17).param == "stop"
    assert refuse(stop=["a", ""]).param == "stop[1]"
    assert refuse(stop="").param == "stop"
    assert refuse(stop=["a", 3]).code == "invalid_type"


def test_stop_token_ids_and_biases_name_tokens() -> None:
    assert read(stop_token_ids=[1, 2]).stop_token_ids == (1, 2)
    assert refuse(stop_token_ids=[1, -2]).param == "stop_token_ids[1]"
    assert read(logit_bias={"15": -100, "16": 0.5}).sampling.logit_bias == {15: -100.0, 16: 0.5}
    assert refuse(logit_bias={"15": 101}).param == "logit_bias.15"
    assert refuse(logit_bias={"x": 1}).param == "logit_bias"
    assert refuse(logit_bias={"-1": 1}).param == "logit_bias"
    assert refuse(logit_bias={"١": 1}).param == "logit_bias"


def test_top_logprobs_need_logprobs() -> None:
    assert read(logprobs=True).top_logprobs == 0
    assert read(logprobs=True, top_logprobs=20).top_logprobs == 20
    assert read(logprobs=False).top_logprobs is None
    assert refuse(top_logprobs=2).param == "top_logprobs"
    assert refuse(logprobs=True, top_logprobs=21).param == "top_logprobs"


def test_usage_in_the_stream_is_asked_for() -> None:
    assert read(stream=True, stream_options={"include_usage": True}).include_usage
    assert not read(stream=True).include_usage
    assert refuse(stream_options=True).code == "invalid_type"
    assert refuse(stream_options={"include_usage": "yes"}).param == "stream_options.include_usage"
    asked = read(stream=True, stream_options={"continuous_usage_stats": True})
    assert asked.unlisted is not None
    assert asked.unlisted.names == ("stream_options.continuous_usage_stats",)


def test_model_and_messages_are_required() -> None:
    for name in ("model", "messages"):
        error = refuse(**{name: None})
        assert (error.code, error.param) == ("missing_parameter", name)
    assert refuse(model=3).code == "invalid_type"
    assert refuse(model="").code == "invalid_value"
    assert refuse(messages=[]).param == "messages"
    assert refuse(messages={}).code == "invalid_type"
    assert refuse(messages=[3]).param == "messages[0]"
    assert refuse(ParsingRules(max_messages=2), messages=[USER] * 3).param == "messages"


def test_thinking_is_one_setting() -> None:
    assert read().thinking == Thinking()
    off = {"enable_thinking": False}
    assert read(chat_template_kwargs=off).thinking == Thinking(enabled=False)
    assert read(chat_template_kwargs={"thinking": True}).thinking == Thinking(enabled=True)
    assert read(reasoning_effort="high").thinking == Thinking(enabled=True, effort="high")
    assert read(reasoning_effort="none").thinking == Thinking(enabled=False)
    assert read(thinking_token_budget=50).thinking == Thinking(budget=50)
    assert read(thinking_token_budget=0).thinking == Thinking(enabled=False)
    assert read(include_reasoning=False).thinking == Thinking(visible=False)
    both = read(reasoning_effort="low", thinking_token_budget=9).thinking
    assert both == Thinking(enabled=True, effort="low", budget=9)


@each_of(
    "fields",
    [
        {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
        {"thinking_token_budget": 5, "chat_template_kwargs": {"enable_thinking": False}},
        {"thinking_token_budget": 0, "reasoning_effort": "low"},
        {"chat_template_kwargs": {"enable_thinking": True, "thinking": False}},
        {"chat_template_kwargs": {"reasoning_effort": "low"}, "reasoning_effort": "high"},
        {"reasoning": {"effort": "low"}, "reasoning_effort": "high"},
        {"reasoning": {"enabled": False, "max_tokens": 3}},
        {"reasoning": {"effort": "low", "max_tokens": 3}},
        {"reasoning": {"max_tokens": 3}, "thinking_token_budget": 4},
        {"reasoning": {"exclude": True}, "include_reasoning": True},
    ],
)
def test_contradictions_about_thinking_are_refused(fields: dict[str, object]) -> None:
    assert refuse(ParsingRules(reasoning_object=True), **fields).code == "invalid_value"


def test_the_reasoning_object_belongs_to_the_router() -> None:
    error = refuse(reasoning={"effort": "high"})
    assert (error.code, error.param) == ("unsupported_parameter", "reasoning")
    assert "reasoning_effort" in error.message
    router = ParsingRules(reasoning_object=True)
    for effort in ("max", "xhigh", "high", "medium", "low", "minimal"):
        assert read(router, reasoning={"effort": effort}).thinking.effort == effort
    assert read(router, reasoning={"effort": "none"}).thinking.enabled is False
    assert read(router, reasoning={"max_tokens": 8}).thinking == Thinking(enabled=True, budget=8)
    hidden = read(router, reasoning={"exclude": True, "enabled": True}).thinking
    assert hidden == Thinking(enabled=True, visible=False, usual_effort="medium")
    sure = read(router, reasoning={"enabled": True}, thinking_token_budget=8).thinking
    assert sure == Thinking(enabled=True, budget=8)
    assert read(router, reasoning={}).thinking == Thinking()
    assert refuse(router, reasoning={"effort": "huge"}).param == "reasoning.effort"
    unlisted = read(router, reasoning={"mode": "pro"}).unlisted
    assert unlisted is not None
    assert unlisted.names == ("reasoning.mode",)
    assert read(router, reasoning={"summary": "auto"}).thinking == Thinking()
    assert refuse(router, reasoning={"summary": 1}).param == "reasoning.summary"
    twice = {"reasoning": {"max_tokens": 8}, "thinking_token_budget": 8}
    assert read(router, **twice).thinking == Thinking(enabled=True, budget=8)


def test_template_kwargs_are_kept_and_thinking_may_be_a_word_there() -> None:
    request = read(chat_template_kwargs={"thinking": "brief", "x": [1]})
    assert request.template_kwargs == {"thinking": "brief", "x": [1]}
    assert request.thinking == Thinking()
    assert refuse(chat_template_kwargs=[]).code == "invalid_type"
    error = refuse(chat_template_kwargs={"enable_thinking": "no"})
    assert error.param == "chat_template_kwargs.enable_thinking"


def test_tools_are_functions_with_unique_names() -> None:
    request = read(tools=[TOOL, OTHER])
    assert [tool.name for tool in request.tools] == ["weather", "clock"]
    assert request.tools[1].parameters == {}
    assert refuse(tools=[TOOL, TOOL]).param == "tools[1].function.name"
    assert refuse(tools=[OTHER] * 129).param == "tools"
    assert refuse(tools=[{"type": "custom"}]).code == "unsupported_parameter"
    assert refuse(tools=[{"type": "function"}]).param == "tools[0].function"
    for name in ("", "x" * 1025):
        tool = {"type": "function", "function": {"name": name}}
        assert refuse(tools=[tool]).param == "tools[0].function.name"
    tool = {"type": "function", "function": {"name": "f", "parameters": []}}
    assert refuse(tools=[tool]).param == "tools[0].function.parameters"


def test_tool_choice_in_all_its_shapes() -> None:
    tools = [TOOL, OTHER]
    for mode in ("none", "auto", "required"):
        assert read(tools=tools, tool_choice=mode).tool_choice.mode == mode
    named = {"type": "function", "function": {"name": "clock"}}
    assert read(tools=tools, tool_choice=named).tool_choice == ToolChoice("required", ("clock",))
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}
    assert read(tools=tools, tool_choice=allowed).tool_choice == ToolChoice("auto", ("clock",))
    missing = {"type": "function", "function": {"name": "nope"}}
    assert refuse(tools=tools, tool_choice=missing).param == "tool_choice.function.name"
    assert refuse(tools=tools, tool_choice="any").param == "tool_choice"
    assert refuse(tools=tools, tool_choice=3).code == "invalid_type"
    assert refuse(tools=tools, tool_choice={"type": "custom"}).param == "tool_choice.type"
    empty = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}
    assert refuse(tools=tools, tool_choice=empty).param == "tool_choice.allowed_tools.tools"
    assert refuse(tool_choice="required").param == "tool_choice"
    assert read(tool_choice="auto").tool_choice == ToolChoice()


def test_the_shape_of_the_answer_is_asked_for_once() -> None:
    assert read(response_format={"type": "text"}).output is None
    assert read(response_format={"type": "json_object"}).output == JsonObject()
    schema = {"type": "object"}
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema}}
    assert read(response_format=wanted).output == JsonSchema(schema, "a")
    alongside = {"type": "json_object", "schema": {"required": ["a"]}}
    assert read(response_format=alongside).output == JsonSchema(
        {"type": "object", "required": ["a"]}, param="response_format.schema"
    )
    listed = {"type": "json_object", "schema": []}
    assert refuse(response_format=listed).param == "response_format.schema"
    at = "structured_outputs.json"
    assert read(structured_outputs={"json": schema}).output == JsonSchema(schema, param=at)
    assert read(structured_outputs={"regex": "a+"}).output == Regex("a+")
    assert read(structured_outputs={"choice": ["a", "b"]}).output == TextChoice(("a", "b"))
    assert read(structured_outputs={"grammar": "start: /a/"}).output == Grammar("start: /a/")
    empty = refuse(structured_outputs={})
    assert (empty.code, empty.param) == ("missing_parameter", "structured_outputs")
    assert "is empty" in empty.message
    assert refuse(structured_outputs={"regex": "a", "json": {}}).param == "structured_outputs"
    assert refuse(structured_outputs={"x": 1}).param == "structured_outputs"
    assert read(structured_outputs={"regex": "a+", "x": 1}).output == Regex("a+")
    assert refuse(structured_outputs={"choice": []}).param == "structured_outputs.choice"
    both = refuse(response_format={"type": "json_object"}, structured_outputs={"regex": "a"})
    assert both.param == "structured_outputs"
    assert refuse(response_format={"type": "xml"}).param == "response_format.type"
    assert refuse(response_format={}).param == "response_format.type"
    bare = refuse(response_format={"type": "json_schema"})
    assert bare.param == "response_format.json_schema"
    hollow = refuse(response_format={"type": "json_schema", "json_schema": {"name": "a"}})
    assert hollow.param == "response_format.json_schema.schema"


def test_continuing_needs_a_message_to_continue() -> None:
    messages = [USER, {"role": "assistant", "content": "Once"}]
    request = read(messages=messages, continue_final_message=True)
    assert request.continue_final_message
    assert not request.add_generation_prompt
    assert refuse(continue_final_message=True).param == "continue_final_message"
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    called = [*messages[:1], {**messages[1], "tool_calls": [call]}]
    error = refuse(messages=called, continue_final_message=True)
    assert error.param == "continue_final_message"
    error = refuse(messages=messages, continue_final_message=True, add_generation_prompt=True)
    assert error.param == "continue_final_message"


CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{"}}


def test_messages_of_every_role() -> None:
    request = read(
        messages=[
            {"role": "system", "content": ""},
            {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
            USER,
            {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "{}"},
            {"role": "system", "content": "late"},
        ]
    )
    roles = [message.role for message in request.messages]
    assert roles == ["system", "system", "user", "assistant", "tool", "system"]
    assert request.messages[1].content == (TextPart("Be brief."),)
    assert request.messages[3].reasoning_content == "hm"
    assert request.messages[3].tool_calls[0].arguments == '{"malformed":"{"}'


def test_what_an_assistant_refused_is_what_it_said() -> None:
    """The official client's type of an answer has `content` or `refusal`, the other is null."""
    said = {"role": "assistant", "content": None, "refusal": "No.", "tool_calls": None}
    assert read(messages=[USER, said, USER]).messages[1].content == "No."
    both = {**said, "content": "Yes."}
    assert read(messages=[USER, both, USER]).messages[1].content == "Yes."
    assert read(messages=[USER, {**both, "refusal": 5}]).messages[1].content == "Yes."


def test_what_came_back_can_be_sent_back() -> None:
    """Interface 2.2: the assistant message of the response is copied into the next request."""
    message = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "think",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [CALL],
    }
    answer = {"role": "tool", "tool_call_id": "c1", "content": "1"}
    request = read(messages=[USER, message, answer])
    assert request.messages[1].reasoning_content == "think"
    assert request.messages[2].tool_call_id == "c1"


@each_of(
    ("message", "param", "code"),
    [
        ({"content": "x"}, "role", "missing_parameter"),
        ({"role": "robot", "content": "x"}, "role", "invalid_value"),
        ({"role": "function", "content": "x"}, "role", "unsupported_parameter"),
        ({"role": "user"}, "content", "missing_parameter"),
        ({"role": "user", "content": 3}, "content", "invalid_type"),
        ({"role": "user", "content": [3]}, "content[0]", "invalid_type"),
        ({"role": "user", "content": [{"type": "text"}]}, "content[0].text", "missing_parameter"),
        (
            {"role": "user", "content": [{"type": "input_audio"}]},
            "content[0].type",
            "unsupported_parameter",
        ),
    ],
)
def test_a_bad_message_is_named_by_its_index(
    message: dict[str, object], param: str, code: str
) -> None:
    error = refuse(messages=[USER, message])
    assert (error.param, error.code) == (f"messages[1].{param}", code)


@each_of(
    ("fields", "param", "right"),
    [
        (
            {"messages": None, "prompt": "Hi"},
            "messages",
            "at least one message instead of `prompt`",
        ),
        ({"messages": "Hi"}, "messages", '[{"role": "user", "content": TEXT}]'),
        ({"messages": ["Hi"]}, "messages[0]", "an object with `role` and `content`"),
        ({"messages": [{"type": "human", "content": "Hi"}]}, "messages[0].role", "user, assistant"),
        ({"tools": ["f"]}, "tools[0]", '{"type": "function", "function": {"name": NAME'),
        ({"tools": [{"name": "f"}]}, "tools[0].type", 'must be "function"'),
        (
            {"tools": [{"type": "function", "name": "f"}]},
            "tools[0].function",
            "an object with `name` and `parameters`",
        ),
        ({"tool_choice": "any"}, "tool_choice", 'required or {"type": "function", "function"'),
        ({"tool_choice": {"type": "auto"}}, "tool_choice.type", "auto and required are strings"),
        (
            {"tool_choice": {"type": "function", "name": "f"}},
            "tool_choice.function",
            "an object with a `name`",
        ),
        ({"response_format": "json"}, "response_format", '{"type": "json_object"}'),
        (
            {"response_format": {"type": "json_schema", "schema": {}}},
            "response_format.json_schema",
            "an object with `name` and `schema`",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"type": "object"}}},
            "response_format.json_schema.schema",
            "the JSON Schema itself",
        ),
    ],
)
def test_an_error_says_what_would_be_right(
    fields: dict[str, object], param: str, right: str
) -> None:
    error = refuse(**fields)
    assert error.param == param
    assert right in str(error)


@each_of(
    ("part", "place", "right"),
    [
        ({"type": "input_text", "text": "a"}, ".type", '{"type": "text", "text": TEXT}'),
        ({"type": "output_text", "text": "a"}, ".type", '{"type": "text", "text": TEXT}'),
        ({"type": "input_image", "image_url": "https://a/b"}, ".type", '{"type": "image_url"'),
        ({"type": "image", "source": {}}, ".type", '"image_url": {"url": URL}}'),
        ({"type": "tool_result", "tool_use_id": "a"}, ".type", "role `tool`"),
        ({"type": "image_url", "image_url": "https://a/b"}, ".image_url", "with a `url`"),
        ({"text": "a"}, ".type", "`text` or `image_url`"),
        ("a", "", "an object with a `type`"),
    ],
)
def test_a_part_of_another_api_is_told_what_is_right(part: object, place: str, right: str) -> None:
    error = refuse(messages=[{"role": "user", "content": [part]}])
    assert error.param == f"messages[0].content[0]{place}"
    assert right in str(error)


def test_images_come_in_the_request_or_by_a_web_address() -> None:
    def image(url: object) -> list[dict[str, object]]:
        part = {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
        return [{"role": "user", "content": [part]}]

    data = "data:image/png;base64,iVBORw0KGgo="
    assert read(messages=image(data)).messages[0].content == (ImagePart(data),)
    at = "messages[0].content[0].image_url.url"
    address = "https://example.org/a.png?signed=%20x"
    assert read(messages=image(address)).messages[0].content == (ImagePart(address),)
    for url in (
        *("http://169.254.169.254/", "file:///etc/passwd", "data:text/html,x", "", "a.png"),
        *("https://", "https://a b", "https://a\n", "https://ä", "HTTPS://a", " https://a"),
        "https://" + "a" * 8192,
    ):
        assert refuse(messages=image(url)).param == at
    assert "`https://`" in refuse(messages=image("http://169.254.169.254/")).message
