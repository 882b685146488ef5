"""Looks that only a browser can tell: typeface, weight of a visit, what moves, what is on top."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import pytest
from accountkit import PASSWORD
from browserkit import UNSEEN, findings, moved, sign_in, window
from consolekit import Place
from frontkit import front
from marketkit import FREE, Fair, day
from pageskit import LONG
from playwright.async_api import Page, Route, expect

FIRST_VISIT = 105_000  # bytes on the wire, all files of the first page
HEAD = 700  # bytes that no answer's headers exceed
OPEN_TO_ALL = (
    "/sign-in",
    "/sign-up",
    "/link",
    "/catalog",
    "/catalog/qwen/qwen3-8b",
    f"/catalog/{FREE}/chat",
    "/catalog/compare?model=qwen/qwen3-8b&model=acme/iris-large",
    "/providers",
    "/providers/north",
    "/rankings",
    "/no-such-page",
)
_WEIGHT = (
    "(head) => ['navigation', 'resource'].flatMap((each) => performance.getEntriesByType(each))"
    ".reduce((sum, each) => sum + each.encodedBodySize + head, 0)"
)


@pytest.fixture
async def page(place: Place) -> AsyncIterator[Page]:
    """A window as wide as a laptop's."""
    async with window(viewport={"width": 1440, "height": 900}) as opened:
        yield opened


def root(place: Place) -> str:
    return f"http://127.0.0.1:{place.port}/console"


@pytest.mark.full
async def test_a_first_visit_is_small_and_moves_nothing(fair: Place, page: Page) -> None:
    owner = await fair.world.person(password=PASSWORD, operator=True)
    project = await fair.world.project(owner=owner)
    open_pages = [f"{root(fair)}{path}" for path in OPEN_TO_ALL]
    own_pages = [f"{root(fair)}/projects/{project.id}/keys", f"{root(fair)}/operator/users"]
    async with front() as service:
        for url in (*open_pages, f"{service.root}/", f"{service.root}/docs"):
            await page.goto(url)  # waits for styles and scripts
            weight = await page.evaluate(_WEIGHT, HEAD)
            assert 35_000 < weight <= FIRST_VISIT, (url, weight)
            assert await moved(page) < UNSEEN, url
        await page.goto(f"{service.root}/")
        await expect(page.locator("#send")).to_be_enabled()
        assert await moved(page) < UNSEEN  # also once the models are there
    await sign_in(page, root(fair), owner)
    for url in own_pages:
        answer = await page.goto(url)
        assert answer is not None
        assert answer.headers["content-encoding"] in {"gzip", "zstd"}, url
        weight = await page.evaluate(_WEIGHT, HEAD)
        assert 35_000 < weight <= FIRST_VISIT, (url, weight)


@pytest.mark.full
async def test_a_page_has_the_typeface(place: Place, page: Page) -> None:
    await page.goto(f"{root(place)}/sign-in")
    await page.reload()  # a first visit shows the typeface only where it comes within 0.1 s
    await page.wait_for_function(
        "[...document.fonts].some((one) => one.status === 'loaded' && one.family.includes('Inter'))"
    )


@pytest.mark.full
async def test_the_menu_of_a_narrow_screen_is_a_sheet_for_the_keyboard_too(place: Place) -> None:
    owner = await place.world.person(password=PASSWORD, operator=True)
    await place.world.project(owner=owner)
    async with window(viewport={"width": 390, "height": 844}) as page:
        await sign_in(page, root(place), owner)
        button, sheet = page.locator("[data-nav-switch]"), page.locator("#sheet")
        await expect(sheet).to_be_hidden()
        await button.press("Enter")
        await expect(button).to_have_attribute("aria-expanded", "true")
        await expect(sheet.locator("summary").first).to_be_focused()
        box = await sheet.bounding_box()
        assert box is not None
        assert (box["x"], round(box["y"] + box["height"])) == (0, 844)
        assert box["width"] >= 375  # a scroll bar takes the rest
        assert await findings(page) == []
        await page.keyboard.press("Shift+Tab")
        await expect(button).to_be_focused()
        await page.keyboard.press("Shift+Tab")  # round to the last part, not behind the veil
        await expect(sheet.locator(".sidebar-end summary")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(sheet).to_be_hidden()
        await expect(button).to_be_focused()
        await button.click()
        await page.mouse.click(195, 30)  # on the veil
        await expect(sheet).to_be_hidden()
        await button.click()
        await sheet.get_by_text("API Keys").click()
        await expect(page.locator("#main h1")).to_have_text("API Keys")
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.full
async def test_the_gutter_beside_a_dialog_is_as_dark_as_its_veil(place: Place, page: Page) -> None:
    owner = await place.world.person(password=PASSWORD)
    project = await place.world.project(owner=owner)
    await sign_in(page, root(place), owner)
    await page.goto(f"{root(place)}/projects/{project.id}/keys")
    await page.locator(".page-head").get_by_text("Create key").click()
    await expect(page.locator("dialog [name=name]")).to_be_focused()
    corner = {"x": 1380, "y": 860, "width": 60, "height": 1}
    png = base64.b64encode(await page.screenshot(clip=corner, type="png")).decode()  # type: ignore[arg-type]
    colours = await page.evaluate(
        """async (png) => {
        const bytes = Uint8Array.from(atob(png), (each) => each.charCodeAt(0));
        const bitmap = await createImageBitmap(new Blob([bytes]));
        const drawn = new OffscreenCanvas(60, 1).getContext("2d");
        drawn.drawImage(bitmap, 0, 0);
        const { data } = drawn.getImageData(0, 0, 60, 1);
        return [...new Set(Array.from({ length: 60 }, (_, n) => data[4 * n]))];
        }""",
        png,
    )
    assert max(colours) - min(colours) <= 2, colours


@pytest.mark.full
async def test_equal_rows_are_hidden_on_demand(fair: Place, page: Page) -> None:
    models = "model=acme/iris-large&model=qwen/qwen3-8b"
    await page.goto(f"{root(fair)}/catalog/compare?{models}")
    rows = page.locator(".side tbody tr:visible")
    before = await rows.count()
    same = page.locator(".side tr.same")
    assert await same.count() > 0
    await page.get_by_label("Hide equal rows").press("Space")
    await expect(same.first).to_be_hidden()
    assert 0 < await rows.count() < before
    for row in await page.locator(".side tbody tr:visible:not(.side-title)").all():
        cells = [cell.strip() for cell in await row.locator("td").all_inner_texts()]
        assert len(set(cells)) > 1, cells
    await page.get_by_label("Hide equal rows").press("Space")
    await expect(rows).to_have_count(before)


@pytest.mark.full
async def test_a_model_in_the_palette_has_its_page_and_behind_shift_the_playground(
    fair: Place, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fair, "models", lambda *_: [{"id": "qwen/qwen3-8b"}])
    owner = await fair.world.person(password=PASSWORD)
    await fair.world.project(owner=owner)
    await sign_in(page, root(fair), owner)
    field, found = page.locator("dialog #palette-find"), page.locator("dialog #palette-found")
    for keys, place in (
        ("Enter", "/console/catalog/qwen/qwen3-8b"),
        ("Shift+Enter", "/playground?model=qwen%2Fqwen3-8b"),
    ):
        await page.keyboard.press("?")
        await field.fill("qwen/qwen3-8b model")
        await expect(found).to_have_attribute("data-find", "qwen/qwen3-8b model")
        await expect(page.locator("dialog .keys")).to_contain_text("Shift Enter")
        await page.keyboard.press(keys)
        await page.wait_for_url(f"**{place}")


async def test_the_palette_leads_to_pages_projects_and_models_by_the_keyboard(
    place: Place, page: Page
) -> None:
    owner = await place.world.person(password=PASSWORD)
    project = await place.world.project(owner=owner)
    await sign_in(page, root(place), owner)
    await page.keyboard.press("Control+k")
    field, found = page.locator("dialog #palette-find"), page.locator("dialog #palette-found a")
    await expect(field).to_be_focused()
    assert await findings(page) == []
    await field.press_sequentially("api ke")
    await page.keyboard.press("Enter")  # before the letters are answered
    await expect(page.locator("#main h1")).to_have_text("API Keys")
    await page.keyboard.press("Control+k")
    await field.fill(f"{project.name} project")
    listed = page.locator("dialog #palette-found")
    await expect(listed).to_have_attribute("data-find", f"{project.name} project")
    paths = await found.evaluate_all("every => every.map((each) => each.getAttribute('href'))")
    own = f"/console/projects/{project.id}"
    assert paths == [own, f"{own}/invite", f"{own}/overview"]
    await page.keyboard.press("ArrowDown")
    await expect(found.first).to_be_focused()
    await page.keyboard.press("ArrowUp")
    await expect(field).to_be_focused()
    await field.fill("no such thing at all")
    await expect(page.locator("dialog #palette-found")).to_contain_text("Nothing has")
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_be_hidden()


@pytest.mark.full
async def test_slash_leads_to_the_search_field_of_a_list(place: Place, page: Page) -> None:
    owner = await place.world.person(password=PASSWORD)
    project = await place.world.project(owner=owner)
    for number in range(9):
        await place.world.key(project, owner, name=f"key {number}")
    await sign_in(page, root(place), owner)
    await page.goto(f"{root(place)}/projects/{project.id}/keys")
    await page.keyboard.press("/")
    await expect(page.get_by_label("Find a key")).to_be_focused()
    await page.keyboard.type("key 7/")
    await expect(page.get_by_label("Find a key")).to_have_value("key 7/")
    await page.keyboard.press("ArrowDown")
    await expect(page.locator("[data-table=keys] tbody summary").first).to_be_focused()


@pytest.mark.full
async def test_the_table_remembers_columns_sorts_and_is_walked_by_the_keyboard(
    shop: Place, page: Page
) -> None:
    owner = await shop.world.person(password=PASSWORD, operator=True)
    project = await shop.world.project(owner=owner)
    for name in ("one", "two"):
        await shop.world.key(project, owner, name=name)
    keys = f"{root(shop)}/projects/{project.id}/keys"
    await sign_in(page, root(shop), owner)
    await page.goto(keys)
    budget = page.locator("th", has_text="Budget")
    await page.locator(".columns summary").press("Enter")
    await page.locator(".columns").get_by_label("Budget").press("Space")
    await expect(budget).to_be_hidden()
    assert await findings(page) == []
    await page.route("**/table.*.js", lambda route: route.abort())
    await page.reload()  # what hides it runs before anything is painted
    await expect(budget).to_be_hidden()
    assert await page.locator("td[data-label=Budget]").first.is_hidden()
    await page.unroute("**/table.*.js")

    far, near = f"far/{LONG}", "near/small"
    ill = {far: range(30, 32), near: range(30, 60)}
    shop.service_view.days = {name: day(shop.world.now, 0.4, 50.0, ill[name]) for name in ill}
    await page.goto(f"{root(shop)}/operator")
    health = page.locator("[data-table=provider-health]")
    failures, first = health.locator("th", has_text="Failed"), health.locator("tbody tr").first
    await failures.get_by_role("button").press("Enter")
    await expect(failures).to_have_attribute("aria-sort", "descending")
    await expect(first).to_contain_text("near")
    await failures.get_by_role("button").press("Enter")
    await expect(first).to_contain_text("far")
    async with page.expect_response(lambda each: each.url.endswith("/operator")):
        await expect(failures).to_have_attribute("aria-sort", "ascending")
    await expect(first).to_contain_text("far")  # rows that came anew are in the same order

    await page.goto(f"{root(shop)}/projects/{project.id}/models")
    tries = page.get_by_role("link", name="Try it")
    await tries.first.focus()
    await page.keyboard.press("ArrowDown")
    await expect(tries.nth(1)).to_be_focused()
    await page.keyboard.press("ArrowUp")
    await expect(tries.first).to_be_focused()


@pytest.mark.full
async def test_a_page_that_takes_long_is_announced_by_its_shape(place: Place, page: Page) -> None:
    owner = await place.world.person(password=PASSWORD)
    await place.world.project(owner=owner)
    await sign_in(page, root(place), owner)
    shaped = asyncio.Event()

    async def late(route: Route) -> None:
        await shaped.wait()
        await route.continue_()

    page.on("console", lambda said: shaped.set() if said.text == "shape, h1 hidden" else None)
    await page.evaluate(
        "new MutationObserver(() => document.querySelector('.skeleton-page') && console.log("
        "`shape, h1 ${document.querySelector('#main h1').checkVisibility() ? 'shown' : 'hidden'}`))"
        ".observe(document.querySelector('#main > .page'), {childList: true, attributes: true})"
    )
    await page.route("**/usage", late)
    await page.locator(".nav").get_by_text("Usage").click()
    await expect(page.locator("#main h1")).to_have_text("Usage")
    assert shaped.is_set()
