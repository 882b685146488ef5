"""Rankings by tokens: of the catalog alone, for operators, or for everybody if so set."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from accountkit import World
from consolekit import console_of
from ledgerkit import record
from marketkit import Fair, small_market
from pageskit import Team
from pageskit import team as team

from causerie.errors import Forbidden
from causerie.hosted.accounts.people import SYSTEM, actor_of
from causerie.hosted.accounts.usage import RankingPeriod
from causerie.hosted.store.usage import SqlUsage

IRIS, QWEN = "acme/iris-large", "qwen/qwen3-8b"


async def used(world: World, model: str, tokens: int, ago: timedelta, **more: Any) -> None:
    at = int((world.now - ago).timestamp()) * 1_000_000
    made = record(model=model, prompt=tokens - 10, completion=10, at=at, **more)
    await SqlUsage(world.database).append([made])


async def a_week(world: World) -> None:
    north, qwen = {"served_by": "north/iris"}, {"served_by": "north/Qwen/Qwen3-8B"}
    await used(world, IRIS, 300, timedelta(hours=1), project="prj_a", **north)
    await used(world, QWEN, 200, timedelta(hours=2), project="prj_a", **qwen)
    await used(world, QWEN, 900, timedelta(days=3), project="prj_b", served_by="west/m")
    await used(world, IRIS, 5000, timedelta(days=9), project="prj_b", **north)
    await used(world, "private/alias", 9000, timedelta(hours=1), project="prj_a", **qwen)


async def test_models_have_ranks_by_tokens_of_all_projects(lite: World, team: Team) -> None:
    await a_week(lite)
    rankings = lite.accounts.rankings

    def both(model: str, _: str) -> str:
        return model if model in {IRIS, QWEN} else ""

    day = await rankings.ranked("model", RankingPeriod.DAY, both)
    assert [(each.name, each.rank, each.tokens) for each in day.rows] == [
        (IRIS, 1, 300),
        (QWEN, 2, 200),
    ]
    week = await rankings.ranked("model", RankingPeriod.WEEK, both)
    assert [(each.name, each.tokens, each.requests) for each in week.rows] == [
        (QWEN, 1100, 2),
        (IRIS, 300, 1),
    ]
    assert [each.rank_before for each in week.rows] == [None, 1]
    month = await rankings.ranked("model", RankingPeriod.MONTH, both)
    assert (month.rows[0].name, month.tokens) == (IRIS, 6400)
    every = await rankings.of_all("model", SYSTEM, RankingPeriod.WEEK)
    assert every.rows[0].name == "private/alias"
    with pytest.raises(Forbidden):
        await rankings.of_all("model", actor_of(team.owner), RankingPeriod.WEEK)


async def test_providers_have_ranks_by_what_their_endpoints_answered(
    lite: World, team: Team
) -> None:
    await a_week(lite)
    await used(lite, QWEN, 4000, timedelta(hours=1), served_by="elsewhere/qwen3-8b")
    view = Fair(small_market(lite.now))
    async with console_of(lite, service_view=view, rankings=True) as place:
        page = (await place.visitor().get("/rankings?by=provider")).text
        assert 'href="/console/providers/west"' in page
        assert "1 down" in page
        assert "elsewhere" not in page
        told = (await place.visitor().get("/rankings.json?by=provider")).text
        rows = msgspec.json.decode(told)["data"]
        assert [(each["provider"], each["tokens"], each["rank_before"]) for each in rows] == [
            ("west", 900, None),
            ("north", 500, 1),
        ]
        assert (await place.visitor().get("/rankings?by=project")).status == 400
    every = await lite.accounts.rankings.of_all("provider", SYSTEM, RankingPeriod.WEEK)
    assert [(each.name, each.tokens) for each in every.rows] == [
        ("north", 9500),
        ("elsewhere", 4000),
        ("west", 900),
    ]
    with pytest.raises(Forbidden):
        await lite.accounts.rankings.of_all("provider", actor_of(team.owner), RankingPeriod.WEEK)


async def test_strangers_see_them_only_where_a_setting_says_so(lite: World, team: Team) -> None:
    await a_week(lite)
    view = Fair(small_market(lite.now))
    async with console_of(lite, service_view=view) as place:
        operator, owner = await place.visitor_of(team.operator), await place.visitor_of(team.owner)
        for path in ("/rankings", "/rankings.json"):
            for visitor in (place.visitor(), owner):
                assert (await visitor.get(path)).status == 404
        assert "Only operators see this page" in (await operator.get("/rankings")).text
        assert 'href="/console/rankings"' not in (await place.visitor().get("/catalog")).text
    async with console_of(lite, service_view=view, rankings=True) as place:
        stranger = place.visitor()
        page = (await stranger.get("/rankings?period=week")).text
        assert "Qwen3 8B" in page
        assert "1 down" in page
        assert "78.6 %" in page
        assert "private/alias" not in page
        assert 'href="/console/rankings"' in (await stranger.get("/catalog")).text
        told = msgspec.json.decode((await stranger.get("/rankings.json")).text)
        assert [each["model"] for each in told["data"]] == [QWEN, IRIS]
        assert (await stranger.get("/rankings?period=year")).status == 400


async def test_popular_models_come_first_where_rankings_are_public(lite: World) -> None:
    await a_week(lite)
    view = Fair(small_market(lite.now))
    async with console_of(lite, service_view=view, rankings=True) as shown:
        page = await shown.visitor().get("/catalog")
    async with console_of(lite, service_view=view) as closed:
        newest = await closed.visitor().get("/catalog")
        hidden = await closed.visitor().get("/catalog?sort=popular")
    listed = re.compile(r'name="model" value="([^"]+)"')
    assert listed.findall(page.text)[:2] == [QWEN, IRIS]
    assert "1.1k" in page.text
    assert listed.findall(newest.text)[0] == IRIS
    assert "Tokens, week" not in newest.text + hidden.text


async def test_tokens_and_shares_of_each_day_are_drawn(lite: World) -> None:
    await a_week(lite)
    view = Fair(small_market(lite.now))
    async with console_of(lite, service_view=view, rankings=True) as place:
        tokens = (await place.visitor().get("/rankings?period=week")).text
        shares = (await place.visitor().get("/rankings?period=week&as=share")).text
    bars = re.compile(r"<title>(\d{1,2} \w{3} \d{4})\s+(.*?)</title>", re.DOTALL)
    days = {day: words.splitlines() for day, words in bars.findall(tokens)}
    assert len(days) == 7
    assert list(days.values())[-1] == ["Total: 500", "Iris Large: 300", "Qwen3 8B: 200"]
    assert list(days.values())[-4] == ["Qwen3 8B: 900"]
    parts = {day: words.splitlines() for day, words in bars.findall(shares)}
    assert list(parts.values())[-1] == ["Total: 100 %", "Iris Large: 60 %", "Qwen3 8B: 40 %"]


async def test_strangers_see_those_apps_alone_that_a_setting_names(lite: World, team: Team) -> None:
    """A client gives itself any name, and a project may keep what it builds to itself."""
    served, hour = {"served_by": "north/Qwen/Qwen3-8B", "project": "prj_a"}, timedelta(hours=1)
    await used(lite, QWEN, 700, hour, app="secret launch", **served)
    await used(lite, QWEN, 500, hour, app="Aider", **served)
    await used(lite, "private/alias", 9000, hour, app="Aider", **served)
    await used(lite, QWEN, 5000, hour, **served)
    view, model = Fair(small_market(lite.now)), f"/catalog/{QWEN}"
    async with console_of(lite, service_view=view, rankings=True) as place:
        stranger, operator = place.visitor(), await place.visitor_of(team.operator)
        owner = await place.visitor_of(team.owner)
        for visitor in (stranger, owner):
            assert (await visitor.get("/rankings?by=app")).status == 400
            assert "by=app" not in (await visitor.get("/rankings")).text
            assert "Aider" not in (await visitor.get(model)).text
        page = (await operator.get("/rankings?by=app")).text
        assert page.index("secret launch") < page.index("Aider")
        assert "secret launch" in (await operator.get(model)).text
    async with console_of(
        lite, service_view=view, rankings=True, apps=frozenset({"Aider"})
    ) as place:
        for visitor in (place.visitor(), await place.visitor_of(team.owner)):
            page = (await visitor.get("/rankings?by=app")).text + (await visitor.get(model)).text
            assert "Aider" in page
            assert "secret launch" not in page
            told = msgspec.json.decode((await visitor.get("/rankings.json?by=app")).text)
            assert [(each["app"], each["tokens"]) for each in told["data"]] == [("Aider", 500)]
    async with console_of(lite, service_view=view, apps=frozenset({"Aider"})) as place:
        assert (await place.visitor().get("/rankings?by=app")).status == 404
        assert "Aider" not in (await place.visitor().get(model)).text
