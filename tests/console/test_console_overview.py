"""The overview: what people see first after they have signed in."""

from __future__ import annotations

import re
from decimal import Decimal

from accountkit import World
from browserkit import findings, sign_in, window
from consolekit import Place, console_of
from ledgerkit import record
from operationskit import seen_to
from pageskit import Shop, Team

from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, LimitsAndBudgets
from causerie.hosted.accounts.people import SYSTEM, Role, User
from causerie.hosted.store.usage import SqlUsage


async def overview(shop: Place, team: Team, user: User) -> str:
    visitor = await shop.visitor_of(user)
    led = await visitor.get("/")
    page = await visitor.get(led.target)
    assert (led.target, page.status) == (f"{team.path}/overview", 200)
    return re.sub(r"<[^>]+>|\s+", " ", page.text[page.text.index("<main") :])


def seen(text: str) -> str:
    return re.sub(r"\s+", " ", text)


async def use(shop: Place, team: Team, **more: object) -> None:
    at = int(shop.world.now.timestamp()) * 1_000_000
    made = record(project=team.project.id, user=team.owner.id, at=at, **more)
    await SqlUsage(shop.world.database).append([made])


async def test_steps_tick_themselves_off_and_go(shop: Place, team: Team) -> None:
    text = seen(await overview(shop, team, team.owner))
    assert "0 of 2 done" in text
    assert "Add a provider" not in text, "there are models, and others add them"
    operator = await shop.visitor_of(team.operator)
    page = seen(re.sub("<[^>]+>", " ", (await operator.get(f"{team.path}/overview")).text))
    assert "1 of 3 done" in page
    assert "Add a provider or a model (done)" in page
    await shop.world.key(team.project, team.owner, name="first")
    text = seen(await overview(shop, team, team.owner))
    assert "1 of 2 done" in text
    assert "Create an API key (done)" in text
    await use(shop, team)
    assert "First steps" not in await overview(shop, team, team.owner)


async def test_without_models_the_first_step_says_who_takes_it(shop: Place, team: Team) -> None:
    assert isinstance(shop.service_view, Shop)
    shop.service_view.entries = []
    assert "An operator does this." in await overview(shop, team, team.viewer)


async def test_operators_are_led_to_the_page_of_providers(lite: World, team: Team) -> None:
    async with seen_to(lite) as operations:
        shop = Shop()
        shop.entries, shop.operations = [], operations
        async with console_of(lite, service_view=shop) as place:
            await lite.join(team.project, team.operator, Role.OWNER)
            for user, led in ((team.operator, True), (team.owner, False)):
                page = await (await place.visitor_of(user)).get(f"{team.path}/overview")
                assert ("/console/operator/providers/add/new" in page.text) is led


async def test_today_counts_against_the_budgets(shop: Place, team: Team) -> None:
    bounds = LimitsAndBudgets((), (Budget(Decimal(10), BudgetPeriod.DAY),))
    await shop.world.projects.set_bounds(SYSTEM, team.project.id, bounds)
    await use(shop, team, amount=Decimal("2.50"), prompt=1000, completion=500)
    shop.world.later(days=-1)
    await use(shop, team, amount=Decimal(7))  # of another day
    shop.world.later(days=1)
    text = seen(await overview(shop, team, team.viewer))
    assert re.search(r"Spent today \$?2\.50", text), text
    assert re.search(r"\$?2\.50 of \$?10", text), text
    assert "Requests today 1" in text


async def test_latest_errors_lead_to_their_requests(shop: Place, team: Team) -> None:
    await use(shop, team, status=503, code="no_endpoint", model="small", request_id="req-bad")
    await use(shop, team, request_id="req-good")
    visitor = await shop.visitor_of(team.viewer)
    page = await visitor.get(f"{team.path}/overview")
    assert "activity?request_id=req-bad" in page.text
    assert "req-good" not in page.text


async def test_operators_alone_see_how_the_service_stands(shop: Place, team: Team) -> None:
    assert "not ready" not in await overview(shop, team, team.owner)
    visitor = await shop.visitor_of(team.operator)
    page = await visitor.get(f"{team.path}/overview")
    assert re.search(r"\d of \d not ready", page.text)
    outsider = await shop.visitor_of(team.outsider)
    assert (await outsider.get(f"{team.path}/overview")).status == 404


async def test_everybody_can_read_it(shop: Place, team: Team) -> None:
    await use(shop, team, status=429, code="requests", model="small")
    root = f"http://127.0.0.1:{shop.port}/console"
    async with window(viewport={"width": 390, "height": 844}) as page:
        await sign_in(page, root, team.operator)
        await page.goto(f"{root}{team.path}/overview")
        assert await findings(page) == []
        wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0
