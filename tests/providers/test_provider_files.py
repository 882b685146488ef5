"""What only a provider of the client's API reads: it gets it unchanged, all others refuse it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from chatkit import Unchecked
from faultkit import Reply, upstream
from gatewaykit import Gateway, gateway

from causerie.chat.chat import TextChat
from causerie.engines.registry import FakeEngine
from causerie.errors import InvalidRequest
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest, prompt_estimate
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing
from causerie.shapes.chat_completions.reader import CHAT_COMPLETIONS
from causerie.shapes.messages.reader import MESSAGES
from causerie.shapes.responses.reader import RESPONSES
from causerie.shapes.shape import Shape

Body = dict[str, Any]
PDF = "JVBERi0xLjcKJcOkw7zDtsOf"
SHAPES: Mapping[str, Shape] = {"responses": RESPONSES, "messages": MESSAGES}
NATIVE = {"responses": "openai", "messages": "anthropic"}
TEXTS = {
    "responses": {"type": "input_text", "text": "Sum it up."},
    "messages": {"type": "text", "text": "Sum it up."},
}
SEARCH = {
    "responses": {"type": "web_search", "filters": {"allowed_domains": ["a.example"]}},
    "messages": {"type": "web_search_20260209", "name": "web_search", "max_uses": 2},
}


def asked(shape: str, *parts: Body, **fields: Any) -> Body:
    """A request whose only message has a text and these parts."""
    turns = [{"role": "user", "content": [TEXTS[shape], *parts]}]
    if shape == "messages":
        return {"model": "m", "max_tokens": 50, "messages": turns, **fields}
    return {"model": "m", "max_output_tokens": 50, "input": turns, **fields}


def read(shape: str, body: Body) -> ChatRequest:
    """The request as its reader leaves it."""
    return SHAPES[shape].parse(msgspec.json.encode(body), ParsingRules(), {}).request


def document(**source: str) -> Body:
    return {"type": "document", "source": source, "title": "é", "citations": {"enabled": True}}


CASES: Mapping[str, tuple[str, Body, str]] = {
    "a file": (
        "responses",
        asked("responses", {"type": "input_file", "filename": "a.pdf",
                            "file_data": f"data:application/pdf;base64,{PDF}"}),
        "input[0].content[1].type",
    ),
    "a file elsewhere": (
        "responses",
        asked("responses", {"type": "input_file", "file_url": "https://a.example/b.pdf"}),
        "input[0].content[1].type",
    ),
    "an image that is kept there": (
        "responses",
        asked("responses", {"type": "input_image", "file_id": "file-1", "detail": "high"}),
        "input[0].content[1].file_id",
    ),
    "a part of another type": (
        "responses",
        asked("responses", {"type": "input_audio", "input_audio": {"data": "UklG"}}),
        "input[0].content[1].type",
    ),
    "a search demanded": (
        "responses",
        asked("responses", tools=[SEARCH["responses"]], tool_choice={"type": "web_search"}),
        "tool_choice.type",
    ),
    "a document": (
        "messages",
        asked("messages", document(type="base64", media_type="application/pdf", data=PDF)),
        "messages[0].content[1].source",
    ),
    "a document behind a system prompt": (
        "messages",
        asked("messages", document(type="url", url="https://a.example/b.pdf"), system="Be brief."),
        "messages[0].content[1].source",
    ),
    "an image of the files there": (
        "messages",
        asked("messages", {"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
        "messages[0].content[1].source",
    ),
    "a block of another type": (
        "messages",
        asked("messages", {"type": "search_result", "source": "a", "title": "b", "content": []}),
        "messages[0].content[1].type",
    ),
    "a named search": (
        "messages",
        asked("messages", tools=[SEARCH["messages"]],
              tool_choice={"type": "tool", "name": "web_search"}),
        "tool_choice.name",
    ),
}  # fmt: skip
each_case = pytest.mark.parametrize(("shape", "body", "param"), CASES.values(), ids=CASES)


async def _post(there: Gateway, path: str, body: Body) -> tuple[int, Mapping[str, str], Any]:
    async with there.session.post(f"{there.root}/{path}", json=body) as response:
        return response.status, response.headers, await response.json()


@each_case
@pytest.mark.parametrize("native_first", [True, False])
async def test_a_provider_of_the_same_api_gets_it_unchanged(
    shape: str, body: Body, param: str, native_first: bool
) -> None:
    async with upstream(Reply()) as native, upstream(Reply()) as other:
        targets = [(native.base_url, NATIVE[shape]), (other.base_url, "generic")]
        urls, dialects = zip(*targets[:: 1 if native_first else -1], strict=True)
        async with gateway(*urls, dialect=dialects) as there:
            status, headers, answer = await _post(there, shape, body)
    assert status == 200, answer
    assert headers["x-served-by"] == ("e0" if native_first else "e1")
    assert "x-request-changes" not in headers
    sent = {**body, "store": False} if shape == "responses" else body
    assert native.requests[0].path.endswith(f"/{shape}")
    assert native.requests[0].body == sent
    for name in ("input", "messages", "tools"):
        assert name not in body or msgspec.json.encode(body[name]) in native.requests[0].raw
    assert not other.requests


@each_case
async def test_where_no_provider_speaks_the_api_it_is_refused(
    shape: str, body: Body, param: str
) -> None:
    async with upstream(Reply()) as other, gateway(other.base_url, dialect="generic") as there:
        for more in ({}, {"stream": True}):
            status, _, answer = await _post(there, shape, body | more)
            assert (status, other.requests) == (400, [])
            error = answer["error"]
            assert f"`{param}` is not supported here." in error["message"]
            assert param == (error["details"] if shape == "messages" else error)["param"]


@each_case
async def test_a_model_of_ours_refuses_it(shape: str, body: Body, param: str) -> None:
    chat, request = TextChat(FakeEngine("m"), Unchecked()), read(shape, body)
    with pytest.raises(InvalidRequest) as refused:
        async with chat.generate(request):
            pytest.fail("it was accepted")
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", param)
    with pytest.raises(InvalidRequest):
        await chat.count_tokens(request)


@pytest.mark.parametrize("shape", SHAPES)
async def test_tokens_are_counted_where_it_can_be_read(shape: str) -> None:
    body = CASES["a file" if shape == "responses" else "a document"][1]
    path = SHAPES[shape].counting.removeprefix("/")
    async with upstream(Reply()) as native, upstream(Reply()) as other:
        async with gateway(
            other.base_url, native.base_url, dialect=("generic", NATIVE[shape])
        ) as there:
            status, _, answer = await _post(there, path, body)
            assert status == 200
            assert answer["input_tokens"] == prompt_estimate(read(shape, body))  # it cannot count
        async with gateway(other.base_url, dialect="generic") as there:
            status, _, _ = await _post(there, path, body)
            assert status == 400
    assert not other.requests


@pytest.mark.parametrize(
    ("shape", "part", "param"),
    [
        ("responses", {"type": "input_file", "file_url": "https://10.0.0.1/a.pdf"},
         "input[0].content[1].file_url"),
        ("messages", document(type="url", url="https://intranet/a.pdf"),
         "messages[0].content[1].source.url"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("past", [False, True])
async def test_addresses_inside_a_network_are_refused(
    shape: str, part: Body, param: str, past: bool
) -> None:
    body = asked(shape, part, **({"system": "Be brief."} if shape == "messages" else {}))
    if past:
        _let_go_by(shape, body)
    await _is_refused(shape, body, param)


def _let_go_by(shape: str, body: Body) -> None:
    body["input" if shape == "responses" else "messages"] += [
        {"role": "assistant", "content": "So?"},
        {"role": "user", "content": "Go on."},
    ]


@pytest.mark.parametrize(
    ("shape", "part", "param"),
    [
        ("responses", {"type": "input_image", "image_url": "http://10.0.0.1/a.png"},
         "input[0].content[1].image_url"),
        ("messages", {"type": "image", "source": {"type": "url", "url": "http://10.0.0.1/a.png"}},
         "messages[0].content[1].source.url"),
        ("messages",
         document(type="content",
                  content=[{"type": "image", "source": {"type": "url", "url": "ftp://a/b"}}]),
         "messages[0].content[1].source.content[0].source.url"),
    ],
)  # fmt: skip
async def test_images_of_the_past_that_others_drop_are_checked_where_they_pass(
    shape: str, part: Any, param: str
) -> None:
    body = asked(shape, part)
    _let_go_by(shape, body)
    await _is_refused(shape, body, param)


async def test_addresses_deep_in_items_that_only_that_provider_reads_are_checked() -> None:
    seen = {"type": "computer_screenshot", "image_url": "https://10.0.0.1/a.png"}
    body = asked("responses")
    body["input"].insert(0, {"type": "computer_call_output", "call_id": "c", "output": seen})
    await _is_refused("responses", body, "input[0].output.image_url")


async def _is_refused(shape: str, body: Body, param: str) -> None:
    async with (
        upstream(Reply()) as native,
        gateway(native.base_url, dialect=NATIVE[shape]) as there,
    ):
        status, _, answer = await _post(there, shape, body)
        assert (status, native.requests) == (400, [])
    error = answer["error"]
    assert param == (error["details"] if shape == "messages" else error)["param"]
    words = r"(names a host inside a network|is no `https://` address of plainly one host)"
    assert re.match(f"`{re.escape(param)}` {words}", error["message"])


@pytest.mark.parametrize(
    ("shape", "part"),
    [
        ("responses", {"type": "input_file", "filename": "a.pdf", "file_data": "A" * 40_000}),
        ("messages", document(type="base64", media_type="application/pdf", data="A" * 40_000)),
    ],
)
def test_the_estimate_counts_it_by_its_size(shape: str, part: Body) -> None:
    plain = prompt_estimate(read(shape, asked(shape)))
    assert 10_000 < prompt_estimate(read(shape, asked(shape, part))) - plain < 10_100
    past = asked(shape, part)
    past["input" if shape == "responses" else "messages"] += [{"role": "user", "content": "Go on."}]
    assert prompt_estimate(read(shape, past)) - plain > 10_000
    large = msgspec.json.decode(msgspec.json.encode(part).replace(b"A" * 40_000, b"A" * 400_000))
    assert prompt_estimate(read(shape, asked(shape, large, large))) - plain == 2 * 32_768


@pytest.mark.parametrize(
    ("shape", "part", "tokens"),
    [
        ("responses", {"type": "input_file", "file_id": "file-1"}, 32_768),
        ("responses", {"type": "input_file", "file_url": "https://a.example/b.pdf"}, 32_768),
        ("responses", {"type": "input_image", "file_id": "file-1"}, 1024),
        ("messages", document(type="file", file_id="file_1"), 32_768),
        ("messages", document(type="url", url="https://a.example/b.pdf"), 32_768),
        ("messages", {"type": "image", "source": {"type": "file", "file_id": "file_1"}}, 1024),
    ],
)
def test_what_is_kept_elsewhere_counts_as_the_most_that_it_may(
    shape: str, part: Body, tokens: int
) -> None:
    plain = prompt_estimate(read(shape, asked(shape)))
    assert prompt_estimate(read(shape, asked(shape, part))) - plain == tokens


@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_router_reads_itself_is_not_sent_and_not_named(shape: str) -> None:
    fields = {"models": ["m", "other"], "provider": {"order": ["first"]}, "top_p": 0.5}
    body = msgspec.json.encode(asked(shape, **fields))
    request = SHAPES[shape].parse(body, ParsingRules(router=True), {}).request
    sent = outgoing(request, DIALECTS[NATIVE[shape]], "theirs")
    assert list(sent.changes) == []
    assert {*msgspec.json.decode(sent.body)} == {*asked(shape), "top_p"} | (
        {"store"} if shape == "responses" else set()
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_an_unknown_field_of_a_strict_request_is_refused(shape: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        body = msgspec.json.encode(asked(shape, invented=1))
        request = SHAPES[shape].parse(body, ParsingRules(reject_unknown=True), {}).request
        outgoing(request, DIALECTS[NATIVE[shape]], "theirs")
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", "invented")


@pytest.mark.parametrize("shape", SHAPES)
def test_half_a_character_of_the_past_goes_out_repaired(shape: str) -> None:
    body = asked(shape)
    body["input" if shape == "responses" else "messages"].insert(
        0, {"role": "assistant", "content": "a!"}
    )
    data = msgspec.json.encode(body).replace(b"a!", b"a\\ud83d")
    request = SHAPES[shape].parse(data, ParsingRules(), {}).request
    sent = outgoing(request, DIALECTS[NATIVE[shape]], "theirs").body
    assert "a\ufffd".encode() in sent


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.mark.parametrize("dialect", ["openai", "causerie", "anthropic"])
def test_images_in_results_of_tools_go_to_providers_that_take_them(dialect: str) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    parts = [{"type": "text", "text": "It:"}, IMAGE]
    elsewhere = {"type": "image_url", "image_url": {"url": "https://a.example/a.png"}}
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": [*parts, elsewhere]},
    ]
    body = msgspec.json.encode({"model": "m", "messages": messages, "max_tokens": 5})
    request = CHAT_COMPLETIONS.parse(body, ParsingRules(), {}).request
    sent = outgoing(request, DIALECTS[dialect], "theirs")
    assert (b"iVBORw0KGgo=" in sent.body) == (dialect != "openai")
    told = ["messages[2].content[1] dropped"] * (dialect == "openai")
    assert [one for one in sent.changes if "content" in one] == told
    assert list(request.changes) == ["messages[2].content[2] dropped"]  # by nobody fetched
    if dialect == "anthropic":
        [result] = msgspec.json.decode(sent.body)["messages"][-1]["content"]
        assert [block["type"] for block in result["content"]] == ["text", "image"]
