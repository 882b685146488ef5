"""The API reference in a real browser: examples run here, with a key that goes nowhere else."""

from __future__ import annotations

import json

import pytest
from browserkit import UNSEEN, findings, moved, window
from edgekit import KEY, LOCKED
from frontkit import front
from playwright.async_api import Page, Request, expect

from causerie.protocol.events import Finished, TextDelta, Usage

COMPLETION = "#createChatCompletion"
CLIENTS = {
    "createResponse": "client.responses.create(",
    "createMessage": "client.messages.create(",
    "countMessageTokens": "body, headers=headers",
}


@pytest.mark.full
async def test_an_example_runs_with_a_typed_key_and_is_found_by_its_words() -> None:
    async with front(LOCKED) as service, window(viewport={"width": 390, "height": 844}) as page:
        service.pipeline.script = (TextDelta("Glomma."), Finished("stop"), Usage(7, 3))
        sent: list[Request] = []
        page.on("request", lambda one: sent.append(one))
        await page.goto(f"{service.root}/docs")
        await expect(page.locator("#model-hint")).to_contain_text("API key")
        await page.fill("#key", KEY)
        await page.press("#key", "Tab")
        await expect(page.locator("#model")).to_have_value("small")
        code = page.locator("#createChatCompletion-code-curl")
        await expect(code).to_contain_text('"model": "small"')
        await expect(code).not_to_contain_text(KEY)
        for operation, words in CLIENTS.items():
            shown = page.locator(f"#{operation}-code-Python")
            await expect(shown).to_contain_text(words)
        await _run(page, COMPLETION)
        await expect(page.locator(f"{COMPLETION} [data-status]")).to_contain_text("200 OK")
        await expect(page.locator(f"{COMPLETION} [data-result]")).to_contain_text("Glomma.")
        body = page.locator(f"{COMPLETION} textarea")
        await body.fill("{")
        await expect(page.locator(f"{COMPLETION} [data-run]")).to_be_disabled()
        streamed = {"model": "small", "messages": [{"role": "user", "content": "a"}]}
        await body.fill(json.dumps(streamed | {"stream": True}))
        await _run(page, COMPLETION)
        await expect(page.locator(f"{COMPLETION} [data-result]")).to_contain_text("data: [DONE]")
        await _run(page, "#showHealth")
        await expect(page.locator("#showHealth [data-result]")).to_contain_text('"status"')
        assert await findings(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        await _search(page)
        assert {one.url.split("/")[2] for one in sent} == {service.root.split("/")[2]}
        keyed = {one.url for one in sent if "authorization" in one.headers}
        assert keyed == {f"{service.root}/v1/models", f"{service.root}/v1/chat/completions"}
        kept = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
        assert KEY not in await page.evaluate(kept)


async def _run(page: Page, operation: str) -> None:
    fold = page.locator(f"{operation} .docs-fold")
    if await fold.get_attribute("open") is None:  # as it is in a narrow window
        await fold.locator("> summary").press("Enter")
    await page.click(f"{operation} [data-run]")
    await expect(page.locator(f"{operation} [data-stop]")).to_be_hidden()


async def _search(page: Page) -> None:
    await page.locator("h1").click()
    await page.keyboard.press("/")
    await page.keyboard.type("stream_options")
    await expect(page.locator("[data-found]:visible")).to_have_count(2)  # chats, and completions
    found = page.locator("[data-found]:visible").first
    await expect(found.locator("[data-row]:visible")).to_have_count(1)  # of all its parameters
    await found.locator("a", has_text="StreamOptions").click()  # the search hides it
    await expect(page.locator("#StreamOptions")).to_have_attribute("open", "")
    await expect(page.locator("#find")).to_have_value("")


@pytest.mark.full
async def test_the_contents_follow_what_is_read() -> None:
    async with front() as service, window(viewport={"width": 1440, "height": 900}) as page:
        await page.goto(f"{service.root}/docs#createChatCompletion")
        read = page.locator(".nav [aria-current]")
        await expect(read).to_have_text("Create a chat completion")
        example = page.locator(f"{COMPLETION} form")
        before = await example.bounding_box()
        await page.mouse.wheel(0, 600)
        await page.wait_for_function("scrollY > 600")
        after = await example.bounding_box()
        assert before is not None
        assert after is not None
        assert after["y"] > before["y"] - 300  # stays alongside the parameters
        await page.keyboard.press("End")
        await expect(read).to_have_text("Objects")
        assert await moved(page) < UNSEEN
