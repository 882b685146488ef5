"""What `/` answers: a page to browsers that may have one, and to all others what there is."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator

import aiohttp
import brotli
import pytest
from edgekit import LOCKED, OPEN, call, make_edge
from frontkit import Front, front

from causerie.composition.doors import leading_to
from causerie.settings.console import BrandingSettings
from causerie.settings.tree import ServerSettings

PAGE = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
async def shown() -> AsyncIterator[Front]:
    async with front() as found:
        yield found


async def ask(
    front: Front, path: str = "/", method: str = "GET", **headers: str
) -> tuple[aiohttp.ClientResponse, str]:
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, front.root + path, headers=headers) as response,
    ):
        return response, await response.text(errors="replace")


async def test_browsers_get_a_page_that_runs_nothing_but_its_own_files(shown: Front) -> None:
    response, text = await ask(shown, **PAGE)
    assert response.status == 200
    assert response.headers["vary"] == "accept, accept-encoding"
    again, _ = await ask(shown, **PAGE, **{"if-none-match": response.headers["etag"]})
    assert again.status == 304
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son[a-z]+=|\sstyle=|<style", text)
    for address in re.findall(r'(?:src|href)="(/console/[^"]+)"', text):
        file, _ = await ask(shown, address)
        assert file.status == 200, address


async def test_files_are_as_small_as_the_browser_takes_them(shown: Front) -> None:
    _, page = await ask(shown, **PAGE)
    [address] = re.findall(r'href="(/console/static/console[^"]+)"', page)
    sizes = {}
    async with aiohttp.ClientSession(auto_decompress=False) as http:
        for taken, coding in (
            ("gzip, br", "br"),
            ("gzip", "gzip"),
            ("gzip, br;q=0", "gzip"),
            ("", ""),
        ):
            headers = {"accept-encoding": taken}
            async with http.get(shown.root + address, headers=headers) as response:
                assert response.headers.get("content-encoding", "") == coding
                assert response.headers["vary"] == "accept-encoding"
                body = await response.read()
            unpack = {"br": brotli.decompress, "gzip": gzip.decompress, "": bytes}[coding]
            sizes[coding] = len(body), unpack(body)
    assert sizes["br"][0] < sizes["gzip"][0] < sizes[""][0]
    assert len({text for _, text in sizes.values()}) == 1


@pytest.mark.parametrize("accept", ["*/*", "application/json", ""])
async def test_other_clients_are_told_what_there_is(shown: Front, accept: str) -> None:
    response, text = await ask(shown, accept=accept)
    assert (response.status, response.content_type) == (200, "text/plain")
    for path in re.findall(r"^GET +(/\S+)", text, re.MULTILINE):
        assert (await ask(shown, path, accept=accept))[0].status == 200, path
    shown.server = ServerSettings(docs=False)
    assert "/docs" not in (await ask(shown, accept=accept))[1]


@pytest.mark.parametrize(
    ("path", "method"),
    [("/", "POST"), ("//", "GET"), ("/console", "GET"), ("/console/static/x", "PUT")],
)
async def test_there_is_nothing_else(shown: Front, path: str, method: str) -> None:
    response, _ = await ask(shown, path, method, **PAGE)
    assert response.status == 404


async def test_a_site_from_elsewhere_cannot_have_it_under_its_own_name(shown: Front) -> None:
    response, _ = await ask(shown, host="evil.example", **PAGE)
    assert response.status == 404


async def test_the_setting_decides_and_a_reload_changes_it(shown: Front) -> None:
    shown.server = ServerSettings(chat_page=False)
    for path in ("/", "/console/static/first.js"):
        response, _ = await ask(shown, path, **PAGE)
        assert response.status == 404
    shown.server = ServerSettings(chat_page=True)
    assert (await ask(shown, **PAGE))[0].status == 200


async def test_without_the_setting_strangers_with_no_key_get_no_page() -> None:
    async with front(LOCKED) as locked:
        assert (await ask(locked, **PAGE))[0].status == 200  # only this machine can reach it
        locked.server = ServerSettings(host="0.0.0.0")
        assert (await ask(locked, **PAGE))[0].status == 404
    async with front(OPEN) as entered:
        entered.server = ServerSettings(host="0.0.0.0")
        assert (await ask(entered, **PAGE))[0].status == 200


async def test_the_page_names_no_door_that_is_locked_and_no_model(shown: Front) -> None:
    _, text = await ask(shown, **PAGE)
    assert LOCKED.name not in text
    assert "thinker" not in text
    async with front(LOCKED, OPEN) as other:
        _, text = await ask(other, **PAGE)
    assert re.findall(r"<option>([^<]+)</option>", text) == ["/v1", OPEN.prefix]


async def test_with_accounts_browsers_are_led_to_the_console() -> None:
    edge = make_edge()
    edge.mount("/", leading_to("/console/", ServerSettings()))
    led = await call(edge, "/", headers=PAGE)
    assert (led.status, led.headers["location"]) == (302, "/console/")
    assert (await call(edge, "//", headers=PAGE)).status == 404
    assert b"/v1/models" in (await call(edge, "/", headers={"accept": "*/*"})).body


async def test_the_page_bears_the_name_of_who_runs_the_service(shown: Front) -> None:
    shown.branding = BrandingSettings(
        name="Maison & Co",
        accent="#ffd400",
        terms="https://example.org/terms",
        contact="help@example.org",
    )
    _, text = await ask(shown, **PAGE)
    assert "<title>Chat · Maison &amp; Co</title>" in text
    assert "Causerie" not in text
    assert 'href="https://example.org/terms"' in text
    assert 'href="mailto:help@example.org"' in text
    (address,) = re.findall(r'href="([^"]+console\.[0-9a-f]+\.css)"', text)
    _, style = await ask(shown, address)
    usual, *_, last = re.findall(r"--accent: ?(#\w+)", style)
    assert last == "#ffd400" != usual  # what is last wins
