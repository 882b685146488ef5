"""From an empty service to the first answer: a provider is added, used, and deleted again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import openai
import pytest
from browserkit import Execution, findings, window
from configurekit import SECRET, listing
from playwright.async_api import Page, expect
from service import serving

EMPTY = """
models = []
[store]
folder = "data"
journal = "off"
[[doors]]
name = "hosted"
kind = "hosted"
"""
MODEL = "vendor/small"


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with window(permissions=["clipboard-read", "clipboard-write"]) as opened:
        yield opened


async def ask(execution: Execution, key: str) -> str:
    async with execution.client(key) as client:
        reply = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hello."}]
        )
    return reply.choices[0].message.content or ""


async def health(execution: Execution) -> dict[str, object]:
    async with (
        aiohttp.ClientSession(execution.service.root) as session,
        session.get("/health") as answer,
    ):
        assert answer.status == 200
        return dict(await answer.json())


async def _add(page: Page, base_url: str) -> None:
    """Pick, fill in, try, and add."""
    await expect(page.locator("h1")).to_have_text("Add a provider")
    await page.fill("#find", "mistral")
    await expect(page.locator("#known a")).to_have_count(2)
    assert await findings(page) == []
    await page.get_by_role("link", name="Another address").click()
    await page.fill("[name=name]", "west")
    await page.fill("[name=base_url]", base_url)
    await page.fill("[name=key]", SECRET)
    await page.get_by_role("button", name="Test").click()
    await expect(page.locator(".trial .badge-good")).to_have_count(3)
    assert SECRET not in await page.content()
    assert await page.input_value("[name=key]") == SECRET  # what was typed stays typed
    assert await findings(page) == []
    await page.focus("[name=key]")
    await page.keyboard.press("Enter")


async def _choose(page: Page) -> None:
    """One model of those that the provider lists, by the filter and the box of all."""
    await expect(page.locator(".toast")).to_contain_text("choose its models")
    await page.fill("#find", "small")
    await expect(page.locator("[data-pick]:visible")).to_have_count(1)
    await page.check("[data-pick-all]")
    assert await findings(page) == []
    await page.get_by_role("button", name="Apply").click()
    await expect(page.locator("#targets")).to_contain_text(f"west/{MODEL}")
    await expect(page.locator("#targets")).not_to_contain_text("large")


async def test_from_nothing_to_an_answer_and_back(tmp_path: Path, page: Page) -> None:
    async with listing() as lists:
        with serving(tmp_path, EMPTY) as service:
            execution = Execution(page, service)
            assert "no provider yet" in str((await health(execution))["missing"])
            await execution.arrive()
            await execution.open("Overview")
            await page.get_by_role("link", name="Add a provider or a model").click()
            await _add(page, lists.base_url)
            await _choose(page)
            assert f"authorization: bearer {SECRET}" in lists.heads[-1].lower()
            assert "missing" not in await health(execution)
            await execution.open("API Keys")
            key = await execution.new_key("First")
            assert await ask(execution, key) == "Certainly!"
            await execution.open("Overview")
            await expect(page.locator("#main")).not_to_contain_text("No models")

            await execution.open("Providers")
            await page.get_by_role("link", name="west", exact=True).click()
            await page.click("summary:has-text('More actions')")
            await page.get_by_role("button", name="Switch off").click()
            await expect(page.locator(".toast")).to_contain_text("asked no more")
            with pytest.raises(openai.NotFoundError):
                await ask(execution, key)
            assert await findings(page) == []
            await page.click("summary:has-text('More actions')")
            await page.get_by_role("link", name="Delete").click()
            await expect(page.locator("dialog")).to_contain_text("1 alias")
            await page.click("dialog .button-bad")
            await expect(page.locator(".empty")).to_contain_text("No providers yet")
            assert SECRET not in service.log.read_text()
