"""Requests of the Messages API: read as what they mean, named as the client names them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs

from causerie.errors import InvalidRequest, NotFound
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import (
    ImagePart,
    JsonSchema,
    Message,
    TextPart,
    Thinking,
    ToolCall,
    ToolChoice,
)
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing
from causerie.shapes.messages.reader import parse
from causerie.shapes.sealed_reasoning import Digest, SealedReasoning, seal
from causerie.shapes.shape import ParsedRequest

RULES = ParsingRules()
HI = [{"role": "user", "content": "Hi"}]
TOOL = {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}
PIXEL = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


def read(
    rules: ParsingRules = RULES, headers: dict[str, str] | None = None, **fields: Any
) -> ParsedRequest:
    body = {"model": "m", "max_tokens": 100, "messages": HI, **fields}
    kept = {name: value for name, value in body.items() if value is not ...}
    return parse(msgspec.json.encode(kept), rules, headers or {})


def told(parsed: ParsedRequest) -> list[str]:
    """The changes as the client is told them."""
    request = parsed.request
    changes = [*request.changes, *(request.unlisted.changes if request.unlisted else ())]
    headers = parsed.places.renamed({"x-request-changes": ", ".join(changes)})
    return [each for each in headers["x-request-changes"].split(", ") if each]


def refused(**fields: Any) -> tuple[str | None, str]:
    with pytest.raises(InvalidRequest) as caught:
        read(**fields)
    return caught.value.param, caught.value.message


def refused_elsewhere(**fields: Any) -> tuple[str | None, str]:
    """What all targets answer that are no providers of this API."""
    request = read(**fields).request
    with pytest.raises(InvalidRequest) as caught:
        request.check_translated()
    assert caught.value.code == "unsupported_parameter"
    return caught.value.param, caught.value.message


def signed(text: str) -> str:
    digest = Digest()
    digest.add(text)
    return digest.signature()


def test_system_prompt_turns_and_system_turns_in_the_middle() -> None:
    messages = [*HI, {"role": "system", "content": "Now it rains."}, {"role": "user", "content": [
        {"type": "text", "text": "And?", "cache_control": {"type": "ephemeral"}}
    ]}]  # fmt: skip
    parsed = read(system=[{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
                  messages=messages)  # fmt: skip
    assert parsed.request.messages == (
        Message("system", (TextPart("A"), TextPart("B"))),
        Message("user", "Hi"),
        Message("system", "Now it rains."),
        Message("user", (TextPart("And?"),)),
    )
    assert told(parsed) == ["messages[2].content.cache_control dropped"]
    first = read(system="Be brief.").request.messages[0]
    assert (first.role, first.content) == ("system", "Be brief.")


def test_calls_results_and_images_in_results() -> None:
    messages = [
        *HI,
        {"role": "assistant", "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "x"}},
            {"type": "tool_use", "id": "toolu_2", "name": "add", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": False, "content": [
                {"type": "text", "text": "There."}, {"type": "image", "source": PIXEL},
            ]},
            {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True, "content": "No."},
            {"type": "text", "text": "So?"},
        ]},
    ]  # fmt: skip
    parsed = read(messages=messages, tools=[TOOL])
    _, answer, first, second, user = parsed.request.messages
    assert answer == Message(
        "assistant", "Let me see.",
        tool_calls=(ToolCall("toolu_1", "look", '{"at":"x"}'), ToolCall("toolu_2", "add", "{}")),
    )  # fmt: skip
    assert first == Message("tool", "There.", tool_call_id="toolu_1")
    assert second == Message("tool", "No.", tool_call_id="toolu_2")
    image = ImagePart("data:image/png;base64,iVBORw0KGgo=", optional=True)
    assert user.content == (image, TextPart("So?"))
    assert told(parsed) == [
        "messages[2].content[0].content[1] moved",
        "messages[2].content[1].is_error dropped",
    ]


@pytest.mark.parametrize(
    "source",
    [
        {"type": "url", "url": "http://a.example/a.png"},
        {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjc="},
    ],
)
def test_an_image_of_a_tool_that_nobody_reads_is_dropped(source: dict[str, str]) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    parts = [{"type": "text", "text": "There."}, {"type": "image", "source": source}]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": parts}
    messages = [
        *HI, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]},
    ]  # fmt: skip
    parsed = read(messages=messages, tools=[TOOL])
    assert parsed.request.messages[-1] == Message("tool", "There.", tool_call_id="toolu_1")
    assert told(parsed) == ["messages[2].content[0].content[1] dropped"]


def test_past_faults_are_mended_in_the_clients_words() -> None:
    messages = [
        {"role": "user", "content": None},
        {"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}},
        ]},
        {"role": "user", "content": [{"type": "search_result", "source": "x", "content": []}]},
        *HI,
    ]  # fmt: skip
    parsed = read(messages=messages)
    assert [each.role for each in parsed.request.messages] == [
        "user", "assistant", "tool", "user", "user",
    ]  # fmt: skip
    assert told(parsed) == [
        "messages[1].content[0] dropped",
        "messages[2].content[0] dropped",
        "messages[0].content emptied",
        "messages[2].content emptied",
        "messages[1].content[1] result added",
    ]


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"max_tokens": ...}, "max_tokens", "`max_tokens` is missing"),
        ({"messages": ...}, "messages", "`messages` is missing"),
        ({"messages": []}, "messages", "is empty"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "user, assistant"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]},
         "messages[0].content[0].text", "`messages[0].content[0].text` is missing"),
        ({"messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}]}]},
         "messages[0].content[0].source", "`messages[0].content[0].source`"),
        ({"system": [{"type": "image", "source": PIXEL}]}, "system[0].type", "prompt is text"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "sub"}},
         "tool_choice.name", "`tool_choice.name` is"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}, TOOL, TOOL]},
         "tools[2].name", "`tools[2].name` is"),
        ({"tools": [{"name": "x"}]}, "tools[0].input_schema", "`tools[0].input_schema` is missing"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens", "is missing"),
        ({"thinking": {"type": "sometimes"}}, "thinking.type", "must be one of"),
        ({"temperature": 3}, "temperature", "`temperature` must be from 0 to 2"),
        ({"stop_sequences": ["a", ""]}, "stop_sequences[1]", "`stop_sequences[1]` must not be"),
        ({"max_tokens": 0}, "max_tokens", "is 0"),
        ({"thinking": {"type": "adaptive", "display": {}}}, "thinking.display", "not an object"),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}},
         "tool_choice.disable_parallel_tool_use", "must be true or false"),
        ({"tools": [TOOL | {"defer_loading": "x"}]}, "tools[0].defer_loading", "must be true"),
    ],
)  # fmt: skip
def test_what_is_wrong_and_new_is_named(fields: dict[str, Any], param: str, words: str) -> None:
    told, message = refused(**fields)
    assert told == param
    assert words in message


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "search_result"}]}]},
         "messages[0].content[0].type", "Blocks are text, image"),
        ({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "x"},
            {"type": "document", "source": {"type": "base64", "data": "JVBERi0="}}]}]},
         "messages[0].content[1].source", "Documents are texts here"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}],
          "tool_choice": {"type": "tool", "name": "web_search"}},
         "tool_choice.name", "run elsewhere"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}], "tool_choice": {"type": "any"}},
         "tools", "None of these tools"),
    ],
)  # fmt: skip
def test_what_only_a_provider_of_this_api_takes(
    fields: dict[str, Any], param: str, words: str
) -> None:
    told, message = refused_elsewhere(**fields)
    assert told == param
    assert words in message


def test_built_in_tools_are_dropped_and_deferred_ones_wait_until_they_are_referred_to() -> None:
    late = {**TOOL, "name": "late", "defer_loading": True}
    other = {**TOOL, "name": "other", "defer_loading": True}
    tools = [{"type": "web_search_20250305", "name": "web_search"}, TOOL, late, other]
    parsed = read(tools=tools, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert [tool.name for tool in parsed.request.tools] == ["add"]
    assert parsed.request.parallel_tool_calls is False
    assert told(parsed) == ["tools[0] (web_search_20250305) dropped"]
    reference = {"type": "tool_reference", "tool_name": "late"}
    messages = [
        *HI,
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t", "name": "find", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": [reference]}]},
    ]  # fmt: skip
    parsed = read(tools=tools, messages=messages)
    assert [tool.name for tool in parsed.request.tools] == ["add", "late"]
    assert parsed.request.messages[2].content == "The tool late can be called now."
    none = read(tools=tools[:1], tool_choice={"type": "auto"})
    assert (none.request.tools, none.request.tool_choice) == ((), ToolChoice())


@pytest.mark.parametrize(
    ("choice", "read_as"),
    [
        ({"type": "auto"}, ToolChoice("auto")),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "none"}, ToolChoice("none")),
        ({"type": "tool", "name": "add"}, ToolChoice("required", ("add",))),
    ],
)
def test_choice_of_tools(choice: dict[str, str], read_as: ToolChoice) -> None:
    assert read(tools=[TOOL], tool_choice=choice).request.tool_choice == read_as


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({}, Thinking()),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}},
         Thinking(enabled=True, budget=2000)),
        ({"thinking": {"type": "disabled"}}, Thinking(enabled=False)),
        ({"thinking": {"type": "adaptive"}}, Thinking(adaptive=True)),
        ({"thinking": {"type": "adaptive", "display": "updates"},
          "output_config": {"effort": "high"}}, Thinking(effort="high", adaptive=True)),
        ({"output_config": {"effort": "low"}}, Thinking(effort="low")),
        ({"output_config": {"effort": "unheard"}}, Thinking()),
    ],
)  # fmt: skip
def test_thinking(fields: dict[str, Any], thinking: Thinking) -> None:
    assert read(**fields).request.thinking == thinking


def test_the_model_decides_without_parameters_that_it_may_lack() -> None:
    asked = read(thinking={"type": "adaptive"}, output_config={"effort": "high"}).request
    lacking = asked.without_hints(frozenset({"model", "messages", "max_tokens"}))
    assert "reasoning" not in lacking.params | lacking.document.keys()
    assert lacking.thinking == Thinking()
    assert lacking.changes == ("reasoning dropped",)
    demanded = read(thinking={"type": "enabled", "budget_tokens": 2000}).request
    assert demanded.without_hints(frozenset()) is demanded


def test_fields_that_agents_send_are_taken_and_named() -> None:
    fields = {
        "context_management": {"edits": []}, "mcp_servers": [], "service_tier": "auto",
        "metadata": {"user_id": "u", "more": 1, "none": None}, "thread": {"type": "create"},
        "output_config": {"task_budget": 7}, "invented": True, "n": 5,
        "response_format": {"type": "json_object"}, "cache_control": {"type": "ephemeral"},
    }  # fmt: skip
    parsed = read(headers={"anthropic-beta": "prompt-caching-1, new-thing-2"}, **fields)
    assert set(told(parsed)) == {
        "output_config.task_budget dropped", "metadata.more dropped", "n dropped",
        "response_format dropped", "anthropic-beta new-thing-2 dropped",
        "context_management dropped", "mcp_servers dropped", "invented dropped",
        "cache_control dropped",
    }  # fmt: skip
    assert (parsed.request.n, parsed.request.output) == (1, None)
    assert parsed.request.document["user"] == "u"
    strict = structs.replace(RULES, reject_unknown=True)
    with pytest.raises(InvalidRequest) as caught:
        read(strict, **fields)
    assert caught.value.param == "invented"
    assert told(read(metadata={"user_id": 7})) == ["metadata.user_id dropped"]
    assert told(read(metadata=7)) == ["metadata dropped"]
    known = {name: value for name, value in fields.items() if name not in ("invented", "n")}
    with pytest.raises(InvalidRequest) as caught:  # of another API
        read(strict, **known)
    assert caught.value.param == "response_format"
    del known["response_format"]
    assert read(strict, **known).request.strict is False


def test_formats_stops_and_sampling() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    request = read(
        output_config={"format": {"type": "json_schema", "schema": schema}},
        stop_sequences=["END"], top_k=5, top_p=0.5, temperature=0.5, min_p=0.1,
    ).request  # fmt: skip
    assert request.output == JsonSchema(schema)
    assert request.stop == ("END",)
    assert (request.sampling.top_k, request.sampling.min_p) == (5, 0.1)


def test_a_reply_that_was_begun_is_continued() -> None:
    begun = [*HI, {"role": "assistant", "content": "The best is ("}]
    assert read(messages=begun).request.continue_final_message
    called = [*HI, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "t", "name": "add", "input": {}}]}]  # fmt: skip
    assert not read(messages=called).request.continue_final_message


def test_a_document_of_text_is_text() -> None:
    block = {
        "type": "document", "title": "Rain", "source": {"type": "text", "data": "It rains."},
        "media_type": "text/plain", "context": {"no": "text"},
    }  # fmt: skip
    parsed = read(messages=[{"role": "user", "content": [block]}])
    assert parsed.request.messages[0].text == "<document>\ntitle: Rain\nIt rains.\n</document>"
    assert "the context of a document dropped" in told(parsed)


def test_thinking_comes_back_if_it_was_not_changed() -> None:
    def answer(*blocks: dict[str, Any]) -> ParsedRequest:
        said = {"type": "text", "text": "Hello."}
        return read(messages=[*HI, {"role": "assistant", "content": [*blocks, said]}, *HI])

    block = {"type": "thinking", "thinking": "Hm.", "signature": signed("Hm.")}
    parsed = answer(block)
    assert parsed.request.messages[1].reasoning_content == "Hm."
    assert told(parsed) == []
    assert parsed.request.native is not None
    assert parsed.request.native.unsealed is not None
    turns: Any = parsed.request.native.unsealed["messages"]
    assert turns[1]["content"] == [{"type": "text", "text": "Hello."}]
    assert parsed.request.native.left_out == ("messages[1].content[0] dropped",)

    for changed in ({**block, "thinking": "Hm!"}, {**block, "signature": ""}):
        parsed = answer(changed)
        assert parsed.request.messages[1].reasoning_content is None
        assert told(parsed) == ["messages[1].content[0] dropped"]

    kept = {"type": "thinking", "thinking": "", "signature": seal(SealedReasoning("Hm."))}
    assert answer(kept).request.messages[1].reasoning_content == "Hm."


def test_signatures_of_others_go_to_servers_that_know_them_alone() -> None:
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": "theirs"},
        {"type": "text", "text": "Hello."},
        {"type": "redacted_thinking", "data": "secret"},
    ]
    parsed = read(messages=[*HI, {"role": "assistant", "content": content}, *HI])
    assert not parsed.request.messages[1].reasoning_content
    messages: Any = parsed.request.document["messages"]
    assert messages[1]["reasoning_details"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "theirs",
         "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "secret", "format": "anthropic-claude-v1",
         "index": 2},
    ]  # fmt: skip
    assert parsed.request.native is not None
    turns: Any = parsed.request.native.body["messages"]
    assert turns[1]["content"] == content


def test_a_server_of_the_same_api_gets_all_of_it_back_when_a_request_is_translated() -> None:
    # As it is where a reply that another target began is continued there.
    called = [
        {"type": "thinking", "thinking": "So.", "signature": "theirs"},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}},
    ]
    result = {
        "type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text",
        "text": "No."}], "is_error": True, "cache_control": {"type": "ephemeral"},
    }  # fmt: skip
    messages = [
        *HI, {"role": "assistant", "content": called}, {"role": "user", "content": [result]},
    ]  # fmt: skip
    request = read(messages=messages, tools=[TOOL]).request
    sent = outgoing(structs.replace(request, native=None), DIALECTS["anthropic"], "m")
    body = msgspec.json.decode(sent.body)
    assert [turn["content"] for turn in body["messages"][1:]] == [called, [result]]
    others = outgoing(request, DIALECTS["vllm"], "m")
    assert {"messages.reasoning_details dropped", "messages[2].is_error dropped"} <= {
        *others.changes
    }


def test_a_thread_is_created_and_never_continued() -> None:
    with pytest.raises(NotFound) as caught:
        read(thread={"type": "continue", "previous_message_id": "msg_1"})
    assert (caught.value.status, caught.value.code) == (404, "thread_not_found")


def test_counting_needs_no_limit() -> None:
    assert read(structs.replace(RULES, counting=True), max_tokens=...).request.max_tokens is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"system": "Be brief."},
        {"stream": True, "temperature": 0.5, "top_p": 0.9},
        {"messages": [*HI, {"role": "assistant", "content": "Hello."}, *HI]},
    ],
)
def test_both_ways_of_reading_say_the_same(fields: dict[str, Any]) -> None:
    plain, slow = read(**fields), read(**fields, stop_sequences=[])
    assert plain.request.document == {
        name: value for name, value in slow.request.document.items() if name != "stop"
    }
    for path in ("messages[0].content", "messages[0]", "max_tokens"):
        assert plain.places.path(path) == slow.places.path(path)
    told = [(each.role, each.content) for each in plain.request.messages]
    assert told == [(each.role, each.content) for each in slow.request.messages]
    assert plain.request.params == slow.request.params - {"stop"}
    assert plain.request.sampling == slow.request.sampling
    assert (plain.request.stream, plain.reply) == (slow.request.stream, slow.reply)
