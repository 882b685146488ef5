"""Prices on the console: where they come from, where there are none, and files with costs."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal

from consolekit import Place, ScriptedServiceView
from pageskit import Shop, Team, entry
from test_console_overview import overview, use
from test_console_recording import asked

from causerie.hosted.accounts.bounds import Budget, LimitsAndBudgets
from causerie.hosted.accounts.people import SYSTEM, Role


def unpriced(shop: Place, *names: str) -> None:
    service_view = shop.service_view
    assert isinstance(service_view, ScriptedServiceView)
    service_view.without_price = names


async def test_budgets_say_where_they_do_not_hold(shop: Place, team: Team) -> None:
    visitor = await shop.visitor_of(team.operator)
    page = await visitor.get(f"{team.path}/bounds")
    assert "No price is known" not in page.text
    unpriced(shop, "a/*", "b", "c", "d")
    words = "No price is known for a/*, b, c and 1 more. Requests to them cost nothing"
    assert words in (await visitor.get(f"{team.path}/bounds")).text
    assert words in (await visitor.get(f"/operator/users/{team.owner.id}/bounds")).text


async def test_the_overview_of_an_operator_warns_where_there_are_budgets(
    shop: Place, team: Team
) -> None:
    unpriced(shop, "a/*")
    words = "There are budgets, and no price is known for a/*"
    await shop.world.join(team.project, team.operator, Role.OWNER)
    assert words not in await overview(shop, team, team.operator)
    budget = LimitsAndBudgets(budgets=(Budget(Decimal(5)),))
    await shop.world.projects.set_bounds(SYSTEM, team.project.id, budget)
    assert words in await overview(shop, team, team.operator)
    assert words not in await overview(shop, team, team.owner)


async def test_list_prices_are_marked(shop: Place, team: Team) -> None:
    service_view = shop.service_view
    assert isinstance(service_view, Shop)
    service_view.entries = [entry("plain"), entry("listed", list_price=True)]
    text = (await (await shop.visitor_of(team.owner)).get(f"{team.path}/models")).text
    assert text.count(">list price</span>") == 1


async def test_a_statement_and_requests_are_files(shop: Place, team: Team) -> None:
    await use(shop, team, tag="shop", served_by="near/gpt", model="chat", operation="messages")
    visitor = await shop.visitor_of(team.owner)
    page = await visitor.get(f"{team.path}/usage?by=provider")
    assert f'action="/console{team.path}/statement.csv"' in page.text
    assert "near" in page.text[page.text.index("By provider") :]
    month = f"{shop.world.now:%Y-%m}"
    page = await visitor.get(f"{team.path}/statement.csv?month={month}")
    assert page.headers["content-type"].startswith("text/csv")
    assert f"statement-project-{month}.csv" in page.headers["content-disposition"]
    [line] = csv.DictReader(io.StringIO(page.text))
    assert (line["tag"], line["provider"], line["provider_model"]) == ("shop", "near", "gpt")
    assert (await visitor.get(f"{team.path}/statement.csv?month=x")).status == 400
    page = await visitor.get(f"{team.path}/activity?tag=shop")
    assert f'href="/console{team.path}/activity.csv?' in page.text
    page = await visitor.get(f"{team.path}/activity.csv?tag=shop")
    [line] = csv.DictReader(io.StringIO(page.text))
    assert (line["operation"], line["model"], line["provider"]) == ("messages", "chat", "near")
    operator = await shop.visitor_of(team.operator)
    for path in ("statement.csv?month=" + month, "activity.csv"):
        assert len((await operator.get(f"/operator/{path}")).text.splitlines()) == 2
        assert (await visitor.get(f"/operator/{path}")).status == 403


async def test_an_owner_downloads_what_was_said(shop: Place, team: Team) -> None:
    await shop.world.recordings.keep(SYSTEM, team.project.id, 7)
    usage = await asked(shop.world, team, team.owner, "Plain words.")
    visitor = await shop.visitor_of(team.owner)
    assert "Download JSONL" in (await visitor.get(f"{team.path}/logging")).text
    page = await visitor.post(f"{team.path}/contents.jsonl")
    assert page.headers["content-type"] == "application/jsonl"
    [line] = page.text.splitlines()
    found = json.loads(line)
    assert (found["id"], found["request"]["messages"][0]["content"]) == (usage.id, "Plain words.")
    other = await shop.visitor_of(team.member)
    assert "Download JSONL" not in (await other.get(f"{team.path}/logging")).text
    assert (await other.post(f"{team.path}/contents.jsonl")).status == 403
