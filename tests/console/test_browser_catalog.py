"""The public catalog in a real browser: found while typing, compared, reckoned, copied."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
from accountkit import PASSWORD, World
from browserkit import copied, findings, window
from consolekit import Place, console_of
from ledgerkit import record
from marketkit import FREE, Fair, large_market
from playwright.async_api import Page, expect

from causerie.hosted.store.usage import SqlUsage

PATHS = (
    "/catalog",
    "/catalog?q=nothing-is-called-so",
    "/catalog/qwen/qwen3-8b",
    "/catalog/zeta/mystery",
    "/catalog/compare?model=qwen/qwen3-8b&model=acme/iris-large",
    "/catalog/compare",
    "/providers",
    "/providers/north",
    "/rankings",
    f"/catalog/{FREE}/chat",
)


@pytest.fixture
async def page(fair: Place) -> AsyncIterator[Page]:
    """A window that may use the clipboard."""
    async with window(permissions=["clipboard-read", "clipboard-write"]) as opened:
        yield opened


def root(place: Place) -> str:
    return f"http://127.0.0.1:{place.port}/console"


@pytest.mark.full
async def test_models_are_found_while_typing(fair: Place, page: Page) -> None:
    await page.goto(f"{root(fair)}/catalog")
    rows = page.locator(".entries tbody tr")
    await expect(rows).to_have_count(5)
    await page.locator("#q").press_sequentially("qwen")
    await expect(rows).to_have_count(1)  # a model and its variant
    await expect(page.locator("#results [role=status]")).to_have_text("1 of 5 models")
    await expect(page).to_have_url(f"{root(fair)}/catalog?q=qwen")
    await page.select_option("#by-cost", "free")
    await expect(rows).to_have_count(1)
    await page.fill("#q", "")
    await page.select_option("#by-cost", "")
    await page.click(".filter-menu > summary")
    await page.check("[name=parameter][value=logprobs]")
    await expect(rows).to_have_count(2)
    await expect(page.locator(".filter-menu > summary")).to_have_text("More parameters 1")
    await expect(page).to_have_url(f"{root(fair)}/catalog?parameter=logprobs")
    await page.fill("[name=max]", "0.1")
    await expect(rows).to_have_count(1)
    await expect(page).to_have_url(re.compile(r"max=0\.1"))
    await page.reload()
    await expect(rows).to_have_count(1)
    await expect(page.locator("[name=parameter][value=logprobs]")).to_be_checked()
    await page.click("text=Clear the search")
    await expect(rows).to_have_count(5)
    await page.keyboard.press("Escape")
    await page.select_option("#by-sort", "price")
    await expect(rows.first).to_contain_text("Qwen3 8B")


@pytest.mark.full
async def test_what_is_chosen_stays_chosen_and_is_compared(lite: World) -> None:
    async with console_of(lite, service_view=Fair(large_market(100))) as place, window() as page:
        await page.goto(f"{root(place)}/catalog?sort=name")
        bar = page.locator(".compare-bar")
        await expect(bar).to_be_hidden()
        await page.locator(".entries input").nth(0).check()
        await expect(bar).to_contain_text("Choose at least one more")
        await expect(bar.locator(".button-main")).to_be_disabled()
        first = await page.locator(".entries input").nth(0).get_attribute("value")
        await page.click("text=Next")
        await expect(page.locator(".entries input").nth(0)).not_to_have_value(first or "")
        await page.locator(".entries input").nth(3).check()
        second = await page.locator(".entries input").nth(3).get_attribute("value")
        await page.fill("#q", "thing")
        await expect(bar).to_contain_text("2 of at most 4")
        await bar.locator(".button-main").click()
        await expect(page.locator("h1")).to_have_text("Compare")
        heads = page.locator("thead th code")
        await expect(heads).to_have_count(2)
        assert {await heads.nth(0).text_content(), await heads.nth(1).text_content()} == {
            first,
            second,
        }
        await page.click("text=Remove >> nth=0")
        await expect(page.locator(".empty h2")).to_have_text("Choose one more")
        await page.goto(f"{root(place)}/catalog?sort=name")
        for index in (4, 6):
            await page.locator(".entries input").nth(index).check()
        await expect(page.locator(".entries input").nth(7)).to_be_disabled()
        await page.click("[data-choose-clear]")
        await expect(bar).to_be_hidden()
        await expect(page.locator(".entries input").nth(7)).to_be_enabled()


@pytest.mark.full
async def test_costs_follow_what_is_typed(fair: Place, page: Page) -> None:
    await page.goto(f"{root(fair)}/catalog/qwen/qwen3-8b")
    north = page.locator(".costs tbody tr", has_text="north")
    await expect(north).to_contain_text("$0.00015")
    await page.fill("#calc-in", "1000000")
    await page.fill("#calc-requests", "2")
    await expect(north).to_contain_text("$0.10")
    await page.fill("#calc-cached", "2000000")
    await expect(page.locator("#costs [role=alert]")).to_contain_text("more than the")
    await page.fill("#calc-cached", "1000000")
    await expect(north).to_contain_text("$0.0252")


@pytest.mark.full
async def test_a_snippet_is_copied(fair: Place, page: Page) -> None:
    await page.goto(f"{root(fair)}/catalog/qwen/qwen3-8b:free")
    await page.click("text=@openrouter/sdk")
    code = await copied(page, "[data-copy=code-chat-sdk]")
    assert 'model: "qwen/qwen3-8b:free"' in code
    assert f'serverURL: "http://127.0.0.1:{fair.port}/router/v1"' in code
    assert await copied(page, "[data-copy=model-id]") == "qwen/qwen3-8b:free"


@pytest.mark.full
async def test_without_scripts_all_of_it_works(fair: Place) -> None:
    async with window(java_script_enabled=False) as page:
        await page.goto(f"{root(fair)}/catalog")
        await page.fill("#q", "qwen")
        await page.click("text=Search")
        await expect(page.locator(".entries tbody tr")).to_have_count(1)
        await page.goto(f"{root(fair)}/catalog")
        for id in ("acme/iris-large", "qwen/qwen3-8b"):
            await page.locator(f".entries input[value='{id}']").check()
        await page.click("button:has-text('Compare')")
        await expect(page.locator("thead th code")).to_have_count(2)
        await page.click("thead th a:has-text('Qwen3 8B')")
        await page.fill("#calc-out", "0")
        await page.click("text=Calculate")
        await expect(page.locator(".costs tbody tr").first).to_contain_text("free")


async def _begins(page: Page, selector: str) -> float:
    """Return the left edge of an element's text."""
    words = "each => { const range = document.createRange(); range.selectNodeContents(each);"
    found = page.locator(selector).first
    return float(await found.evaluate(words + " return range.getBoundingClientRect().x; }"))


async def _ranked(world: World) -> None:
    at = int(world.now.timestamp()) * 1_000_000 - 3_600_000_000
    await SqlUsage(world.database).append([record(at=at, model="qwen/qwen3-8b")])


@pytest.mark.full
@pytest.mark.parametrize("width", [1280, 390])
async def test_everybody_can_use_it(fair: Place, width: int) -> None:
    await _ranked(fair.world)
    viewport = {"width": width, "height": 850}
    async with window(viewport=viewport, reduced_motion="reduce") as page:
        await _all_can_use_all(page, root(fair), width)


async def _all_can_use_all(page: Page, root: str, width: int) -> None:
    """Both widths see every page, and each page is light in one of them and dark in the other."""
    for number, path in enumerate(PATHS):
        dark = (number + (width == 390)) % 2
        await page.emulate_media(color_scheme="dark" if dark else "light")
        await page.goto(root + path)
        assert await findings(page) == [], path
        wider = "document.documentElement.scrollWidth - innerWidth"
        assert await page.evaluate(wider) <= 0, path
    await page.goto(f"{root}/catalog")
    if width == 1280:
        assert await _begins(page, "thead >> text=Model") == await _begins(page, ".entry")
    else:
        await expect(page.locator(".finder-filters")).to_be_hidden()
        await page.get_by_label("Filters").press("Space")
    await page.locator(".entries input").first.check()
    await page.click(".filter-menu > summary")
    assert await findings(page) == []
    inside = "list => list.scrollWidth - list.clientWidth"
    assert await page.locator(".filter-list").evaluate(inside) <= 0
    box = await page.locator(".filter-list").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


async def test_a_stranger_chats_with_a_free_model(fair: Place, page: Page) -> None:
    await page.goto(f"{root(fair)}/catalog/{FREE}")
    await page.get_by_role("link", name="Chat", exact=True).click()
    await page.fill("#draft", "Which tree?")
    await page.keyboard.press("Enter")
    reply = page.locator(".turn-assistant")
    await expect(reply.locator(".prose").last).to_have_text("Hello")
    await page.fill("#draft", "And why?")
    await page.keyboard.press("Enter")
    await expect(reply).to_have_count(2)
    await expect(reply.last.locator("footer")).to_be_visible()
    assert [each["role"] for each in fair.service_view.talked[1]["messages"]] == [
        "user",
        "assistant",
        "user",
    ]
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.locator("#empty")).to_be_visible()


@pytest.mark.full
async def test_members_reach_it_from_the_frame_and_strangers_sign_in(
    fair: Place, page: Page
) -> None:
    user = await fair.world.person(password=PASSWORD)
    project = await fair.world.project(owner=user)
    await page.goto(f"{root(fair)}/catalog/qwen/qwen3-8b")
    await page.click("text=Get a key")
    await page.fill("[name=email]", user.email)
    await page.fill("[name=password]", PASSWORD)
    await page.click("form .button-main")
    await expect(page.locator("h1")).to_have_text("Create key")
    assert await findings(page) == []
    await page.click("nav >> text=Models")
    await expect(page.locator(".entries tbody tr")).to_have_count(8)
    assert await findings(page) == []
    await page.get_by_role("link", name="Iris Large").click()
    await page.click("text=Try it")
    await expect(page).to_have_url(
        f"{root(fair)}/projects/{project.id}/playground?model=acme/iris-large"
    )
