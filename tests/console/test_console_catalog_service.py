"""The public catalog of a whole service: what traffic leaves on it, and what reloads change."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from faultkit import Fault, Reply, upstream
from hostedkit import office
from service import free_port
from servicekit import ServiceView, service_view
from waiting import eventually

from causerie.cli.keys import digest_line, new_key
from causerie.hosted.console import application
from causerie.http.pages.templating import Templates, environment
from causerie.routing import circuit_breaker

R = "/router/v1"
HERE = """
[[models]]
id = "here"
engine = "fake"
[[doors]]
name = "hosted"
kind = "hosted"
"""
ROUTER = """
[[doors]]
name = "router"
kind = "router"
[[catalog]]
id = "acme/{slug}"
name = "Big"
description = "{about}"
[[catalog.endpoints]]
provider = "up"
model = "m"
price = {{ prompt = "1", completion = "2" }}
[[catalog.endpoints]]
model = "here"
price = {{ prompt = "9", completion = "9" }}
[[catalog]]
id = "acme/tiny:free"
endpoints = [{{ model = "here" }}]
[public_chat]
models = ["acme/tiny:free"]
max_tokens = 16
"""


def config(base_url: str, *, router: bool = True, slug: str = "big", about: str = "") -> str:
    endpoint = f"""\
[store]
folder = "data"
[[providers]]
name = "up"
base_url = "{base_url}"
[providers.health]
path = ""
"""
    return endpoint + HERE + (ROUTER.format(slug=slug, about=about) if router else "")


async def page(running: ServiceView, path: str) -> tuple[int, str]:
    """A page as a stranger gets it."""
    async with running.session.get(f"{running.root}/console{path}") as answer:
        return answer.status, await answer.text()


async def test_traffic_shows_on_the_page_and_reloads_keep_it(tmp_path: Path) -> None:
    async with upstream([Reply("Yes, indeed."), Fault.SERVER_ERROR]) as up:
        text = config(up.base_url, about="A big one.")
        async with service_view(tmp_path, text) as running, office(tmp_path / "data") as opened:
            status, found = await page(running, "/catalog/acme/big")
            assert status == 200
            assert "A big one." in found
            assert "Not measured yet" in found
            key = (await opened.key(name="robot")).credential
            assert (await running.ask(R, "acme/big", key, provider={"only": ["up"]}))[0] == 200
            only = {"only": ["up"], "allow_fallbacks": False}
            assert (await running.ask(R, "acme/big", key, provider=only))[0] >= 500
            for about in ("A big one.", "Another word."):
                await running.reload(config(up.base_url, about=about))
                status, found = await page(running, "/catalog/acme/big")
                assert about in found
                assert "up answered 1 of" in found
                assert "No requests to causerie" in found
            assert f"{running.root}{R}/chat/completions" in found
            await _a_stranger_chats(running)
        async with service_view(tmp_path, text) as running:  # all of it is kept
            assert "up answered 1 of" in (await page(running, "/catalog/acme/big"))[1]
            bars = re.findall(r'<div class="day-(\w+)">', (await page(running, "/providers/up"))[1])
            assert (len(bars), bars[-1], {*bars[:-1]}) == (90, "bad", {"none"})
            assert (await page(running, "/status"))[0] == 404
            await running.reload(text.replace("[console]", "[console]\npublic_status = true"))


async def _a_stranger_chats(running: ServiceView) -> None:
    """With the free model that is named, and no other."""
    place = f"{running.root}/console/catalog/acme"
    assert (await page(running, "/catalog/acme/big/chat"))[0] == 404
    async with running.session.get(f"{place}/tiny:free/chat") as answer:
        token = re.search(r'form-token" content="(\w+)"', await answer.text())
        assert token is not None
        cookie = answer.cookies["causerie"].value
    headers = {"origin": running.root, "x-form-token": token[1], "cookie": f"causerie={cookie}"}
    asked = {"messages": [{"role": "user", "content": "Good day"}]}
    for name, status in (("tiny:free", 200), ("big", 404)):
        async with running.session.post(
            f"{place}/{name}/chat", json=asked, headers=headers
        ) as answer:
            assert answer.status == status
            text = await answer.text()
            if status == 200:
                assert "Good day" in "".join(re.findall(r'"content":"([^"]*)"', text))
                assert text.rstrip().endswith("data: [DONE]")
                assert '"completion_tokens"' in text


async def test_the_catalog_comes_and_goes_with_the_routers_door(tmp_path: Path) -> None:
    async with upstream([Reply("Yes.")]) as up:
        text = config(up.base_url, router=False)
        async with service_view(tmp_path, text) as running:
            assert (await page(running, "/catalog"))[0] == 404
            await running.reload(config(up.base_url))
            status, found = await page(running, "/catalog")
            assert status == 200
            assert "/console/catalog/acme/big" in found
            await running.reload(config(up.base_url, slug="small"))
            assert (await page(running, "/catalog/acme/big"))[0] == 404
            assert (await page(running, "/catalog/acme/small"))[0] == 200
            for closed in ("/projects/x/models", "/operator", "/profile"):
                async with running.session.get(
                    f"{running.root}/console{closed}", allow_redirects=False
                ) as answer:
                    assert answer.status == 303, closed


DEAD = """\
[store]
folder = "data"
[console]
operator_keys = ["{operator}"]
[[providers]]
name = "dead"
base_url = "http://127.0.0.1:{port}/v1"
[[providers]]
name = "quiet"
base_url = "http://127.0.0.1:{port}/v1"
[providers.health]
path = ""
[[providers]]
name = "up"
base_url = "{base_url}"
[providers.health]
path = ""
[[doors]]
name = "hosted"
kind = "hosted"
[[doors]]
name = "router"
kind = "router"
[[aliases]]
id = "alone"
targets = [{{ provider = "quiet", model = "m" }}]
[[catalog]]
id = "acme/big"
name = "Big"
endpoints = [
  {{ provider = "dead", model = "m", price = {{ prompt = "1", completion = "1" }} }},
  {{ provider = "quiet", model = "m", price = {{ prompt = "2", completion = "2" }} }},
  {{ provider = "up", model = "m", price = {{ prompt = "9", completion = "9" }} }},
]
"""
BADGE = re.compile(
    r'badge badge-dot badge-(good|bad)[^>]*>[^>]*>\s*<a [^>]*title="(dead|quiet|up)/m"'
)


async def test_a_dead_provider_is_down_on_every_page_and_not_asked_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two dead ones are the cheapest; one is found by a check, one by a request."""
    monkeypatch.setattr(circuit_breaker, "FIRST_WAIT_SECONDS", 60.0)  # nobody tries them again
    operator = new_key()
    async with upstream([Reply("Yes."), Reply("Yes.")]) as up:
        text = DEAD.format(operator=digest_line(operator), port=free_port(), base_url=up.base_url)
        async with service_view(tmp_path, text) as running, office(tmp_path / "data") as opened:
            key = (await opened.key(name="robot")).credential

            async def checked() -> bool:
                _, told = await running.get(f"{R}/models/acme/big/endpoints")
                return [each["status"] for each in told["data"]["endpoints"]] == [-1, 0, 0]

            await eventually(checked)
            status, headers, _ = await running.ask(R, "acme/big", key)
            assert (status, headers["x-served-by"]) == (200, "up/m")

            _, told = await running.get(f"{R}/models/acme/big/endpoints")
            shown = {each["tag"]: each for each in told["data"]["endpoints"]}
            assert [each["status"] for each in shown.values()] == [-1, -1, 0]
            assert shown["quiet/m"]["uptime_last_1d"] == 0
            _, found = await page(running, "/catalog/acme/big")
            assert {name: tone for tone, name in BADGE.findall(found)} == {
                "dead": "bad",
                "quiet": "bad",
                "up": "good",
            }

            ask = {
                "model": "acme/big",
                "messages": [{"role": "user", "content": "Hi"}],
                "provider": {"ignore": ["quiet"]},
            }
            async with running.session.post(
                f"{running.root}/api/routes/explain",
                json={"door": "router", "request": ask},
                headers={"authorization": f"Bearer {operator}"},
            ) as answer:
                explanation = await answer.json()
            assert explanation["goes_to"] == "up/m"
            [route] = explanation["routes"]
            assert [each["state"] for each in route["places"]] == ["up", "down"]
            assert [each["target"] for each in route["places"]] == ["up/m", "dead/m"]


async def test_an_alias_whose_only_target_is_dead_names_it_with_the_next_step(
    tmp_path: Path,
) -> None:
    async with upstream(Reply("Yes.")) as up:
        text = DEAD.format(operator=digest_line(new_key()), port=free_port(), base_url=up.base_url)
        async with service_view(tmp_path, text) as running, office(tmp_path / "data") as opened:
            key = (await opened.key(name="robot")).credential
            answers = [await running.ask("/hosted/v1", "alone", key) for _ in range(2)]
    assert answers[0][0] == 502
    assert answers[1][0] in (502, 503)  # 503 for half a second, then somebody tries again
    for _, _, body in answers:
        message = body["error"]["message"]
        assert "(quiet/m). quiet/m: The provider cannot be connected to." in message
        assert "`causerie probe`" in message


async def test_no_template_is_compiled_in_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first visit of a page compiles it and what it names: together up to 100 ms."""
    monkeypatch.setattr(application, "environment", environment)  # not those of other tests
    async with upstream(Reply("Yes.")) as up:
        text = DEAD.format(operator=digest_line(new_key()), port=free_port(), base_url=up.base_url)
        async with service_view(tmp_path, text) as running:
            compiled: list[tuple[str | None, int]] = []
            compile_source = Templates.compile

            def noted(self: Templates, source: Any, name: Any = None, *given: Any) -> Any:
                compiled.append((name, threading.get_ident()))
                return compile_source(self, source, name, *given)

            monkeypatch.setattr(Templates, "compile", noted)
            assert (await page(running, "/catalog/acme/big"))[0] == 200
            assert (await page(running, "/catalog"))[0] == 200
    assert {"catalog/model.html", "catalog/list.html", "parts/charts.html"} <= {*dict(compiled)}
    here = [name for name, thread in compiled if thread == threading.get_ident()]
    assert not here
