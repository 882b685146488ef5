"""The public catalog of a whole service: what traffic leaves on it, and what reloads change."""

from __future__ import annotations

from pathlib import Path

from faultkit import Fault, Reply, upstream
from hostedkit import office
from servicekit import ServiceView, service_view

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
            assert "Nobody has asked for this model" in found
            key = (await opened.key(name="robot")).credential
            assert (await running.ask(R, "acme/big", key, provider={"only": ["up"]}))[0] == 200
            only = {"only": ["up"], "allow_fallbacks": False}
            assert (await running.ask(R, "acme/big", key, provider=only))[0] >= 500
            for about in ("A big one.", "Another word."):
                await running.reload(config(up.base_url, about=about))
                status, found = await page(running, "/catalog/acme/big")
                assert about in found
                assert "up answered 1 of" in found
                assert "Nobody asked causerie" in found
            assert f"{running.root}{R}/chat/completions" in found


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
