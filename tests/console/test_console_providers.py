"""Pages about providers and routes, over HTTP, as their visitors get them."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from html import unescape
from pathlib import Path

import pytest
from accountkit import PASSWORD, World
from browserkit import sign_in, window
from casekit import first_of
from consolekit import Place, ScriptedServiceView, Visitor, console_of
from ledgerkit import record
from marketkit import day
from operationskit import MARKET, NOWHERE, Market, market, provider, result
from playwright.async_api import expect
from test_console_hostile import MARKUP, Elements

from causerie.hosted.accounts.people import SYSTEM, Role
from causerie.hosted.store.usage import SqlUsage
from causerie.probe.questions import QUESTIONS, QUICK_QUESTIONS

PATHS = (
    "/operator/providers",
    "/operator/providers?model=a/m",
    "/operator/providers/north",
    "/operator/providers/north/probe?model=m",
    "/operator/explain",
)


@dataclass
class Bench:
    """A console over a market, and its operator."""

    place: Place
    market: Market
    operator: Visitor


@asynccontextmanager
async def bench(world: World, folder: Path, **made: object) -> AsyncIterator[Bench]:
    async with market(world, folder, **made) as shown:  # type: ignore[arg-type]  # arguments by name
        service_view = ScriptedServiceView()
        service_view.operations = shown.services
        async with console_of(world, service_view=service_view) as place:
            user = await world.person("operator", operator=True, password=PASSWORD)
            yield Bench(place, shown, await place.visitor_of(user))


@pytest.fixture
async def shown(lite: World, tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(lite, tmp_path) as made:
        yield made


async def test_a_row_of_a_provider_has_state_share_wait_and_cost_of_today(shown: Bench) -> None:
    view, now = shown.place.service_view, shown.place.world.now
    assert isinstance(view, ScriptedServiceView)
    view.days = {"north/m": day(now, 0.4, 50.0)}
    at = int(now.timestamp()) * 1_000_000
    served = [("north/m", "1.25"), ("north/m", "0.5"), ("north/m", "0"), ("south/m", "0.0025")]
    await SqlUsage(shown.place.world.database).append(
        [record(project="prj_a", at=at, served_by=by, amount=Decimal(cost)) for by, cost in served]
    )
    page = (await shown.operator.get("/operator/providers")).text
    rows = {}
    for name in ("north", "south"):
        row = page[page.index(f'id="provider-{name}"') :]
        rows[name] = re.findall(r'data-label="([^"]+)"[^>]*>(.*?)</td>', row[: row.index("</tr>")])
    told = {
        name: {label: re.sub(r"<[^>]+>", "", cell).strip() for label, cell in cells}
        for name, cells in rows.items()
    }
    north = {"Share today": "75.0 %", "TTFT, p50": "422 ms", "Cost today": "$1.75"}
    south = {"Share today": "25.0 %", "TTFT, p50": "–", "Cost today": "$0.0025"}
    assert told["north"].pop("State").startswith("ready")
    assert told["north"] == north
    assert told["south"].pop("State") == "ready"
    assert told["south"] == south


async def test_providers_and_what_they_can_do(shown: Bench) -> None:
    page = await shown.operator.get("/operator/providers")
    assert page.status == 200
    words = re.sub(r"<[^>]*>", "", page.text)
    for word in ("north", "south", NOWHERE.removeprefix("https://"), "at most 8 concurrent"):
        assert word in words
    assert "north/m" not in words
    opened = re.sub(
        r"<[^>]*>", "", (await shown.operator.get("/operator/providers?open=north")).text
    )
    assert "a/m · $0.40 / $1.20" in opened
    assert "north/m" in opened
    assert "south/m" not in opened
    side_by_side = await shown.operator.get("/operator/providers?model=pool")
    assert "south/m</a> was not measured, so every parameter is allowed" in side_by_side.text
    assert re.search(r'<li class="chip"[^>]*>logprobs</li>', side_by_side.text)
    for mark in ("✓</span> yes", "✕</span> no", "?</span> unclear", "–</span> unknown"):
        assert mark in side_by_side.text
    assert "accepted without effect" in side_by_side.text  # the legend
    one = await shown.operator.get("/operator/providers/north")
    assert "measured 1 Oct 2026" in one.text
    assert "32,768 tokens" in one.text
    assert (await shown.operator.get("/operator/providers/nowhere")).status == 404


async def test_the_file_is_read_once_for_all_models(
    shown: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    parse = tomllib.loads

    def noted(text: str) -> dict[str, object]:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(tomllib, "loads", noted)
    for _ in range(2):
        await shown.operator.get("/operator/providers")
    assert parsed.count(shown.market.file.read_text()) <= 1


async def test_they_are_in_the_navigation_of_operators_only(shown: Bench) -> None:
    assert "/console/operator/explain" in (await shown.operator.get("/profile")).text
    world = shown.place.world
    for role in (Role.OWNER, Role.ADMIN, Role.MEMBER, Role.VIEWER):
        user = await world.person()
        await world.join(await world.project(owner=await world.person()), user, role)
        visitor = await shown.place.visitor_of(user)
        assert "/operator/explain" not in (await visitor.get("/profile")).text
        for path in (*PATHS, "/operator/providers/north/progress"):
            assert (await visitor.get(path)).status == 403, (role, path)
        for path in ("probe", "probe/cancel", "probe/use"):
            page = await visitor.post(f"/operator/providers/north/{path}", {"model": "m"})
            assert page.status == 403, (role, path)
        named = "north/typed-by-hand"  # no random id holds a dash
        for typed in ({"model": named}, {"max_prompt": "x"}, {"form_token": ""}):  # in any order
            refused = await visitor.post("/operator/explain", typed)
            assert refused.status == 403
            assert named not in refused.text
    assert (await shown.place.visitor().get("/operator/providers")).status == 303
    assert shown.market.examinations.last("north") is None


async def test_a_form_without_its_token_does_nothing(shown: Bench) -> None:
    for path in ("providers/north/probe", "providers/north/probe/use", "explain"):
        page = await shown.operator.post(f"/operator/{path}", {"form_token": "x", "model": "m"})
        assert page.status == 403
    assert shown.market.examinations.last("north") is None


async def test_a_probe_that_fails_says_why(shown: Bench) -> None:
    asked = await shown.operator.get("/operator/providers/north/probe?model=m")
    found = re.search(r"at most (\d+) requests", unescape(asked.text))
    assert found is not None, asked.text
    assert int(found[1]) > 250
    begun = await shown.operator.post("/operator/providers/north/probe", {"model": "m"})
    assert (begun.status, begun.headers["location"]) == (303, "/console/operator/providers/north")
    assert await shown.market.probed("north") == "failed"
    page = await shown.operator.get("/operator/providers/north")
    assert "could not be probed: the provider cannot be reached" in page.text
    assert 'hx-trigger="every 1s"' not in page.text
    over = await shown.operator.get("/operator/providers/north/progress", {"hx-request": "true"})
    assert over.headers["hx-redirect"] == "/console/operator/providers/north"
    other = await shown.operator.get("/operator/providers/north/probe?model=none")
    assert other.status == 404


async def test_what_would_change_stands_beside_what_is_in_force(shown: Bench) -> None:
    await shown.market.examinations.results.keep(result("north", "m"))
    text = (await shown.operator.get("/operator/providers/north")).text
    assert ">differs<" in text
    changes = text[text.index("<caption>Changes") :]
    assert "<code>stop</code>" in changes
    assert "32,768" in changes
    assert "8,192" in changes
    assert "it answered in words" in text
    assert "Listed by the provider but not honoured: <code>tools</code>" in text
    used = await shown.operator.post("/operator/providers/north/probe/use", {"model": "m"})
    assert "The configuration has not been changed" in used.text
    assert '[[providers.models]]\nid = "m"' in unescape(used.text)
    by_hand = await shown.market.services.use(SYSTEM, "north", "m")
    await shown.market.put_in_by_hand(by_hand)
    text = (await shown.operator.get("/operator/providers/north")).text
    assert "The result is what requests are checked against" in text
    assert "2026-11-20" in text


async def test_routes_are_explained_for_picks_and_for_a_body(shown: Bench) -> None:
    asked = await shown.operator.get("/operator/explain?model=a/m")
    assert 'value="a/m"' in asked.text
    picks = {
        "from": "picks",
        "door": "router",
        "model": "a/m",
        "tools": "yes",
        "max_prompt": "0.3",
        "ignore": "east, west",
    }
    told = unescape((await shown.operator.post("/operator/explain", picks)).text)
    assert 'Routed to <span class="mono">south/m</span>' in told
    assert "costs $0.40 (prompt)" in told
    assert "provider.max_price.prompt" in told
    assert '"ignore": [\n      "east",' in told  # the body, to go on from
    strict = unescape(
        (await shown.operator.post("/operator/explain", picks | {"strict": "yes"})).text
    )
    assert "Nobody would be asked" in strict
    assert "is not known to support <code>tools</code>" in strict
    body = {"model": "pool", "messages": [{"role": "user", "content": "Hi"}]}
    pasted = {"from": "body", "door": "router", "body": json.dumps(body)}
    assert "status 404" in (await shown.operator.post("/operator/explain", pasted)).text
    pasted["body"] = "{"
    assert "not valid JSON" in (await shown.operator.post("/operator/explain", pasted)).text
    wrong = await shown.operator.post("/operator/explain", picks | {"max_prompt": "cheap"})
    assert wrong.status == 400
    assert "<code>cheap</code> is no price" in wrong.text
    nowhere = await shown.operator.post("/operator/explain", picks | {"door": "none"})
    assert nowhere.status == 404
    assert "There is no door none" in nowhere.text


@pytest.mark.parametrize("text", first_of(MARKUP, every=3))
async def test_hostile_names_stay_text(lite: World, tmp_path: Path, text: str) -> None:
    named = json.dumps(text).replace("{", "{{").replace("}", "}}")
    config = MARKET.replace('model = "m"', f"model = {named}").replace('id = "m"', f"id = {named}")
    async with bench(lite, tmp_path, text=config) as shown:
        hostile = result("north", text)
        await shown.market.examinations.results.keep(hostile)
        pages = [await shown.operator.get(path) for path in PATHS if "probe?" not in path]
        sent = {"from": "picks", "door": text, "model": text, "message": text, "order": text}
        pages.append(await shown.operator.post("/operator/explain", sent))
        sent["door"] = "router"
        pages.append(await shown.operator.post("/operator/explain", sent))
        sent |= {"from": "body", "body": text}
        pages.append(await shown.operator.post("/operator/explain", sent))
        for page in pages:
            assert page.status in (200, 404)
            assert "135419791" not in page.text
            Elements().feed(page.text)


async def test_a_provider_of_the_file_is_tested_and_quickly_probed(
    lite: World, tmp_path: Path
) -> None:
    async with provider() as (base_url, _), market(lite, tmp_path, north=base_url) as made:
        service_view = ScriptedServiceView()
        service_view.operations = made.services
        async with console_of(lite, service_view=service_view) as place:
            visitor = await place.visitor_of(await lite.person("operator", operator=True))
            north = "/operator/providers/north"
            assert f'action="/console{north}/test"' in (await visitor.get(north)).text
            tried = (await visitor.post(f"{north}/test", {"test_model": "m"})).text
            assert "as it is in the configuration file" in tried
            assert "Start quick probe" in tried
            begun = await visitor.post(f"{north}/probe", {"model": "m", "quick": "yes"})
            assert begun.status == 303
            assert await made.probed("north") == "done"
            page = (await visitor.get(north)).text
            assert "quick probe" in page
            assert 'aria-label="Answers of the quick probe of m"' in page
    last = made.examinations.last("north")
    assert last is not None
    assert last.asked == last.questions == len(QUICK_QUESTIONS)
    assert not await made.examinations.results.of("north"), "it decides too little"


@pytest.mark.full
async def test_probe_again_in_a_browser(lite: World, tmp_path: Path) -> None:
    """From the button over progress to the result in force."""
    halfway, go_on = asyncio.Event(), asyncio.Event()

    async def gate(number: int) -> None:
        if number == 20:
            halfway.set()
            await go_on.wait()

    async with (
        provider(gate=gate) as (base_url, _),
        bench(lite, tmp_path, north=base_url) as shown,
        window() as page,
    ):
        root = f"http://127.0.0.1:{shown.place.port}/console"
        user = await lite.person("ada", operator=True, password=PASSWORD)
        await sign_in(page, root, user)
        await page.goto(f"{root}/operator/providers")
        await page.click("#main >> text=north >> nth=0")
        await page.get_by_text("Probe again").click()
        await expect(page.locator("dialog h1")).to_have_text("Probe m at north?")
        await page.click("dialog .button-main")
        await halfway.wait()
        asked = page.locator("#probe-progress")
        await expect(asked).to_contain_text(f"of {len(QUESTIONS)}")
        await page.focus("#probe-cancel")
        async with page.expect_response("**/progress"):
            pass
        await expect(page.locator("#probe-cancel")).to_be_focused()
        await expect(page.locator("#probing progress")).to_be_visible()
        await expect(page.locator("#probing")).to_contain_text("tokens so far, of at most")
        await expect(page.locator("#probing >> text=Cancel")).to_be_visible()
        go_on.set()
        await expect(page.locator("#probing [role=status]")).to_contain_text("was probed")
        await expect(page.locator(".changes")).to_contain_text("tools")
        await page.click("text=Apply the result")
        await expect(page.locator("#by-hand")).to_contain_text("supported_parameters")
