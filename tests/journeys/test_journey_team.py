"""A platform engineer: containers, provider, alias, key and request.

The page: docs/start/team.md. No container runs here: the service gets the configuration and the
variables of deploy/compose, beside a real PostgreSQL and a real Valkey, as the image starts it;
tests/deploy runs the steps of the image. The provider is scripted.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from browserkit import Execution, findings, window
from configurekit import SECRET, Listing, listing
from journeykit import Steps
from playwright.async_api import Page, expect
from service import SHARED_CORES, Service, serving
from valkeyserver import ValkeyServer
from webhookreceiver import SECRET as ALERTS_SECRET

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"
MODEL = "vendor/small"


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

    The address of the console is that of the test, and nothing collects metrics.
    """
    text = (COMPOSE / "causerie.toml").read_text()
    text, found = re.subn(r'(?m)^(address|listen) = ".*$', "", text)
    assert found == 2
    return text


@pytest.fixture
async def lists() -> AsyncIterator[Listing]:
    """A provider that lists its models."""
    async with listing() as made:
        yield made


@pytest.fixture
def office(
    tmp_path: Path, hosted_database: str, valkey: ValkeyServer, steps: Steps
) -> Iterator[Service]:
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
        yield service
    finally:
        context.__exit__(None, None, None)


async def health(service: Service) -> dict[str, Any]:
    async with aiohttp.ClientSession(service.root) as session, session.get("/health") as answer:
        assert answer.status == 200
        return dict(await answer.json())


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
        assert "missing" not in await health(execution.service)
    with steps.step("Create an alias with a price"):
        await create_alias(execution)
    with steps.step("Create a key and send a request"):
        await execution.open("API Keys")
        key = await execution.new_key("First")
        assert await execution.ask(key) == "Certainly!"
    return key


@pytest.mark.timeout(600)
async def test_from_containers_to_a_request(office: Service, lists: Listing, steps: Steps) -> None:
    async with window(permissions=["clipboard-read", "clipboard-write"]) as page:
        engineer = Execution(page, office, door="gateway", model="chat")
        key = await engineer_adds(engineer, lists, steps)
    log = office.log.read_text()
    assert not [one for one in (SECRET, key, ALERTS_SECRET) if one in log]
