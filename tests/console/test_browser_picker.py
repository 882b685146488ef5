"""The choice among hundreds of models: a search and a list, by keyboard and by touch."""

from __future__ import annotations

import pytest
from accountkit import PASSWORD
from browserkit import findings, sign_in, window
from consolekit import Place
from frontkit import entry, front
from playwright.async_api import expect

HUNDREDS = tuple(
    entry(f"{author}/{size}-{nth}", "temperature tools", 8192)
    for author in ("acme", "north", "south")
    for size in ("small", "large")
    for nth in range(20)
)


async def test_hundreds_of_models_are_searched() -> None:
    async with front() as service, window(viewport={"width": 390, "height": 844}) as page:
        service.pipeline.entries = HUNDREDS
        await page.goto(service.root)
        button, find = page.locator("#model-picker"), page.get_by_label("Find a model")
        rows = page.get_by_role("option")
        await expect(button).to_have_accessible_name("Model: acme/small-0")
        await button.press("ArrowDown")
        await expect(find).to_be_focused()
        await expect(page.locator("#picker-count")).to_contain_text("120 of 120, of which 100")
        await expect(rows).to_have_count(100)
        await expect(page.get_by_role("option", selected=True)).to_contain_text("acme/small-0")
        assert await findings(page) == []
        await page.keyboard.type("large-7 h")
        await expect(page.locator("#picker-count")).to_have_text("2 of 120")
        await page.keyboard.press("ArrowDown")
        await expect(page.get_by_role("option", selected=True)).to_contain_text("south/large-7")
        described = await find.get_attribute("aria-activedescendant")
        assert await page.locator(f"#{described}").inner_text() == "south/large-7\ntools"
        await page.keyboard.press("Enter")
        await expect(button).to_be_focused()
        await expect(button).to_have_accessible_name("Model: south/large-7")
        await expect(page.locator("#model")).to_have_value("south/large-7")
        await expect(page.locator(".pane [data-is=abilities]").first).to_contain_text("tools")

        await button.press("n")  # the letter is the beginning of a search
        await expect(find).to_have_value("n")
        await find.fill("no such model")
        await expect(page.locator("#picker-count")).to_have_text("No model has this in its name")
        await page.keyboard.press("Escape")
        await expect(button).to_be_focused()
        await button.click()
        await expect(rows.first).to_contain_text("south/large-7")
        await rows.nth(1).click()
        await expect(button).to_have_text("acme/small-0")
        await button.click()
        await page.mouse.click(195, 830)  # outside of the list
        await expect(page.locator("#picker")).to_be_hidden()


@pytest.mark.full
async def test_keys_and_models_of_forms_are_searched(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await place.world.person(password=PASSWORD)
    project = await place.world.project(owner=owner)
    keys = [await place.world.key(project, owner, name=f"robot {n}") for n in range(9)]
    root = f"http://127.0.0.1:{place.port}/console"
    async with window(viewport={"width": 1440, "height": 900}) as page:
        await sign_in(page, root, owner)
        await page.goto(f"{root}/projects/{project.id}/activity")
        await page.get_by_label("Key", exact=True).click()  # its script comes now
        await expect(page.get_by_label("Find a key")).to_be_focused()
        await page.keyboard.press("Escape")
        button = page.locator("#filter-key-picker")
        await expect(button).to_be_focused()
        await expect(button).to_have_accessible_name("Key: Any")
        await button.press("Enter")
        await page.get_by_label("Find a key").fill("robot 7")
        await expect(page.locator("#picker-count")).to_have_text("1 of 10")
        await page.keyboard.press("Enter")
        await expect(button).to_have_text("robot 7")
        await page.get_by_role("button", name="Filter", exact=True).click()
        await page.wait_for_url(f"**key={keys[7].key.id}**")
        await page.reload()
        key = page.get_by_label("Key", exact=True)
        await expect(key).to_have_value(keys[7].key.id)
        await key.focus()
        await page.keyboard.type("bot 3")  # all letters begin the search, before its script too
        await expect(page.get_by_label("Find a key")).to_have_value("bot 3")
        await page.keyboard.press("Enter")
        await expect(button).to_have_text("robot 3")
        await expect(button).to_be_focused()

        # A row of limits that is added has the list too, in a dialog as well.
        models = [{"id": f"acme/model-{n}"} for n in range(9)]
        monkeypatch.setattr(place.service_view, "models", lambda door=None, rules=(): models)
        await page.goto(f"{root}/projects/{project.id}/keys")
        await page.get_by_role("link", name="Create key").click()
        await page.get_by_text("Rate limits").click()
        await page.get_by_role("button", name="Add a limit").click()
        await page.locator("select[name=limit_model]").press("m")
        await page.get_by_label("Find a model").fill("model-7")
        await page.keyboard.press("Enter")
        await expect(page.locator("select[name=limit_model]")).to_have_value("acme/model-7")
        await expect(page.locator("#panel")).to_be_visible()
