"""What `/docs` shows is the whole document, and leads nowhere but to itself."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from casekit import each_of
from frontkit import Front, front
from markupsafe import Markup

from causerie.http.openapi import document
from causerie.http.pages.docs import bounds, fields, operations, reachable
from causerie.settings.tree import ServerSettings

DOCUMENT: Any = document(4096)


def test_every_operation_is_there_and_each_object_leads_on() -> None:
    found = operations(DOCUMENT)
    paths = DOCUMENT["paths"]
    assert {(each.base + each.path, each.method) for each in found} == {
        (path, method.upper()) for path, methods in paths.items() for method in methods
    }
    assert len({each.id for each in found}) == len(found)
    schemas = DOCUMENT["components"]["schemas"]
    assert reachable([each.described for each in found], schemas) == set(schemas)
    [chat] = (each for each in found if each.id == "createChatCompletion")
    assert chat.key == "optional"
    shown = {name: each for _, group in chat.body for each in group for name in each.names}
    assert set(shown) == set(schemas["ChatRequest"]["properties"])
    assert all(each.text for each in shown.values())
    top_p, messages, user = shown["top_p"], shown["messages"], shown["user"]
    assert (top_p.kind, top_p.bounds, top_p.default) == (
        "number",
        "above 0 to 1",
        "the model's, else 1",
    )
    assert (messages.required, messages.bounds) == (True, "up to 4,096 items")
    assert {"user", "metadata", "verbosity"} <= set(user.names)


def test_a_refusal_is_described_once_and_a_body_by_its_differences() -> None:
    found = {each.id: each for each in operations(DOCUMENT)}
    meanings: dict[str, object] = {}
    for each in found.values():
        errors = dict(each.responses(errors=True))
        assert not errors.keys() & dict(each.responses(errors=False)).keys()
        for status, error in errors.items():
            assert meanings.setdefault(status, error) == error
    health = found["showHealth"].responses(errors=False)
    assert [status for status, _ in health] == ["200", "503"]  # no refusal: it is a health
    routed = found["routerCreateChatCompletion"]
    assert routed.like == "createChatCompletion"
    names = {name for _, group in routed.body for each in group for name in each.names}
    assert {"model", "models", "provider", "route"} <= names
    assert "temperature" not in names


def test_objects_are_those_that_operations_lead_to() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    found: dict[str, set[str]] = {}
    for each in operations(DOCUMENT):
        for name in reachable(each.described, schemas):
            found.setdefault(name, set()).add(each.base)
    assert found["SystemMessage"] == {"/v1", "/router/v1"}
    assert found["RouterEndpoint"] == {"/router/v1"}
    assert found["EngineHealth"] == {""}


@each_of(
    ("schema", "words"),
    [
        ({"minimum": 0, "maximum": 2}, "0 to 2"),
        ({"exclusiveMinimum": 0, "maximum": 1}, "above 0 to 1"),
        ({"exclusiveMinimum": 0}, "above 0"),
        ({"minimum": 1, "maximum": 2**31 - 1}, "1 or more"),
        ({"minimum": -(2**63), "maximum": 7.5}, "at most 7.5"),
        ({"minimum": -(2**63), "maximum": 2**63}, ""),
        ({"maxLength": 0}, "no characters"),
        ({"maxItems": 1}, "up to 1 item"),
        ({"minItems": 2}, "2 items or more"),
        ({"maxLength": 4096, "pattern": "^a"}, "up to 4,096 characters, matching ^a"),
    ],
)
def test_bounds_are_a_few_words(schema: dict[str, object], words: str) -> None:
    assert bounds(schema) == words


def test_a_pattern_or_name_is_never_markup() -> None:
    [field] = fields({"properties": {"<b>": {"type": "string", "pattern": "<i>"}}})
    assert (field.names, field.kind, field.bounds) == (("<b>",), "string", "matching <i>")
    assert not isinstance(field.bounds, Markup)
    assert not isinstance(field.names[0], Markup)


async def _get(shown: Front, path: str, method: str = "GET") -> tuple[aiohttp.ClientResponse, str]:
    async with aiohttp.ClientSession() as http, http.request(method, shown.root + path) as reply:
        return reply, await reply.text(errors="replace")


@pytest.fixture
async def shown() -> AsyncIterator[Front]:
    async with front() as found:
        yield found


async def test_the_page_stands_by_itself(shown: Front) -> None:
    reply, text = await _get(shown, "/docs")
    assert reply.content_type == "text/html"
    assert "connect-src 'self'" in reply.headers["content-security-policy"]
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son[a-z]+=|\sstyle=|<style", text)
    ids = set(re.findall(r'\bid="([^"]+)"', text))
    links = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert {link[1:] for link in links if link.startswith("#")} <= ids
    files = {link for link in links if link.startswith("/docs/static/")}
    assert set(links) - files - {f"#{id}" for id in ids} == {"/", "/openapi.json"}
    for file in files:
        assert (await _get(shown, file))[0].status == 200, file
    assert 'id="routerListModels"' not in text  # there is no router here


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/docs/", "GET", 404), ("/docs/static/x.js", "GET", 404), ("/docs", "POST", 405)],
)
async def test_there_is_nothing_else(shown: Front, path: str, method: str, status: int) -> None:
    assert (await _get(shown, path, method))[0].status == status


async def test_the_setting_takes_the_page_away_without_the_chat_page(shown: Front) -> None:
    shown.server = ServerSettings(chat_page=False)
    assert (await _get(shown, "/docs"))[0].status == 200
    shown.server = ServerSettings(docs=False)
    assert (await _get(shown, "/docs"))[0].status == 404
