"""The whole way of a team's first day: one browser, one service of its own, the official client."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from browserkit import Execution, window
from hostedkit import config
from playwright.async_api import Page, expect
from service import serving

OWN = shlex.quote("""
import openai
ask = openai.OpenAI().chat.completions.create
reply = ask(model="small", messages=[{"role": "user", "content": "Mine."}])
print(reply.choices[0].message.content)
""")
REAL = """
[store]
folder = "data"
[[doors]]
name = "hosted"
kind = "hosted"
[[models]]
id = "small"
ref = "{weights}"
llamacpp = {{ context = 2048 }}
price = {{ prompt = "1000", completion = "2000" }}
"""


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with window(permissions=["clipboard-read", "clipboard-write"]) as opened:
        yield opened


async def ran(*command: str) -> str:
    """Return the output of a program."""
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    out, trouble = await process.communicate()
    assert process.returncode == 0, trouble.decode()
    return out.decode().strip()


async def _spend_all(execution: Execution, key: str) -> openai.APIStatusError:
    """Ask until the budget is used up; gives the refusal."""
    for _ in range(100):
        try:
            await execution.ask(key)
        except openai.APIStatusError as refusal:
            return refusal
    raise AssertionError("a hundred requests, and the budget still holds")


async def _use_is_shown(execution: Execution) -> None:
    """The list of keys, usage and activity know of the two requests that were made."""
    page = execution.page
    row = page.locator("tbody tr")
    await execution.until(row.filter(has_text="$0.0").filter(has_text="of $0.30"))
    await execution.open("Usage")
    await execution.until(page.locator(".tile:has-text('Requests') dd").first.filter(has_text="2"))
    await expect(page.locator("table").last).to_contain_text("small")
    await execution.open("Activity")
    rows = page.locator("details.request")
    await expect(rows).to_have_count(2)
    await rows.first.locator("summary").click()
    await expect(rows.first).to_contain_text("Nightly report")
    await expect(rows.first).to_contain_text("streamed")


async def _refusal_is_explained(execution: Execution) -> None:
    """Activity says which budget, and the list of keys that it is used up."""
    page = execution.page
    await execution.open("Activity")
    refusals = page.locator("details.request", has=page.locator("summary .badge:text-is('402')"))
    await execution.until(refusals)
    await refusals.first.locator("summary").click()
    await expect(refusals.first).to_contain_text("budget")
    await execution.open("API Keys")
    await expect(page.locator("tbody .meter-bad")).to_have_count(1)


@pytest.mark.full
async def test_from_the_printed_link_to_a_revoked_key(
    tmp_path: Path, gguf: Path, page: Page
) -> None:
    with serving(tmp_path, REAL.format(weights=gguf)) as service:
        execution = Execution(page, service)
        await execution.arrive()
        first = await execution.new_key("Nightly report", budget="0.30")
        assert await execution.ask(first)
        assert await execution.stream(first)
        await _use_is_shown(execution)

        refusal = await _spend_all(execution, first)
        assert (refusal.status_code, refusal.code) == (402, "insufficient_budget")
        assert "budget of this key" in refusal.message
        await _refusal_is_explained(execution)

        await execution.act("Edit")
        await page.fill("dialog [name=budget_amount]", "50")
        await page.click("dialog .button-main")
        await expect(page.locator("tbody tr")).to_contain_text("of $50.00")
        await execution.let_in_again(first)

        second = await execution.rotate("in 1 hour")
        assert second != first
        for secret in (first, second):
            assert await execution.ask(secret)
        third = await execution.rotate("now")
        for secret in (first, second):
            await execution.refused(secret)
        assert await execution.ask(third)

        await execution.act("Delete")
        await page.click("dialog .button-bad")
        await expect(page.locator(".empty")).to_contain_text("No keys yet")
        await execution.refused(third)
        assert not {first, second, third} & set(re.findall(r"ck_\w+", service.log.read_text()))


@pytest.mark.full
async def test_what_a_new_key_shows_to_copy_works_as_it_is(tmp_path: Path, page: Page) -> None:
    with serving(tmp_path, config()) as service:
        execution = Execution(page, service)
        await execution.arrive()
        await execution.begin("Snippets")
        await page.click("dialog .button-main")
        await expect(page.locator("#code-curl")).to_be_visible()
        told = json.loads(await ran("sh", "-c", await execution.code("curl")))
        assert told["choices"][0]["message"]["content"] == "Hello!"
        assert await ran(sys.executable, "-c", await execution.code("python")) == "Hello!"
        variables = await execution.code("environment")
        assert await ran("sh", "-c", f"{variables}\nexec {sys.executable} -c {OWN}") == "Mine."
        await execution.done()

        await execution.begin("For a script")
        await page.check("dialog [name=purpose][value=management]")
        await page.click("dialog .button-main")
        await expect(page.locator("#code-curl")).to_contain_text("/api/")
        keys = json.loads(await ran("sh", "-c", await execution.code("curl")))
        assert {each["name"] for each in keys["data"]} == {"Snippets", "For a script"}


@pytest.mark.full
async def test_what_was_said_is_shown_where_its_row_is_opened(tmp_path: Path, page: Page) -> None:
    with serving(tmp_path, config()) as service:
        execution = Execution(page, service)
        await execution.arrive()
        key = await execution.new_key("Chat")
        await execution.ask(key, "Before.")
        await page.locator("nav").get_by_role("link", name="Project", exact=True).click()
        await page.get_by_role("link", name="Logging", exact=True).click()
        await page.fill("[name=days]", "7")
        await page.click("text=Turn on")
        await expect(page.locator("#main")).to_contain_text("are kept for 7 days")

        await execution.open("Activity")
        rows = page.locator("details.request")
        async with asyncio.timeout(60):
            while not await page.get_by_text("Show prompt and reply", exact=True).count():
                await execution.ask(key, "<b>Bold</b> words.")
                await page.reload()
        await expect(page.locator(".page-head")).to_contain_text("kept for 7 days")
        await rows.first.locator("summary").click()
        contents = rows.first.locator(".request-contents")
        await expect(contents.locator("pre").first).to_contain_text("<b>Bold</b> words.")
        await expect(contents).to_contain_text("7 days")
        assert await contents.locator("b").count() == 0
        await rows.last.locator("summary").click()
        await expect(rows.last.locator(".request-contents")).to_have_count(0)
