"""A platform engineer: containers, provider, alias, person, budget, alert, and what LiteLLM had.

The page: docs/start/team.md. No container runs here: the service gets the configuration and the
variables of deploy/compose, beside a real PostgreSQL and a real Valkey, as the image starts it;
tests/deploy runs the steps of the image. The provider is scripted.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
import yaml
from browserkit import NEW_PASSWORD, Execution, findings, windows
from configurekit import SECRET, Listing, listing
from journeykit import Desk, Steps, desk
from playwright.async_api import Page, expect
from service import SHARED_CORES, Service, serving
from valkeyserver import ValkeyServer
from waiting import eventually
from webhookreceiver import SECRET as ALERTS_SECRET
from webhookreceiver import Receiver, webhook_receiver

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"
MODEL = "vendor/small"
LITELLM = """
model_list:
  - model_name: legacy
    litellm_params: {{model: openai/vendor/large, api_base: "{url}", api_key: os.environ/OLD_KEY}}
litellm_settings: {{drop_params: true}}
"""


def described(database: str, shared: str) -> dict[str, str]:
    """Return the variables that compose.yaml gives to the service, with the addresses from here."""
    service = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]["causerie"]
    here = {
        "CAUSERIE_STORE_URL": database,
        "CAUSERIE_SHARED_URL": shared,
        "STORE_SECRET_KEY": "S" * 43 + "=",
        "ALERTS_SECRET": ALERTS_SECRET,
    }
    assert set(service["environment"]) == set(here)
    return here


def configuration() -> str:
    """Return the file that compose.yaml mounts.

    The address of the console is that of the test, nothing collects metrics, and budgets are
    looked at more often.
    """
    text = (COMPOSE / "configuration" / "causerie.toml").read_text()
    text, found = re.subn(r'(?m)^(address|listen) = ".*$', "", text)
    assert found == 2
    return f"{text}\n[alerts]\naccounts_seconds = 0.2\n"


@pytest.fixture
async def hook() -> AsyncIterator[Receiver]:
    """Where alerts go."""
    async with webhook_receiver() as made:
        yield made


@pytest.fixture
async def lists() -> AsyncIterator[Listing]:
    """A provider that lists its models."""
    async with listing() as made:
        yield made


@dataclass(frozen=True, slots=True)
class Office:
    """What the engineer has started, and their shell."""

    service: Service
    desk: Desk


@pytest.fixture
def office(
    tmp_path: Path, hosted_database: str, valkey: ValkeyServer, steps: Steps
) -> Iterator[Office]:
    """The service of deploy/compose."""
    variables = described(hosted_database, valkey.url)
    context = serving(
        tmp_path,
        configuration(),
        environment={**SHARED_CORES, **variables},
        ready_seconds=240,
    )
    with steps.step("Start: `docker compose up` (here without containers)"):
        service = context.__enter__()
    try:
        shell = {"CAUSERIE_CONFIG": str(tmp_path / "causerie.toml"), **variables}
        yield Office(service, desk(tmp_path, tmp_path, **shell))
    finally:
        context.__exit__(None, None, None)


async def health(service: Service) -> dict[str, Any]:
    async with aiohttp.ClientSession(service.root) as session, session.get("/health") as answer:
        assert answer.status == 200
        return dict(await answer.json())


async def _complete(service: Service) -> bool:
    return "missing" not in await health(service)


async def add_provider(page: Page, base_url: str) -> None:
    """Pick, fill in, try, and add."""
    await page.get_by_role("link", name="Add a provider or a model").click()
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


async def choose_models(page: Page) -> None:
    """One model of those that the provider lists, by the filter and the box of all."""
    await expect(page.locator(".toast")).to_contain_text("choose its models")
    await page.fill("#find", "small")
    await expect(page.locator("[data-pick]:visible")).to_have_count(1)
    await page.check("[data-pick-all]")
    assert await findings(page) == []
    await page.get_by_role("button", name="Apply").click()
    await expect(page.locator("#targets")).to_contain_text(f"west/{MODEL}")
    await expect(page.locator("#targets")).not_to_contain_text("large")


async def create_alias(execution: Execution) -> None:
    """A name of the team's own, with a price."""
    page = execution.page
    await execution.open("Aliases")
    await page.locator(".page-head").get_by_text("Create alias").click()
    await page.fill("#panel [name=id]", "chat")
    await page.select_option("#panel [name=target_provider]", "west")
    await page.fill("#panel [name=target_model]", MODEL)
    await page.click("#panel summary:has-text('Name, price')")
    await page.fill("#panel [name='price.prompt']", "1000")
    await page.fill("#panel [name='price.completion']", "2000")
    await page.click("#panel .button-main")
    await expect(page.locator(".toast")).to_be_visible()
    await expect(page.locator("tbody tr", has_text="chat")).to_contain_text("west/vendor/small")


async def invite(execution: Execution) -> str:
    """Return the link for a colleague."""
    page = execution.page
    await page.locator("nav").get_by_role("link", name="Project", exact=True).click()
    await page.locator("#main").get_by_text("Invite", exact=True).click()
    await page.fill("#panel [name=email]", "bob@example.org")
    await page.click("#panel .button-main")
    link = await page.locator("#link").text_content()
    await page.click("#panel >> text=Done")
    return link or ""


async def accept(execution: Execution, link: str) -> str:
    """The colleague makes an account, signs in and makes a key; returns the key."""
    page = execution.page
    await page.goto(link)
    await page.fill("[name=name]", "Bob")
    await page.fill("[name=password]", NEW_PASSWORD)
    await page.click("text=Create account")
    await expect(page.locator("h1")).to_have_text("Sign in")
    await page.fill("[name=email]", "bob@example.org")
    await page.fill("[name=password]", NEW_PASSWORD)
    await page.click("form .button-main")
    await execution.open("API Keys")
    return await execution.new_key("Mine")


async def bound(execution: Execution) -> None:
    """The colleague may spend ten cents a month."""
    page = execution.page
    await execution.open("Users")
    row = page.locator("tbody tr", has_text="bob@example.org")
    await row.locator("summary").click()
    await row.get_by_text("Limits and budgets").click()
    await page.click("#panel >> text=Add a budget")
    await page.fill("#panel [name=budget_amount]", "0.10")
    await page.click("#panel .button-main")
    await expect(row.locator(".meter")).to_contain_text("of $0.10")


async def spend(execution: Execution, key: str, hook: Receiver) -> None:
    """The colleague asks until the budget is used up, and the webhook tells of it."""
    with pytest.raises(openai.APIStatusError) as refusal:
        async with asyncio.timeout(60):
            while True:
                await execution.ask(key)
    assert refusal.value.status_code == 402
    assert "budget" in refusal.value.message
    while (posted := await hook.next()).body["type"] != "budget.firing":
        pass  # what a busy machine has to say of its database
    assert posted.body["data"]["owner"].startswith("user:")
    assert hook.wrong == []


async def add_channel(execution: Execution, hook: Receiver) -> None:
    """A webhook for alerts, which takes a test message."""
    page = execution.page
    await execution.open("Alerts")
    await page.get_by_text("Add webhook").click()
    await page.fill("#panel [name=name]", "ops")
    await page.fill("#panel [name=url]", hook.url)
    await page.fill("#panel [name=key]", ALERTS_SECRET)
    await page.click("#panel .button-main")
    await page.get_by_role("button", name="Send a test").click()
    await expect(page.locator(".note-good")).to_contain_text("Test of ops")
    while (await hook.next()).body["type"] != "alert.test":
        pass  # as in `spend`


async def take_over(office: Office, lists: Listing) -> None:
    """What LiteLLM had goes into the database of the running service."""
    file = office.desk.folder / "config.yaml"
    file.write_text(LITELLM.format(url=lists.base_url))
    wrote = "causerie import --litellm /dev/stdin < config.yaml > entries.toml"
    told = await office.desk.run(wrote)
    assert "model_list: models without costs have list prices here" in told
    told = await office.desk.run("OLD_KEY=sk-old causerie import /dev/stdin --yes < entries.toml")
    assert re.search(r"new\s+KIND +alias\s+NAME +legacy", told)  # a narrow terminal


async def delete_provider(execution: Execution, key: str) -> None:
    """A provider is switched off, and then deleted with its aliases."""
    page = execution.page
    await execution.open("Providers")
    await page.get_by_role("link", name="west", exact=True).click()
    await page.click("summary:has-text('More actions')")
    await page.get_by_role("button", name="Switch off").click()
    await expect(page.locator(".toast")).to_contain_text("no requests go to it")
    with pytest.raises(openai.NotFoundError):
        async with asyncio.timeout(60):
            while True:  # until the service has heard of it
                await execution.ask(key)
    assert await findings(page) == []
    await page.click("summary:has-text('More actions')")
    await page.get_by_role("link", name="Delete").click()
    await expect(page.locator("dialog")).to_contain_text("2 aliases")
    await page.click("dialog .button-bad")
    await expect(page.locator("#main h1")).to_have_text("Providers")
    await expect(page.get_by_role("link", name="west", exact=True)).to_have_count(0)


async def engineer_adds(execution: Execution, lists: Listing, steps: Steps) -> str:
    """A provider, an alias, and a key of their own; returns the key."""
    with steps.step("Create the owner's account by the printed link"):
        assert "no provider yet" in str((await health(execution.service))["missing"])
        await execution.arrive()
    with steps.step("Add a provider, test it, choose a model"):
        await execution.open("Overview")
        await add_provider(execution.page, lists.base_url)
        await choose_models(execution.page)
        assert f"authorization: bearer {SECRET}" in lists.heads[-1].lower()
        await eventually(lambda: _complete(execution.service))
    with steps.step("Create an alias with a price"):
        await create_alias(execution)
    with steps.step("Create a key and send a request"):
        await execution.open("API Keys")
        key = await execution.new_key("First")
        assert await answered(execution, key) == "Certainly!"
    return key


async def colleague_spends(
    engineer: Execution, colleague: Execution, hook: Receiver, steps: Steps
) -> None:
    """Somebody is invited, gets a budget and uses it up."""
    with steps.step("Invite a person, who makes an account and a key"):
        link = await invite(engineer)
        key = await accept(colleague, link)
    with steps.step("Give the person a budget"):
        await bound(engineer)
    with steps.step("Add a webhook for alerts, and test it"):
        await add_channel(engineer, hook)
    with steps.step("The budget is used up, and the alert arrives"):
        await spend(colleague, key, hook)


@pytest.mark.full
async def test_from_containers_to_a_team(
    office: Office, lists: Listing, hook: Receiver, steps: Steps
) -> None:
    async with AsyncExitStack() as stack:
        pages = await stack.enter_async_context(
            windows(2, permissions=["clipboard-read", "clipboard-write"])
        )
        engineer, colleague = (
            Execution(page, office.service, door="gateway", model="chat") for page in pages
        )
        key = await engineer_adds(engineer, lists, steps)
        await colleague_spends(engineer, colleague, hook, steps)
        with steps.step("Take over LiteLLM's configuration"):
            await take_over(office, lists)
            legacy = replace(engineer, model="legacy")
            assert await answered(legacy, key) == "Certainly!"
        with steps.step("Switch the provider off, and delete it"):
            await delete_provider(engineer, key)
        log = office.service.log.read_text()
        assert not [one for one in (SECRET, key, ALERTS_SECRET, "sk-old") if one in log]


async def answered(execution: Execution, key: str) -> str:
    """Ask for a model that is in force within a second."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await execution.ask(key)
            except openai.NotFoundError:
                await asyncio.sleep(0.05)  # another process reads the database
