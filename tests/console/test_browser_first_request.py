"""The whole way of a team's first day: one browser, one service of its own, the official client."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest
from browserkit import window
from hostedkit import config
from openai import AsyncOpenAI
from playwright.async_api import Locator, Page, expect
from service import Service, serving

_LINK = re.compile(r"http://\S+/console/link#\S+")
PASSWORD = "nine purple ladders hum"
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


@dataclass(frozen=True, slots=True)
class Execution:
    """Somebody at their browser, and the service that they have started."""

    page: Page
    service: Service

    async def first_link(self) -> str:
        """Return the link that the service prints for the first person once it is ready."""
        async with asyncio.timeout(20):
            while True:
                if found := _LINK.search(self.service.log.read_text()):
                    return found[0]
                await asyncio.sleep(0.02)  # another process writes it

    async def arrive(self) -> None:
        """Make the owner's account by the link, which brings a project with it."""
        page = self.page
        await page.goto(await self.first_link())
        await page.fill("[name=email]", "ada@example.org")
        await page.fill("[name=name]", "Ada")
        await page.fill("[name=password]", PASSWORD)
        await page.click("text=Create account")
        await self.open("API Keys")

    async def open(self, title: str) -> None:
        """Go to a page by the navigation."""
        await self.page.locator("nav").get_by_role("link", name=title, exact=True).click()
        await expect(self.page.locator("#main h1")).to_have_text(title)

    async def until(self, there: Locator) -> None:
        """Load the page anew until it shows this: another task writes what it reads."""
        async with asyncio.timeout(20):
            while not await there.count():
                await self.page.reload()

    async def begin(self, name: str) -> None:
        """Open the form of a new key."""
        await self.page.locator(".page-head").get_by_text("Create key").click()
        await self.page.fill("dialog [name=name]", name)

    async def new_key(self, name: str, budget: str = "") -> str:
        """Make a key, and take its secret from the clipboard."""
        page = self.page
        await self.begin(name)
        if budget:
            await page.click("dialog summary:has-text('Budget')")
            await page.click("text=Add a budget")
            await page.fill("dialog [name=budget_amount]", budget)
        await page.click("dialog .button-main")
        return await self.copied()

    async def copied(self) -> str:
        """The secret that the dialog shows once, by its copy button; the dialog is closed."""
        page = self.page
        await page.click("dialog [data-copy=credential]")
        await expect(page.locator("dialog [data-copy=credential]")).to_contain_text("Copied")
        secret = str(await page.evaluate("navigator.clipboard.readText()"))
        assert re.fullmatch(r"ck_[A-Za-z0-9]+_\w+", secret)
        async with page.expect_event("load"):  # the page behind is loaded anew
            await page.click("dialog >> text=Done")
        assert secret not in await page.content()
        return secret

    async def code(self, id: str) -> str:
        """Return the text that a tab of the dialog offers to copy."""
        return await self.page.text_content(f"dialog #code-{id}") or ""

    async def act(self, name: str) -> None:
        """Choose from the menu of the one key that there is."""
        await self.page.click("tbody summary")
        await self.page.locator("tbody .menu-list").get_by_text(name, exact=True).click()

    async def rotate(self, grace: str) -> str:
        """Another secret for the key."""
        await self.act("Rotate secret")
        await self.page.select_option("dialog [name=grace]", label=grace)
        await self.page.click("dialog .button-main")
        return await self.copied()

    def client(self, key: str) -> AsyncOpenAI:
        """Return a client as a program of theirs uses it."""
        return AsyncOpenAI(
            api_key=key, base_url=f"{self.service.root}/hosted/v1", max_retries=0, timeout=60
        )

    async def ask(self, key: str, words: str = "Say hello.") -> str:
        async with self.client(key) as client:
            reply = await client.chat.completions.create(
                model="small", messages=[{"role": "user", "content": words}], max_tokens=8
            )
        assert reply.usage is not None
        assert reply.usage.completion_tokens
        return reply.choices[0].message.content or ""

    async def stream(self, key: str) -> str:
        async with self.client(key) as client:
            chunks = await client.chat.completions.create(
                model="small",
                messages=[{"role": "user", "content": "Say hello."}],
                max_tokens=8,
                stream=True,
            )
            return "".join(
                [each.choices[0].delta.content or "" async for each in chunks if each.choices]
            )

    async def let_in_again(self, key: str) -> None:
        """Wait until a raised budget admits the key: the doors hear of it within a second."""
        async with asyncio.timeout(20):
            while True:
                try:
                    assert await self.ask(key)
                    return
                except openai.APIStatusError as refusal:
                    if refusal.status_code != 402:
                        raise

    async def refused(self, key: str) -> None:
        """This key opens nothing any more, from a moment within the next second."""
        async with self.client(key) as client, asyncio.timeout(1):
            with pytest.raises(openai.AuthenticationError):
                while True:
                    await client.models.list()
        with pytest.raises(openai.AuthenticationError):
            await self.ask(key)


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
        await page.click("dialog >> text=Done")

        await execution.begin("For a script")
        await page.check("dialog [name=purpose][value=management]")
        await page.click("dialog .button-main")
        await expect(page.locator("#code-curl")).to_contain_text("/api/")
        keys = json.loads(await ran("sh", "-c", await execution.code("curl")))
        assert {each["name"] for each in keys["data"]} == {"Snippets", "For a script"}


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
        async with asyncio.timeout(20):
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
