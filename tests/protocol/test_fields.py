"""Fields that go to providers: those that the dialect or the operator lists, and no others.

The list of what may go out is written here a second time, by hand.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import re
from collections.abc import Collection, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from casekit import each_of, examples
from faultkit import Fault, Reply, Upstream, upstream
from gatewaykit import gateway
from hostedkit import office
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from openai import AsyncOpenAI, BadRequestError
from servicekit import ServiceView, service_view

from causerie.errors import InvalidRequest
from causerie.protocol.known_fields import KNOWN, PRIVILEGES, privilege_of, sift, without_past
from causerie.protocol.parameters import ParsingRules
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing
from causerie.shapes.chat_completions.reader import parse

HELLO = [{"role": "user", "content": "Hello"}]
# Each with a value as somebody would send it who wants to gain by it.
GAINED: dict[str, Any] = {
    "models": ["dear/model"],
    "plugins": [{"id": "web", "engine": "exa"}],
    "service_tier": "priority",
    "provider": {"order": ["dear"], "allow_fallbacks": False},
    "route": "fallback",
    "preset": "mine",
    "max_new_tokens": 100_000,
    "max_output_tokens": 100_000,
    "priority": -1,
    "kv_transfer_params": {"remote_host": "10.0.0.9", "remote_port": 80},
    "vllm_xargs": {"a": "b"},
    "callback_url": "https://10.0.0.9/",
}
CONFIG = """
[[doors]]
name = "gateway"
kind = "gateway"
[[doors]]
name = "strict"
kind = "gateway"
unknown_params = "reject"
{doors}
[[providers]]
name = "there"
base_url = "{base_url}"
dialect = "{dialect}"
health = {{ path = "" }}
{more}
[[aliases]]
id = "fast"
targets = [{{ provider = "there", model = "m" }}]
"""


CHAT = [name for name, one in DIALECTS.items() if one.api.path == "/chat/completions"]


def configured(up: Upstream, dialect: str = "generic", more: str = "", doors: str = "") -> str:
    return CONFIG.format(base_url=up.base_url, dialect=dialect, more=more, doors=doors)


def changes(headers: Any) -> list[str]:
    """Return the changes that an answer reports."""
    text: str = headers.get("x-request-changes", "")
    return text.split(", ") if text else []


@pytest.mark.parametrize("dialect", CHAT)
async def test_nobody_gains_by_a_field_through_a_gateway(tmp_path: Path, dialect: str) -> None:
    async with upstream(Reply()) as up, service_view(tmp_path, configured(up, dialect)) as there:
        for name, value in GAINED.items():
            status, headers, _ = await there.ask("/gateway/v1", "fast", **{name: value})
            assert status == 200
            assert name not in up.requests[-1].body
            assert changes(headers) == [f"{name} dropped"]
            assert up.requests[-1].body["model"] == "m"
        streamed = await stream(there, "/gateway/v1", GAINED)
        assert set(changes(streamed)) == {f"{name} dropped" for name in GAINED}
        assert not up.requests[-1].body.keys() & GAINED.keys()


async def stream(there: ServiceView, base: str, fields: dict[str, Any]) -> Any:
    """The headers of a streamed answer."""
    body = {"model": "fast", "messages": HELLO, "stream": True, **fields}
    async with there.session.post(f"{there.root}{base}/chat/completions", json=body) as response:
        assert response.status == 200
        await response.read()
        return response.headers


async def test_nobody_gains_by_a_field_through_a_hosted_door(tmp_path: Path) -> None:
    doors = '[[doors]]\nname = "hosted"\nkind = "hosted"\n'
    store = f'[store]\nfolder = "{tmp_path}/data"\n'
    async with upstream(Reply()) as up:
        async with service_view(tmp_path, configured(up, doors=doors) + store) as there:
            async with office(tmp_path / "data") as opened:
                key = (await opened.key()).credential
            status, headers, _ = await there.ask("/hosted/v1", "fast", key, **GAINED)
            assert status == 200
        assert up.requests[-1].body.keys() == {"model", "messages", "stream", "stream_options"}
        assert set(changes(headers)) == {f"{name} dropped" for name in GAINED}


async def test_a_router_follows_preferences_itself_and_passes_none_on(tmp_path: Path) -> None:
    async with upstream(Reply()) as up, upstream(Reply()) as other:
        text = f"""
[[doors]]
name = "router"
kind = "router"
keys = "off"
[[providers]]
name = "north"
base_url = "{up.base_url}"
dialect = "openrouter"
health = {{ path = "" }}
[[providers]]
name = "south"
base_url = "{other.base_url}"
dialect = "openrouter"
health = {{ path = "" }}
[[catalog]]
id = "author/one"
[[catalog.endpoints]]
provider = "north"
model = "m"
price = {{ prompt = "1", completion = "1" }}
[[catalog.endpoints]]
provider = "south"
model = "m"
price = {{ prompt = "1", completion = "1" }}
"""
        async with service_view(tmp_path, text) as there:
            status, headers, answer = await there.ask(
                "/router/v1",
                None,
                models=["author/one"],
                provider={"only": ["south"], "require_parameters": False},
                route="fallback",
                transforms=[],
                plugins=[],
                usage={"include": True},
                seed=1,
                preset="x",
            )
            assert status == 200, answer
        assert not up.requests
        assert other.requests[-1].body == {
            "model": "m",
            "messages": [{"role": "user", "content": "Hi"}],
            "seed": 1,
            "provider": {"require_parameters": True},
        }
        assert "preset dropped" in changes(headers)


async def test_the_operator_lists_what_a_provider_gets(tmp_path: Path) -> None:
    more = (
        'passes = ["top_a", "mm_processor_kwargs", "messages.content.cache_control"]\n'
        'passes_privileged = ["service_tier", "plugins"]\n'
    )
    part = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    given = {
        "top_a": 0.1,
        "mm_processor_kwargs": {"fps": 2, "video_url": "https://10.0.0.9/", "n": [{"model": "x"}]},
        "messages": [{"role": "user", "content": [part]}],
        "service_tier": "priority",
        "plugins": [{"id": "web", "model": "y"}],
        "provider": {"order": ["a"]},
    }
    async with upstream(Reply()) as up, service_view(tmp_path, configured(up, more=more)) as there:
        status, headers, _ = await there.ask("/gateway/v1", "fast", **given)
        assert status == 200
        part["cache_control"] = {"type": "ephemeral"}
        assert up.requests[-1].body == {
            "model": "m",
            "top_a": 0.1,
            "mm_processor_kwargs": {"fps": 2, "n": [{}]},
            "messages": [{"role": "user", "content": [part]}],
            "service_tier": "priority",
            "plugins": [{"id": "web", "model": "y"}],
        }
        assert set(changes(headers)) == {
            "provider dropped",
            "mm_processor_kwargs.video_url dropped",
            "mm_processor_kwargs.n.model dropped",
            "messages[0].content.cache_control.ttl dropped",
        }


async def test_a_strict_door_and_a_strict_client_are_told_the_field(tmp_path: Path) -> None:
    more = 'passes = ["top_a"]\n'
    async with upstream(Reply()) as up, service_view(tmp_path, configured(up, more=more)) as there:
        url = f"{there.root}/gateway/v1/chat/completions"
        ask = {"model": "fast", "messages": [*HELLO, {"role": "user", "content": "", "x": 1}]}
        for base, headers in (("gateway", {"x-unknown-params": "reject"}), ("strict", {})):
            url = f"{there.root}/{base}/v1/chat/completions"
            async with there.session.post(url, json=ask, headers=headers) as response:
                error = (await response.json())["error"]
            assert (response.status, error["code"]) == (400, "unsupported_parameter")
            assert error["param"] == "messages[1].x"
        assert not up.requests
        status, _, _ = await there.ask("/strict/v1", "fast", top_a=0.1, foo=None)
        assert (status, up.requests[-1].body["top_a"]) == (200, 0.1)  # which is no unknown field


async def test_a_strict_request_goes_to_who_gets_the_field() -> None:
    async with (
        upstream(Reply()) as one,
        upstream(Reply()) as other,
        gateway(one.base_url, other.base_url, dialect=("openai", "llama-server")) as there,
    ):
        there.session.headers["x-unknown-params"] = "reject"
        answer = await there.plain(typical_p=0.9)
        assert (answer.status, answer.headers["x-served-by"]) == (200, "e1")
        assert not one.requests
        assert other.requests[-1].body["typical_p"] == 0.9


async def test_a_second_provider_gets_no_more_than_the_first() -> None:
    """Also where the first one fails, and where its reply breaks off and is continued."""
    for fault in (Fault.SERVER_ERROR, Fault.RESET_MID_STREAM):
        async with (
            upstream(fault) as one,
            upstream(Reply()) as other,
            gateway(one.base_url, other.base_url) as there,
        ):
            answer = await there.stream(**GAINED)
            assert answer.status == 200
            assert other.requests
            for request in (*one.requests, *other.requests):
                assert not request.body.keys() & GAINED.keys()


async def test_the_official_client_goes_on_working(tmp_path: Path) -> None:
    async with upstream(Reply()) as up, service_view(tmp_path, configured(up, "openai")) as there:
        base_url = f"{there.root}/gateway/v1"
        async with AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0) as client:
            ask = client.chat.completions.with_raw_response.create
            first = await ask(model="fast", messages=HELLO, extra_body={"odd": 1, "models": ["a"]})  # type: ignore[call-overload]  # plain
            reply = first.parse().choices[0].message
            assert reply.content
            assert set(changes(first.headers)) == {"odd dropped", "models dropped"}
            # What comes back of a reply: every field that its class has, most of them null.
            earlier = reply.model_dump() | {"annotations": []}
            second = await ask(model="fast", messages=[*HELLO, earlier, *HELLO])
            assert second.parse().choices[0].message.content
            assert changes(second.headers) == ["messages[1].annotations dropped"]
            assert up.requests[-1].body["messages"][1].keys() == {"role", "content", "refusal"}
            with pytest.raises(BadRequestError) as refused:
                await client.chat.completions.create(
                    model="fast",
                    messages=HELLO,  # type: ignore[arg-type]  # plain dicts
                    service_tier="priority",
                    extra_body={"models": ["a"]},
                    extra_headers={"x-unknown-params": "reject"},
                )
            assert refused.value.param == "models"


async def test_ten_thousand_fields_are_counted(tmp_path: Path) -> None:
    many = {f"field_{number}" + "x" * 100: number for number in range(10_000)}
    nested = [{"role": "user", "content": "Hi", **many}]
    async with upstream(Reply()) as up, service_view(tmp_path, configured(up)) as there:
        for fields in (many, {"messages": nested}):
            body = json.dumps({"model": "fast", "messages": HELLO} | fields).encode()
            url, kind = f"{there.root}/gateway/v1/chat/completions", "application/json"
            async with there.session.post(
                url, data=io.BytesIO(body), headers={"content-type": kind}
            ) as response:
                assert response.status == 200
                told = response.headers["x-request-changes"]
            assert len(told) < 2200
            assert re.search(r"\d+ more", told)
            assert up.requests[-1].body.keys() == {"model", "messages"}
            assert up.requests[-1].body["messages"][0].keys() == {"role", "content"}


@pytest.mark.parametrize("bare", ["SMUGGLED", ["SMUGGLED"], [[{"a": 1}, "SMUGGLED"]], 7])
def test_a_field_of_which_only_the_inside_is_listed_is_an_object(bare: object) -> None:
    dialect = DIALECTS["generic"].passing(("x.a",), ())
    for value, goes in ((bare, False), ({"a": 1, "b": 2}, True), ([{"a": 1}], True)):
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "x": value}
        request = parse(json.dumps(body).encode(), ParsingRules())
        out = outgoing(request, dialect, "theirs")
        assert ("x" in json.loads(out.body)) is goes
        assert b"SMUGGLED" not in out.body
        assert b'"b"' not in out.body
        if not goes:
            assert "x dropped" in out.changes
            with pytest.raises(InvalidRequest, match="x"):
                outgoing(structs.replace(request, strict=True), dialect, "theirs")


def test_long_names_cost_no_more_than_their_length() -> None:
    """A path is written for each field of a listed object, whose own name is a client's."""
    deep: dict[str, Any] = {"x" * 2**20: {f"k{number}": {"url": 1} for number in range(20_000)}}
    dialect = DIALECTS["generic"].passing(("a",), ())
    kept, unlisted = sift({"a": deep}, dialect.lists)
    assert unlisted is not None
    assert unlisted.more == 20_000 - len(unlisted.names)
    assert max(map(len, unlisted.names)) < 400
    assert len(msgspec.json.encode(unlisted.names)) < 20_000
    assert kept["a"].keys() == deep.keys()


async def test_no_header_of_a_client_reaches_a_provider(tmp_path: Path) -> None:
    sent = {
        "authorization": "Bearer mine", "openai-organization": "o", "x-title": "t",
        "http-referer": "https://a.example/", "anthropic-beta": "b", "x-custom": "c",
        "cookie": "a=b", "user-agent": "client/1", "x-session-id": "s", "forwarded": "for=1",
        "x-forwarded-host": "h",
    }  # fmt: skip
    async with upstream(Reply()) as up, service_view(tmp_path, configured(up)) as there:
        url = f"{there.root}/gateway/v1/chat/completions"
        ask = {"model": "fast", "messages": HELLO}
        async with there.session.post(url, json=ask, headers=sent) as response:
            assert response.status == 200
        assert up.requests[-1].headers.keys() == {
            "host", "content-length", "content-type", "accept"
        } | (up.requests[-1].headers.keys() & {"accept-encoding", "user-agent"})  # fmt: skip
        assert "client/1" not in up.requests[-1].headers.values()


def test_privileged_names_are_known_however_they_are_written() -> None:
    for name in (
        "callbackURL", "callback-url", "Callback_Url", "baseUrl", "api_base", "apiKey",
        "webhookUrl", "server_url", "remote_host", "remoteHost", "http_proxy", "imageurl",
        "MODELS", "modelId",
        "serviceTier", "max-new-tokens", "vllm_xargs", "extra_headers", "mcpServers",
    ):  # fmt: skip
        assert privilege_of(name) in PRIVILEGES, name
    for name in ("top_a", "skip_special_tokens", "repeat_penalty", "typical_p", "safe_prompt"):
        assert privilege_of(name) is None, name
    for dialect in DIALECTS.values():
        assert not [path for path in dialect.knows if privilege_of(path.rpartition(".")[2])]
        assert not dialect.privileged


# What may stand where, and what a client can put in its place.
PLACES: dict[tuple[str, ...], frozenset[str]] = {
    (): frozenset({"model", "messages", "tools", "tool_choice", "response_format", "stream"}),
    ("messages",): frozenset(
        {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "reasoning_details"}
    ),
    ("messages", "content"): frozenset({"type", "text", "image_url", "refusal"}),
    ("messages", "content", "image_url"): frozenset({"url", "detail"}),
    ("messages", "tool_calls"): frozenset({"id", "type", "function", "index", "extra_content"}),
    ("messages", "tool_calls", "function"): frozenset({"name", "arguments"}),
    ("tools",): frozenset({"type", "function"}),
    ("tools", "function"): frozenset({"name", "description", "parameters", "strict"}),
    ("tool_choice",): frozenset({"type", "function", "allowed_tools"}),
    ("tool_choice", "function"): frozenset({"name"}),
    ("tool_choice", "allowed_tools"): frozenset({"mode", "tools"}),
    ("tool_choice", "allowed_tools", "tools"): frozenset({"type", "function"}),
    ("response_format",): frozenset({"type", "json_schema", "schema"}),
    ("response_format", "json_schema"): frozenset({"name", "description", "schema", "strict"}),
    ("stream_options",): frozenset({"include_usage", "include_obfuscation"}),
    ("prediction",): frozenset({"type", "content"}),
}
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"url": {}}}}
BASE: dict[str, Any] = {
    "model": "ours",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [
            {"type": "text", "text": "Hi"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        ]},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "done"},
        {"role": "user", "content": "And?"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "prediction": {"type": "content", "content": "x"},
    "max_tokens": 5,
}  # fmt: skip
NAMES = sorted(
    {*GAINED, "cache_control", "server_url", "base_url", "file_url", "file_id", "input_file", "mcp",
     "web_search", "web_search_preview", "code_interpreter", "url", "host", "top_a", "thinking",
     "enable_thinking", "prefix", "audio", "annotations", "safe_prompt", "usage", "typical_p",
     "skip_special_tokens", "random_seed", "repeat_penalty", "speed", "messages", "tools", "name",
     "reasoning_details", "role", "x", "", "a.b", "a[0]", "model", "functions"}
)  # fmt: skip
MARK = "SMUGGLED"


def places(
    value: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """The objects of a body whose fields are listed, with their paths."""
    if isinstance(value, list):
        for each in value:
            yield from places(each, path)
    if isinstance(value, dict) and path in PLACES:
        yield value, path
        for name, each in value.items():
            yield from places(each, (*path, name))


def smuggled(chance: random.Random, names: Collection[str]) -> tuple[dict[str, Any], set[str]]:
    """A request with fields that are in no list, at any depth; and their paths."""
    body = deepcopy(BASE)
    if chance.random() < 0.4:
        named = {"type": "function", "function": {"name": "f"}}
        allowed = {"mode": "auto", "tools": [deepcopy(named)]}
        several = {"type": "allowed_tools", "allowed_tools": allowed}
        body["tool_choice"] = chance.choice([named, several, "auto"])
    elif chance.random() < 0.4:
        schema = {"name": "s", "schema": {"type": "object"}}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    every = list(places(body))
    added: set[str] = set()
    for _ in range(chance.randint(1, 6)):
        place, path = chance.choice(every)
        name = chance.choice(list(names))
        if name in PLACES[path] or name in place or (not path and name in KNOWN.fields):
            continue
        place[name] = chance.choice(
            [MARK, [MARK], {name: MARK}, {"a": [{"url": MARK, "b": MARK}]}, [[{"c": MARK}]]]
        )
        added.add(".".join((*path, name)))
    return body, added


def fields(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of a body, by its path without the places in arrays, and its value."""
    if isinstance(value, list):
        for each in value:
            yield from fields(each, path)
    if isinstance(value, dict):
        for name, each in value.items():
            below = f"{path}.{name}" if path else name
            yield below, each
            yield from fields(each, below)


def check(body: Any, listed: Collection[str], privileged: Collection[str] = ()) -> None:
    """Fail where a body has what is in no list."""
    for path, value in fields(body):
        if value != MARK and not (isinstance(value, list) and MARK in value):
            continue
        inside = [one for one in listed if path == one or path.startswith(f"{one}.")]
        allowed = [one for one in privileged if path == one or path.startswith(f"{one}.")]
        assert inside or allowed, path
        if not allowed and inside:
            assert not [part for part in path[len(inside[0]) :].split(".") if privilege_of(part)]


PASSED = [
    "top_a", "x", "x.a", "messages.x", "tools.function.cache_control", "messages.content.x", *GAINED
]  # fmt: skip
KEYS = st.sampled_from(["messages", "content", "image_url", "url", "tools", "a"])
NAME = st.sampled_from(NAMES) | st.text(max_size=8)


@settings(max_examples=examples(400), deadline=None)
@given(
    chance=st.randoms(use_true_random=False),
    names=st.lists(NAME, min_size=1, max_size=12),
    dialect=st.sampled_from(list(DIALECTS.values())),
    passes=st.sets(
        st.sampled_from(PASSED),
        max_size=4,
    ),
    privileged=st.sets(st.sampled_from(sorted(GAINED)), max_size=2),
)
def test_what_a_provider_gets_is_listed(
    chance: random.Random,
    names: list[str],
    dialect: Dialect,
    passes: set[str],
    privileged: set[str],
) -> None:
    body, added = smuggled(chance, names)
    dialect = dialect.passing(passes, privileged)
    raw = json.dumps(body).encode()
    try:
        out = outgoing(parse(raw, ParsingRules(reasoning_object=True)), dialect, "theirs")
    except InvalidRequest:  # nothing has been sent
        return
    listed = {path for path in passes if path not in GAINED} | dialect.knows
    got = json.loads(out.body)
    check(got, listed, privileged)
    for path in added:  # what is not there is named
        if path.partition(".")[0] in got and MARK in out.body.decode():
            continue
        assert any(change.endswith("dropped") for change in out.changes), path
    assert got["model"] == "theirs"
    strict = structs.replace(parse(raw, ParsingRules(reasoning_object=True)), strict=True)
    _, unlisted = sift(without_past(body), dialect.lists)
    if unlisted is not None and unlisted.names:
        with pytest.raises(InvalidRequest) as insisted:
            outgoing(strict, dialect, "theirs")
        param = insisted.value.param or ""
        assert any(param.endswith(name.rpartition(".")[2]) for name in unlisted.names)


@each_of("dialect", ["generic", "openai", "vllm", "openrouter", "llama-server"])
async def test_what_a_provider_gets_is_listed_through_a_gateway(dialect: str) -> None:
    chance, answered = random.Random(dialect), 0
    async with upstream(Reply()) as up, gateway(up.base_url, dialect=dialect) as there:
        for _ in range(60):
            body, _ = smuggled(chance, NAMES)
            url = f"{there.root}/chat/completions"
            async with there.session.post(url, json=body | {"model": "m"}) as response:
                await response.read()
                answered += response.status == 200
        for request in up.requests:
            check(request.body, DIALECTS[dialect].knows)
    assert answered > 30


@each_of("dialect", DIALECTS)
def test_only_an_assistants_message_has_what_assistants_say(dialect: str) -> None:
    said = {"tool_calls": [], "reasoning": "r", "reasoning_details": [{"url": "https://10.0.0.9"}]}
    messages = [{"role": "user", "content": "Hi"} | said, {"role": "system", "content": ""} | said]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    out = outgoing(parse(body, ParsingRules()), DIALECTS[dialect], "theirs")
    for message in json.loads(out.body)["messages"]:
        assert message.keys() == {"role", "content"}
    assert "messages.reasoning_details dropped" in out.changes


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
        max_leaves=20,
    )
)
def test_sifting_takes_from_a_body_and_adds_nothing(value: Any) -> None:
    body = value if isinstance(value, dict) else {"messages": value}
    before = deepcopy(body)
    kept, unlisted = sift(body, KNOWN)
    assert body == before
    assert (unlisted is None) == (kept == body)
    assert sift(kept, KNOWN) == (kept, None)
    assert {path for path, _ in fields(kept)} <= {path for path, _ in fields(body)}


async def test_a_provider_behind_the_quick_way_gets_no_more() -> None:
    """A request of the most usual kind with one field more is read the careful way."""
    async with upstream(Reply()) as up, gateway(up.base_url, dialect="generic") as there:
        await asyncio.gather(*(there.plain(**{name: GAINED[name]}) for name in GAINED))
        assert len(up.requests) == len(GAINED)
        for request in up.requests:
            assert request.body.keys() == {"model", "messages", "max_tokens"}


@pytest.mark.parametrize("dialect", ["generic", "vllm", "sglang", "llama-server"])
def test_a_template_gets_its_own_arguments_and_the_renderer_none(dialect: str) -> None:
    own = {"enable_thinking": True, "thinking": True, "custom": {"tools": [1]}}
    taken = {"chat_template": "{{ 1 }}", "tokenize": False, "tokenizer": "x", "tools": [], "a": 1}
    body = {"model": "m", "messages": HELLO, "chat_template_kwargs": own | taken}
    out = outgoing(parse(json.dumps(body).encode(), ParsingRules()), DIALECTS[dialect], "theirs")
    assert json.loads(out.body)["chat_template_kwargs"] == own | {"a": 1}
    assert set(out.changes) == {
        f"chat_template_kwargs.{name} dropped" for name in taken if name != "a"
    }


@each_of("dialect", ["generic", "openai", "mistral"])
@each_of("odd", [{"tags": ["a"]}, {"a": 1}, {"a": {"url": "x"}}, ["a"]])
def test_metadata_is_of_strings(dialect: str, odd: Any) -> None:
    for metadata, told in (({"a": "b"}, ()), (odd, ("metadata dropped",))):
        body = {"model": "m", "messages": HELLO, "metadata": metadata}
        out = outgoing(
            parse(json.dumps(body).encode(), ParsingRules()), DIALECTS[dialect], "theirs"
        )
        assert out.changes == told
        assert ("metadata" in json.loads(out.body)) == (not told)


IDS = {"$id": "https://example.org/tree", "properties": {"next": {"$ref": "tree"}}}


@each_of(
    ("schema", "fine"),
    [
        ({"$ref": "#/$defs/a", "$defs": {"a": {}}}, True),
        (IDS, True),
        ({"properties": {"a": {"$ref": "https://example.org/tree"}, "b": IDS}}, True),
        ({"properties": {"$ref": {"type": "string"}}}, True),
        ({"enum": [{"$ref": "https://10.0.0.9/"}], "default": {"$ref": "http://a/"}}, True),
        ({"description": 'see "$ref": "http://10.0.0.9/"'}, True),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema"}, True),
        ({"$ref": "http://10.0.0.9/a.json"}, False),
        ({"items": {"anyOf": [{"\u0024ref": "file:///etc/passwd"}]}}, False),
        ({"properties": {"a": {"$dynamicRef": "//10.0.0.9/"}}}, False),
        ({"$recursiveRef": "other.json#/a"}, False),
        ({"$id": "http://10.0.0.9/a", "$ref": "b"}, False),
        ({"$ref": "https://[/"}, False),
        ({"$defs": {"const": 1, "x": [[{"$ref": "http://a/"}]]}}, False),
    ],
)
@each_of("dialect", ["generic", "openai", "vllm"])
def test_no_schema_makes_a_provider_fetch_another(
    dialect: str, schema: dict[str, Any], fine: bool
) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    shape = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    for more, param in (
        ({"tools": tools}, "tools[0].function.parameters"),
        ({"response_format": shape}, "response_format.json_schema.schema"),
    ):
        raw = json.dumps({"model": "m", "messages": HELLO, **more}).encode()
        if fine:
            assert outgoing(parse(raw, ParsingRules()), DIALECTS[dialect], "theirs").body
            continue
        with pytest.raises(InvalidRequest) as refused:
            outgoing(parse(raw, ParsingRules()), DIALECTS[dialect], "theirs")
        assert (refused.value.code, refused.value.param) == ("unsupported_schema", param)


NESTED: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "S"}]},
        {"role": "user", "content": [
            {"type": "text", "text": "Look."},
            {"type": "image_url", "image_url": {"url": "https://host.example/a.png"}},
        ]},
        {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "1"}]},
    ],
    "stream": True,
    "stream_options": {"include_usage": True},
    "tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {
        "mode": "auto", "tools": [{"type": "function", "function": {"name": "look"}}],
    }},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    "reasoning": {"effort": "low"},
    "usage": {"include": True},
    "provider": {"sort": {"by": "price"}, "max_price": {"prompt": 1}},
}  # fmt: skip
OPEN_OBJECTS = ("parameters", "schema", "json", "chat_template_kwargs", "metadata", "logit_bias")


def objects_in(value: Any, path: str = "") -> Iterator[str]:
    """Every object of the interface in a body, by its path; not those that a client defines."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from objects_in(each, f"{path}[{index}]")
    elif isinstance(value, dict):
        yield path
        for name, each in value.items():
            if name not in OPEN_OBJECTS:
                yield from objects_in(each, f"{path}.{name}" if path else name)


def at(body: Any, path: str) -> dict[str, Any]:
    for step in re.findall(r"[^.\[\]]+", path):
        body = body[int(step) if step.isdigit() else step]
    found: dict[str, Any] = body
    return found


STRUCTURED: dict[str, Any] = {
    "model": "m",
    "messages": HELLO,
    "structured_outputs": {"regex": "a+"},
}


@each_of(
    ("body", "path"),
    [(body, path) for body in (NESTED, STRUCTURED) for path in objects_in(body)],
)
def test_unknown_fields_of_every_object_follow_one_rule(body: dict[str, Any], path: str) -> None:
    """Dropped and named, or refused by name where that is asked for."""
    sent = deepcopy(body)
    at(sent, path)["zz_new"] = {"a": [1]}
    place = f"{path}.zz_new" if path else "zz_new"
    rules = ParsingRules(router=True, reasoning_object=True)
    request = parse(json.dumps(sent).encode(), rules)
    dropped = request.unlisted.changes if request.unlisted is not None else ()
    named = [*dropped, *request.changes]
    assert [re.sub(r"\[\d+\]", "", each) for each in named] == [
        re.sub(r"\[\d+\]", "", f"{place} dropped")
    ]
    strict = structs.replace(rules, reject_unknown=True)
    if path.startswith("messages") and body is NESTED:  # all of them are past
        assert parse(json.dumps(sent).encode(), strict).strict
        return
    with pytest.raises(InvalidRequest) as refused:
        outgoing(parse(json.dumps(sent).encode(), strict), DIALECTS["generic"], "m", None)
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", place)
