"""Money: a member has a budget, the credits are spent, Stripe takes a payment, and all goes on."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from browserkit import NEW_PASSWORD, Execution, findings, windows
from hostedkit import config
from playwright.async_api import expect
from service import free_port, serving
from stripekit import KEY, SECRET, StandIn, event, signature, stripe

PAYMENTS = """
[console]
address = "http://127.0.0.1:{port}"
[payments]
stripe_key = {{ command = ["echo", "{key}"] }}
stripe_webhook_secret = {{ command = ["echo", "{secret}"] }}
stripe_url = "{url}"
"""


@pytest.fixture
async def shop() -> AsyncIterator[StandIn]:
    async with stripe() as there:
        yield there


async def refusal(execution: Execution, key: str) -> str:
    """Ask until it is 402, and return its message."""
    with pytest.raises(openai.APIStatusError) as refused:
        for _ in range(200):
            await execution.ask(key)
    assert (refused.value.status_code, refused.value.code) == (402, "insufficient_budget")
    return refused.value.message


async def invited(owner: Execution, member: Execution) -> None:
    """The owner's link makes a member of somebody without an account."""
    await owner.page.goto(await project_page(owner))
    await owner.page.locator("#main [data-opens]", has_text="Invite").click()
    await owner.page.fill("dialog [name=email]", "ben@example.org")
    await owner.page.click("dialog .button-main")
    link = await owner.page.text_content("dialog #link")
    assert link is not None
    await member.page.goto(link)
    await member.page.fill("[name=name]", "Ben")
    await member.page.fill("[name=password]", NEW_PASSWORD)
    await member.page.click("text=Create account")
    await member.page.fill("[name=email]", "ben@example.org")
    await member.page.fill("[name=password]", NEW_PASSWORD)
    await member.page.click("form .button-main")


async def project_page(execution: Execution) -> str:
    link = execution.page.locator("nav a").get_by_text("Project", exact=True)
    return execution.service.root + str(await link.get_attribute("href"))


async def bound(owner: Execution, amount: str) -> None:
    """The owner gives the member a budget in the project; without an amount, none any more."""
    page = owner.page
    await page.goto(await project_page(owner))
    row = page.locator("tbody tr", has_text="ben@example.org")
    await row.get_by_text("Change role").click()
    await page.click("dialog >> text=budget of their own")
    if amount:
        await page.click("dialog >> text=Add a budget")
        await page.fill("dialog [name=budget_amount]", amount)
    else:
        await page.click("dialog [data-remove-row]")
    await page.click("dialog .button-main")
    await expect(page.locator(".toast")).to_contain_text("Limits and budgets were changed")


def reported(address: str, body: bytes) -> int:
    """Post a webhook of Stripe's, and return the status of the answer."""
    sent = urllib.request.Request(address, body, {"stripe-signature": signature(body)})
    with urllib.request.urlopen(sent, timeout=60) as answer:
        return int(answer.status)


async def buy(owner: Execution, shop: StandIn, amount: str) -> None:
    """The owner pays; Stripe reports it twice, and another payment in a currency not asked for."""
    page, root = owner.page, owner.service.root
    await owner.open("Credits")
    assert await findings(page) == []
    await page.fill("[name=amount]", amount)
    await page.click("text=Continue to the payment")
    await page.click("text=Continue to Stripe")
    await expect(page.locator("h1")).to_have_text("Pay")
    paid = await shop.paid.get()
    euros = paid | {"payment_intent": "pi_euros", "currency": "eur"}
    for session in (paid, paid, euros):
        body = event("checkout.session.completed", session)
        assert await asyncio.to_thread(reported, f"{root}/webhooks/stripe", body) == 200
    await page.click("text=Pay now")
    await expect(page.locator(".toast")).to_contain_text("Thank you")


@pytest.mark.full
async def test_from_a_members_budget_to_paid_credits(tmp_path: Path, shop: StandIn) -> None:
    port = free_port()
    text = config() + PAYMENTS.format(port=port, key=KEY, secret=SECRET, url=shop.url)
    with serving(tmp_path, text, port=port) as service:
        async with windows(2, permissions=["clipboard-read", "clipboard-write"]) as pages:
            owner, member = (Execution(page, service) for page in pages)
            await owner.arrive()
            await invited(owner, member)
            await member.open("API Keys")
            key = await member.new_key("Mine")
            await bound(owner, "0.01")
            assert "budget of this member" in await refusal(member, key)
            await bound(owner, "")
            await member.let_in_again(key)

            await owner.page.goto(f"{await project_page(owner)}/credits")
            await owner.page.fill("[name=put]", "0.02")
            await owner.page.fill("[name=note]", "A trial")
            await owner.page.click("text=Save")
            message = await refusal(member, key)
            assert re.search(r"credits of this project, \$0.02, are spent. Add credits", message)
            await owner.open("Overview")
            await expect(owner.page.locator("#main [role=alert]")).to_contain_text("are spent")
            await buy(owner, shop, "12.50")
            await expect(owner.page.locator(".tile", has_text="Added")).to_contain_text("$12.52")
            await expect(owner.page.locator("nav .nav-balance")).to_contain_text("$12.")
            await member.let_in_again(key)
            await member.page.goto(f"{service.root}/console/")
            await expect(member.page.locator("nav .nav-balance")).to_contain_text("$12.")

            await owner.open("Alerts")
            await expect(owner.page.locator("#main")).to_contain_text("its currency is eur")

            await owner.open("Business")
            today = owner.page.locator("section", has_text="Today").first
            await owner.until(today.locator(".tile", has_text="Margin").filter(has_text="100.0 %"))
            assert await findings(owner.page) == []
        log = service.log.read_text()
        assert not [one for one in (KEY, SECRET, key) if one in log]
