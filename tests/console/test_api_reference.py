"""What `/docs` shows is the whole document, and leads nowhere but to itself."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import aiohttp
import pytest
from frontkit import Front, front

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
    assert (chat.key, chat.body) == ("optional", '<a href="#ChatRequest">ChatRequest</a>')


def test_a_pattern_or_name_is_never_markup() -> None:
    schema = {"properties": {"<b>": {"type": "string", "pattern": "<i>"}}}
    made = {"info": {"version": "1", "description": ""}, "paths": {}}
    [found] = reference({**made, "components": {"schemas": {"A": schema}}}).objects
    assert found.fields[0].kind == "string matching &lt;i&gt;"


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
