"""Models of a provider published in the catalog: on the console, and by the API."""

from __future__ import annotations

import re
from html import unescape

from configurekit import LISTED
from consolekit import Page
from edgekit import Response, call, make_edge
from managekit import link_path
from test_console_provider_entries import Bench, picks
from test_console_provider_entries import bench as bench

from causerie.access.keys import KeyDigest
from causerie.hosted.accounts.key_cache import KeyCache
from causerie.hosted.management.application import Management

PUBLISH = "/operator/providers/west/publish"
CATALOG = "/operator/catalog"
FREE = {"prompt": "0", "completion": "0"}
OPERATOR = "ck_ops_0123456789"


async def test_models_are_published_with_a_margin_and_withdrawn(bench: Bench) -> None:
    await bench.add()
    assert (
        f"{CATALOG.removesuffix('/catalog')}/providers/west/publish"
        in (await bench.get(CATALOG)).text
    )
    page = await bench.get(f"{PUBLISH}?margin=50")
    assert "$0.20 / $0.60" in re.sub("<[^>]+>", "", page.text)
    assert "0.3" in page.text
    offered = picks(page)
    assert list(offered) == ["vendor/small", "vendor/large"]
    assert "Nothing was picked" in (await bench.post(PUBLISH)).text

    sent = {"margin": "50", "door": "yes", "as:vendor/small": "mine/tiny"}
    made = await bench.post(PUBLISH, pick=offered["vendor/small"], **sent)
    assert made.target == f"{CATALOG}?done=models-published"
    assert "mine/tiny" in bench.market.services.models()
    listed = (await bench.get(CATALOG)).text
    assert "mine/tiny" in listed
    assert "$0.30 / $0.90" in re.sub("<[^>]+>", "", listed)
    assert "up to date" in (await bench.get(PUBLISH)).text

    asked = await bench.get("/operator/providers/west/delete")
    assert "1 catalog model loses an endpoint" in asked.text
    [entry] = set(re.findall(rf"{CATALOG}/(cfg_\w+)/delete", listed))
    assert (await bench.post(f"{CATALOG}/{entry}/disable")).status == 303
    assert "mine/tiny" not in bench.market.services.models()
    assert (await bench.post(f"{CATALOG}/{entry}/enable")).status == 303
    assert "Delete mine/tiny?" in (await bench.get(f"{CATALOG}/{entry}/delete")).text
    assert (await bench.post(f"{CATALOG}/{entry}/delete")).status == 303
    assert "mine/tiny" not in bench.market.services.models()


def typed(page: Page) -> dict[str, str]:
    """The form of a page as it would be sent unchanged."""
    [more] = re.findall(r'(?s)<textarea[^>]*name="more"[^>]*>(.*?)</textarea>', page.text)
    return {**dict(page.fields), "more": unescape(more).strip()}


async def test_a_model_is_edited_copied_and_gets_a_free_variant(bench: Bench) -> None:
    await bench.add()
    offered = picks(await bench.get(f"{PUBLISH}?margin=50"))
    sent = {"margin": "50", "door": "yes", "as:vendor/small": "mine/tiny"}
    await bench.post(PUBLISH, pick=offered["vendor/small"], **sent)
    listed = (await bench.get(CATALOG)).text
    [entry] = set(re.findall(rf"{CATALOG}/(cfg_\w+)/delete", listed))

    form = typed(await bench.get(f"{CATALOG}/{entry}"))
    assert (form["id"], "west" in form["more"]) == ("mine/tiny", True)
    changed = form | {"name": "Tiny", "ends": "soon"}
    wrong = await bench.post(f"{CATALOG}/{entry}", **changed)
    assert (wrong.status, "a day like" in wrong.text) == (400, True)
    saved = await bench.post(f"{CATALOG}/{entry}", **changed | {"ends": "2999-01-31"})
    assert saved.target == f"{CATALOG}?done=catalog-model-saved"
    page = (await bench.get(CATALOG)).text
    assert "Tiny" in page
    assert "$0.30 / $0.90" in re.sub("<[^>]+>", "", page)  # what no field shows is kept

    form = typed(await bench.get(f"{CATALOG}/new?free=yes&like={entry}"))
    assert (form["id"], form["name"]) == ("mine/tiny:free", "Tiny (free)")
    assert "price" not in form["more"]
    made = await bench.post(f"{CATALOG}/new", **form)
    assert made.target == f"{CATALOG}?done=catalog-model-added"
    form = typed(await bench.get(f"{CATALOG}/new?like={entry}"))
    assert form["id"] == "mine/tiny-copy"
    assert "0.3" in form["more"]
    assert (await bench.post(f"{CATALOG}/new", **form)).status == 303
    models = bench.market.services.models()
    assert {"mine/tiny", "mine/tiny:free", "mine/tiny-copy"} <= set(models)


async def test_what_is_typed_wrong_is_said_at_its_field(bench: Bench) -> None:
    await bench.add()
    for margin, words in (("twenty", "number like"), ("1001", "at most 1000 percent")):
        page = await bench.get(f"{PUBLISH}?margin={margin}")
        assert page.status == 400
        assert words in page.text
    offered = picks(await bench.get(PUBLISH))
    named = {"as:vendor/large": "vendor/large"}
    unpriced = await bench.post(PUBLISH, pick=offered["vendor/large"], **named)
    assert "no price for vendor/large" in unescape(unpriced.text)
    bad = {"as:vendor/small": "no slug"}
    wrong = await bench.post(PUBLISH, pick=offered["vendor/small"], **bad)
    assert "a name like" in unescape(wrong.text)
    assert 'value="no slug"' in wrong.text
    assert (await bench.post(PUBLISH, pick="no model")).status == 400
    assert (await bench.get("/operator/providers/nobody/publish")).status == 404


async def test_the_same_by_the_api(bench: Bench) -> None:
    await bench.add()
    world, operations = bench.place.world, bench.market.services
    edge = make_edge()
    async with KeyCache(world.store) as key_cache:
        accounts, keys = world.accounts, [KeyDigest.of("ops", OPERATOR)]
        made = accounts, key_cache.manager, world.clock, link_path, operations, 1_000_000
        api = Management(*made, operator_keys=lambda: keys)
        edge.mount("/api", api.answer)

        async def ask(path: str, body: object = None) -> Response:
            return await call(
                edge, f"/api{path}", body, headers={"authorization": f"Bearer {OPERATOR}"}
            )

        offers = (await ask("/providers/west/offers?margin=10&prompt=1&completion=2")).json()
        [small, large] = offers["data"]
        assert (small["state"], small["catalog_id"]) == ("new", "vendor/small")
        assert small["price"] == {"prompt": "0.22", "completion": "0.66"}
        assert large["price"] == {"prompt": "1", "completion": "2"}

        wanted = {"margin": "10", "models": [{"id": "vendor/small"}], "open_door": True}
        [entry] = (await ask("/providers/west/offers", wanted)).json()["data"]
        assert (entry["kind"], entry["name"]) == ("catalog_model", "vendor/small")
        assert entry["settings"]["endpoints"][0]["price"]["prompt"] == "0.22"

        bench.lists.models = [LISTED[1]]
        [_, gone] = (await ask("/providers/west/offers")).json()["data"]
        assert (gone["id"], gone["state"]) == ("vendor/small", "gone")
        assert (await ask("/providers/west/offers", {"gone": ["vendor/small"]})).json() == {
            "data": []
        }
        unknown = await ask("/providers/west/offers", {"models": [{"id": "x"}]})
        assert (unknown.status, b"lists no model x" in unknown.body) == (400, True)
        bench.lists.refuses = True
        assert (await ask("/providers/west/offers")).status == 409
