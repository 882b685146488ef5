"""Pages of operators in a real browser: for everybody, on every width, and nothing moves."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from accountkit import PASSWORD, World
from browserkit import UNSEEN, findings, moved, sign_in, window
from configurekit import Listing, added, configured
from consolekit import Place, ScriptedServiceView, console_of
from operationskit import alerted, lived
from playwright.async_api import Page, expect

PATHS = (
    *(
        "alerts",
        "alerts/channels/new?kind=webhook",
        "aliases",
        "catalog",
        "models",
    ),
    *("providers?model=pool", "users", "audit?kind=alias"),
    *("providers/north", "providers/west/models", "providers/west/publish?margin=20"),
)

_WIDER = (
    "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => "
    "Math.max(document.documentElement.scrollWidth - innerWidth, ..."
    "[...document.querySelectorAll('.card > .table')].map((one) => Math.floor("
    "one.getBoundingClientRect().right - one.parentElement.getBoundingClientRect().right))))"
)


@pytest.fixture
async def bench(lite: World, tmp_path: Path) -> AsyncIterator[tuple[Place, Listing]]:
    """A console over a market that was used, and a provider whose list has models."""
    async with configured(lite, tmp_path) as (market, lists):
        await lived(market)
        await alerted(market)
        await added(market, "provider", name="west", base_url=lists.base_url)
        view = ScriptedServiceView()
        view.operations = market.services
        async with console_of(lite, service_view=view) as place:
            yield place, lists


@pytest.mark.full
async def test_everybody_can_use_them_on_every_width(bench: tuple[Place, Listing]) -> None:
    place, _ = bench
    root = f"http://127.0.0.1:{place.port}/console"
    boss = await place.world.person(operator=True, password=PASSWORD)
    async with window(reduced_motion="reduce") as page:
        # The font in its place is wider, and is what a slow machine shows.
        await page.route("**/inter*.woff2", lambda route: route.abort())
        await sign_in(page, root, boss)
        for number, path in enumerate(PATHS):
            await page.emulate_media(color_scheme=("light", "dark")[number % 2])  # type: ignore[arg-type]
            await page.set_viewport_size({"width": 1440, "height": 900})
            await page.goto(f"{root}/operator/{path}")
            assert await moved(page) < UNSEEN, path
            assert await _wider(page) <= 0, path
            await page.set_viewport_size({"width": 1440, "height": 720})
            assert await _hidden_navigation(page) <= 0, path
            for width in (1030, 770, 390):  # with the navigation, without it, and rows that fold
                await page.set_viewport_size({"width": width, "height": 844})
                assert await _wider(page) <= 0, (path, width)
            assert await findings(page) == [], path
            if path.startswith("audit"):
                await _filtered(page)
        await _sorted(page)


async def _wider(page: Page) -> int:
    """Pixels by which the page is wider than the window, or a table than its card.

    A page that is given another width is laid out anew before it is asked.
    """
    return int(await page.evaluate(_WIDER))


async def _hidden_navigation(page: Page) -> int:
    """Pixels of the navigation that are out of sight."""
    return int(
        await page.locator(".sidebar").evaluate("each => each.scrollHeight - each.clientHeight")
    )


async def _filtered(page: Page) -> None:
    """Filters are a sheet behind a button, for the keyboard too, and the page has them back."""
    button, form = page.locator("[data-filters-open]"), page.locator("form.filters")
    await expect(button).to_have_text("Filters1 active")
    await expect(form).to_be_hidden()
    await button.press("Enter")
    assert await findings(page) == []
    await page.keyboard.press("Escape")
    await expect(button).to_be_focused()
    await button.press("Enter")
    await form.get_by_label("About").select_option("provider")
    await form.get_by_role("button", name="Filter").press("Enter")
    await expect(page.locator(".audit-change p").first).to_have_text("created the provider west")
    await expect(page.locator("dialog[open]")).to_have_count(0)


async def _sorted(page: Page) -> None:
    """A list of models is sorted by the keyboard; what is sent by the service keeps its margin."""
    names = page.locator(".picks tbody strong")
    await expect(names.first).to_have_text("vendor/small")
    await page.get_by_role("link", name="Context").press("Enter")
    await expect(names.first).to_have_text("vendor/large")
    await expect(page).to_have_url(re.compile("margin=20"))
    await expect(page.locator("[name=margin]").first).to_have_value("20")
