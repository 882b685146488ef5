"""What `/docs` shows is the whole document, and leads nowhere but to itself."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import aiohttp
import pytest
from frontkit import Front, front
from markupsafe import Markup

from causerie.console.api_reference import reference
from causerie.edge.openapi import document
from causerie.settings.tree import ServerSettings

DOCUMENT = document(4096)


def test_every_operation_and_object_is_there() -> None:
    found = reference(DOCUMENT)
    operations = [each for group in found.groups for each in group.operations]
    paths = DOCUMENT["paths"]
    assert isinstance(paths, dict)
    assert {(each.base + each.path, each.method) for each in operations} == {
        (path, method.upper()) for path, methods in paths.items() for method in methods
    }
    assert len({each.id for each in operations}) == len(operations)
    components = DOCUMENT["components"]
    assert isinstance(components, dict)
    assert [each.name for each in found.objects] == list(components["schemas"])
    [chat] = (each for each in operations if each.id == "createChatCompletion")
    assert chat.key == "optional"
    assert chat.body is not None
    fields = {
        name: each for group in chat.body.groups for each in group.fields for name in each.names
    }
    components = DOCUMENT["components"]
    assert isinstance(components, dict)
    assert set(fields) == set(components["schemas"]["ChatRequest"]["properties"])
    assert all(each.text for each in fields.values())
    top_p, messages, user = fields["top_p"], fields["messages"], fields["user"]
    assert (top_p.kind, top_p.bounds, top_p.default) == (
        "number",
        "above 0 to 1",
        "the model's, else 1",
    )
    assert (messages.required, messages.bounds) == (True, "up to 4,096 items")
    assert {"user", "metadata", "verbosity"} <= set(user.names)


def test_a_refusal_is_described_once_and_a_body_by_its_differences() -> None:
    found = reference(DOCUMENT)
    operations = {each.id: each for group in found.groups for each in group.operations}
    statuses = [each.status for each in found.errors]
    assert len(set(statuses)) == len(statuses)
    for each in operations.values():
        assert set(each.errors) <= set(statuses)
        assert not {answer.status for answer in each.answers} & set(each.errors)
    health = operations["showHealth"]
    assert [each.status for each in health.answers] == ["200", "503"]  # no refusal: it is a health
    routed = operations["routerCreateChatCompletion"].body
    assert routed is not None
    assert routed.like == "createChatCompletion"
    names = {name for group in routed.groups for each in group.fields for name in each.names}
    assert {"model", "models", "provider", "route"} <= names
    assert "temperature" not in names


def test_objects_know_the_operations_that_lead_to_them() -> None:
    bases = {each.name: each.bases for each in reference(DOCUMENT).objects}
    assert bases["SystemMessage"] == {"/v1", "/router/v1"}
    assert bases["RouterEndpoint"] == {"/router/v1"}
    assert bases["EngineHealth"] == {""}


def test_a_pattern_or_name_is_never_markup() -> None:
    schema = {"properties": {"<b>": {"type": "string", "pattern": "<i>"}}}
    made = {"info": {"version": "1", "description": ""}, "paths": {}}
    [found] = reference({**made, "components": {"schemas": {"A": schema}}}).objects
    [field] = found.fields
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
