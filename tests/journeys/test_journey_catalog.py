"""A public catalog: import, public page, sign-up, key, request, spend.

The page: docs/start/catalog.md, whose configuration this is. The provider and the mail server are
scripted.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from browserkit import NEW_PASSWORD, Execution, findings, windows
from configurekit import SECRET, Listing, listing
from journeykit import Steps
from playwright.async_api import Page, expect
from service import free_port, serving
from smtpserver import Mailbox, smtp, text_of

PAGE = Path(__file__).parents[2] / "docs" / "start" / "catalog.md"
MODEL = "vendor/small"
VISITOR = "eve@example.net"
_LINK = re.compile(r"http://[^\s\"]+/console/link(\?[^\s#\"]*)?#[\w-]+")


@pytest.fixture
async def mail() -> AsyncIterator[Mailbox]:
    """Where letters go."""
    async with smtp() as box:
        yield box


@pytest.fixture
async def lists() -> AsyncIterator[Listing]:
    """A provider that lists its models."""
    async with listing() as made:
        yield made


def configuration(folder: Path, port: int, mail: Mailbox) -> str:
    """Return the file of the page, with the addresses from here."""
    found = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    text = re.sub(r"(?m)^(user|password) = .*\n", "", found[1])
    text = text.replace("https://catalog.example.org", f"http://127.0.0.1:{port}")
    mailed = f'host = "127.0.0.1"\nport = {mail.port}\ntls = "off"'
    text, hosts = re.subn(r'(?m)^host = ".*"$', mailed, text)
    assert hosts == 1
    return f'{text}\n[store]\nfolder = "{folder}"\n'


async def publish(execution: Execution, base_url: str) -> None:
    """Add a provider, and publish one of its models with a margin."""
    page = execution.page
    await page.get_by_role("link", name="Add a provider or a model").click()
    await page.get_by_role("link", name="Another address").click()
    await page.fill("[name=name]", "west")
    await page.fill("[name=base_url]", base_url)
    await page.fill("[name=key]", SECRET)
    await page.get_by_role("button", name="Add and choose models").click()
    await expect(page.locator("h1")).to_have_text("Models of west")
    await execution.open("Catalog models")
    await page.get_by_role("link", name="Import from west").click()
    await page.fill("[name=margin]", "50")
    await page.get_by_role("button", name="Show").click()
    await page.locator(f"tr[data-pick^='{MODEL}'] [name=pick]").check()
    assert await findings(page) == []
    await page.get_by_role("button", name="Publish what is picked").click()
    await expect(page.locator(".toast")).to_contain_text("published")


async def see(visitor: Page, root: str) -> None:
    """Somebody without an account finds the model and its price."""
    await visitor.goto(f"{root}/console/catalog")
    await visitor.get_by_role("link", name="Small").click()
    await expect(visitor.locator("h1")).to_have_text("Small")
    await expect(visitor.locator(".tile").first).to_contain_text("$0.30")
    assert await findings(visitor) == []


async def sign_up(visitor: Page, mail: Mailbox) -> None:
    """They ask for an account, and make it by the link of the letter."""
    await visitor.click("text=Get a key")
    await visitor.fill("[name=email]", VISITOR)
    await visitor.get_by_role("button", name="Continue").click()
    await expect(visitor.locator("h1")).to_have_text("Check your e-mail")
    letter = await mail.letter()
    assert letter["To"] == VISITOR
    link = _LINK.search(text_of(letter))
    assert link is not None
    await visitor.goto(link[0])
    await visitor.fill("[name=name]", "Eve")
    await visitor.fill("[name=password]", NEW_PASSWORD)
    await visitor.click("text=Create account")


async def first_key(page: Page) -> str:
    """They are where a key is created; its page shows the model they came from, and asks it."""
    await page.fill("[name=name]", "Mine")
    await page.click("#panel .button-main")
    await expect(page.locator("#code-chat-curl")).to_contain_text(MODEL)
    await page.click("[data-run-send]")
    await expect(page.locator("[data-run-reply]")).to_have_text("Certainly!")
    assert await findings(page) == []
    return await page.inner_text("#credential")


async def spent(visitor: Execution, operator: Execution) -> None:
    """Both see what two requests cost, each 10 tokens of input and 2 of output."""
    await visitor.open("Usage")
    tiles = visitor.page.locator(".tile:has-text('Requests') dd")
    await visitor.until(tiles.first.filter(has_text="2"))
    await expect(visitor.page.locator("#main")).to_contain_text(MODEL)
    await operator.open("Users")
    row = operator.page.locator("tbody tr", has_text=VISITOR)
    await operator.until(row.filter(has_text="$0.0000"))


@pytest.mark.full
async def test_from_an_import_to_a_stranger_who_spends(
    tmp_path: Path, lists: Listing, mail: Mailbox, steps: Steps
) -> None:
    async with AsyncExitStack() as stack:
        with steps.step("Start: `causerie serve --config causerie.toml`"):
            port = free_port()
            text = configuration(tmp_path / "data", port, mail)
            service = stack.enter_context(serving(tmp_path, text, ready_seconds=240, port=port))
        pages = await stack.enter_async_context(
            windows(2, permissions=["clipboard-read", "clipboard-write"])
        )
        operator, visitor = (Execution(page, service, door="router", model=MODEL) for page in pages)
        with steps.step("Create the operator's account by the printed link"):
            await operator.arrive()
            await operator.open("Overview")
        with steps.step("Add a provider and publish a model with a margin"):
            await publish(operator, lists.base_url)
        with steps.step("See the public page, without an account"):
            await see(visitor.page, service.root)
        with steps.step("Sign up with a verified e-mail address"):
            await sign_up(visitor.page, mail)
        with steps.step("Create a key"):
            key = await first_key(visitor.page)
        with steps.step("Send a request"):
            assert await visitor.ask(key) == "Certainly!"
        with steps.step("See what was spent"):
            await spent(visitor, operator)
        log = service.log.read_text()
        assert not [one for one in (SECRET, key, VISITOR) if one in log]
