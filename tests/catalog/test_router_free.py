"""Daily allowance of an account for free models."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from accountkit import World
from faultkit import Reply, upstream
from hostedkit import Office, office
from ledgerkit import record
from servicekit import ServiceView, service_view

from causerie.errors import RateLimited, StoreUnavailable, UpstreamFailed
from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.accounts.statement import FreeAllowances
from causerie.hosted.accounts.usage import UsageQuery, UsageSum
from causerie.hosted.store.usage import SqlUsage, SqlUsageReader
from causerie.metering.ledger import UsageRecord

R = "/router/v1"
OPTIONS = {"requests": 2, "paid_requests": 4, "paid_from": Decimal(10)}


class Passing:
    """Seconds that go by when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def days_of(world: World, seconds: Passing, reader: SqlUsageReader | None = None) -> FreeAllowances:
    """Those of a process that has just been started."""
    if reader is not None:
        world.store.usage = reader
    return FreeAllowances(world.store, seconds, **OPTIONS)


async def past(world: World, project: str, **changes: object) -> None:
    """A request of today, in the database."""
    at = int(world.now.timestamp()) * 1_000_000
    made = {"project": project, "model": "a/m:free", "at": at, **changes}
    await SqlUsage(world.database).append([record(**made)])


async def test_a_day_has_so_many_and_then_begins_anew(world: World) -> None:
    days = days_of(world, Passing())
    for _ in range(2):
        with await days.take("prj_a") as hold:
            pass
    assert (hold.limit, hold.left) == (2, 0)
    with pytest.raises(RateLimited) as caught:
        await days.take("prj_a")
    refused = caught.value
    assert (refused.status, refused.code) == (429, "requests")
    assert refused.metadata["limit"] == "free_requests_per_day"
    assert refused.headers["Retry-After"] == str(12 * 3600)  # it is noon
    assert refused.headers["x-ratelimit-remaining-requests-day"] == "0"
    assert "at least $10.00 was put have 4 a day" in refused.message
    with await days.take("prj_b"):
        pass  # another account
    world.now = datetime(2026, 11, 22, 0, 0, 0, tzinfo=UTC)
    with await days.take("prj_a") as hold:
        assert hold.used == 1


async def test_what_fails_is_given_back_and_what_is_left_counts(world: World) -> None:
    days = days_of(world, Passing())
    for _ in range(5):
        with pytest.raises(UpstreamFailed), await days.take("prj_a"):
            raise UpstreamFailed("It broke.")
    assert (await days.of("prj_a")).used == 0
    with pytest.raises(asyncio.CancelledError), await days.take("prj_a"):
        raise asyncio.CancelledError
    assert (await days.of("prj_a")).used == 1


async def test_what_is_under_way_counts(world: World) -> None:
    days = days_of(world, Passing())
    with ExitStack() as running:
        for hold in await asyncio.gather(days.take("prj_a"), days.take("prj_a")):
            running.enter_context(hold)
        with pytest.raises(RateLimited):
            await days.take("prj_a")
        world.later(hours=12)  # they end tomorrow, and belong to the day they came
    assert (await days.of("prj_a")).used == 0


async def test_a_clock_that_is_put_back_for_a_while_leaves_the_count_right(world: World) -> None:
    days = days_of(world, Passing())
    today = world.now
    hold = await days.take("prj_a")
    world.now = today - timedelta(days=1)
    assert (await days.of("prj_a")).used == 0
    world.now = today
    await days.of("prj_a")
    with hold:
        pass
    for _ in range(2):
        with await days.take("prj_a"):
            pass
    with pytest.raises(RateLimited):
        await days.take("prj_a")


async def test_a_restart_forgets_nothing(world: World) -> None:
    await past(world, "prj_a")
    await past(world, "prj_a", model="a/m")  # a paid one
    await past(world, "prj_a", status=429)  # refused
    await past(world, "prj_a", status=502)  # failed
    await past(world, "prj_a", at=int(world.now.timestamp() - 86400) * 1_000_000)
    days = days_of(world, Passing())
    assert (await days.of("prj_a")).used == 1
    with await days.take("prj_a"):
        pass
    with pytest.raises(RateLimited):
        await days.take("prj_a")


async def test_others_are_heard_of_within_seconds(world: World) -> None:
    seconds = Passing()
    days = days_of(world, seconds)
    assert (await days.of("prj_a")).used == 0
    await past(world, "prj_a")
    await past(world, "prj_a")
    assert (await days.of("prj_a")).used == 0
    seconds.now += 5
    assert (await days.of("prj_a")).used == 2


async def test_money_put_in_raises_the_limit(world: World) -> None:
    project = await world.project()
    seconds = Passing()
    days = days_of(world, seconds)
    await world.credits.put(SYSTEM, project.id, Decimal("9.99"))
    assert (await days.of(project.id)).limit == 2
    await world.credits.put(SYSTEM, project.id, Decimal("0.01"))
    seconds.now += 5
    assert (await days.of(project.id)).limit == 4


class Away(SqlUsageReader):
    """A database that can be asked, until it cannot."""

    away = False

    async def sums(self, question: UsageQuery) -> Sequence[UsageSum]:
        if self.away:
            raise StoreUnavailable("It is away.")
        return await super().sums(question)


async def test_without_a_database_those_who_are_known_go_on(world: World) -> None:
    reader, seconds = Away(world.database), Passing()
    days = days_of(world, seconds, reader)
    with await days.take("prj_a"):
        pass
    reader.away = True
    seconds.now += 60
    with await days.take("prj_a") as hold:
        assert hold.used == 2
    with pytest.raises(StoreUnavailable):
        await days.take("prj_b")


CONFIG = """\
[store]
folder = "data"
[free]
requests_per_day = 2
paid_requests_per_day = 3
[[doors]]
name = "router"
kind = "router"
[[providers]]
name = "up"
base_url = "{base_url}"
[providers.health]
path = ""
[[catalog]]
id = "a/m"
[[catalog.endpoints]]
provider = "up"
model = "m"
[[catalog]]
id = "a/m:free"
[[catalog.endpoints]]
provider = "up"
model = "m"
[[catalog]]
id = "b/m:free"
[[catalog.endpoints]]
provider = "up"
model = "m"
"""


async def test_an_account_has_one_day_for_all_its_keys_and_free_models(tmp_path: Path) -> None:
    async with upstream(lambda _: Reply("Yes.")) as up:
        text = CONFIG.format(base_url=up.base_url)
        async with service_view(tmp_path, text) as there, office(tmp_path / "data") as opened:
            await _spend(there, opened)
            one = await opened.key()
            await _written(opened)
        async with service_view(tmp_path, text) as there:
            assert (await there.ask(R, "a/m:free", one.credential))[0] == 429
            _, told = await there.get(f"{R}/key", one.credential)
            used = {"limit": 2, "used": 2, "remaining": 0}
            assert told["data"]["free_model_daily_requests"] == used
            more = text.replace("requests_per_day = 2", "requests_per_day = 3")
            assert (await there.reload(more)).applied
            assert (await there.ask(R, "a/m:free", one.credential))[0] == 200


async def _spend(there: ServiceView, opened: Office) -> None:
    """The whole day, by two keys and two models."""
    one, other = await opened.key(), await opened.key()
    left: list[str] = []
    for key, model in ((one, "a/m:free"), (other, "b/m:free")):
        status, headers, _ = await there.ask(R, model, key.credential)
        assert (status, headers["x-ratelimit-limit-requests-day"]) == (200, "2")
        left.append(headers["x-ratelimit-remaining-requests-day"])
    assert left == ["1", "0"]
    status, headers, refused = await there.ask(R, "a/m:free", other.credential)
    assert (status, refused["error"]["code"]) == (429, "requests")
    assert refused["error"]["metadata"]["limit"] == "free_requests_per_day"
    assert 0 < int(headers["Retry-After"]) <= 86400
    assert _limits(headers) == ("2", "0", headers["Retry-After"] + "s")
    status, headers, _ = await there.ask(R, "a/m", other.credential)
    assert status == 200
    assert "x-ratelimit-limit-requests-day" not in headers
    status, headers, _ = await there.ask(R, "a/m:free", other.credential, models=["a/m"])
    assert (status, headers["x-served-model"]) == (200, "a/m")


def _limits(headers: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        headers[f"x-ratelimit-{name}-requests"] for name in ("limit", "remaining", "reset")
    )


async def _written(opened: Office) -> None:
    """Wait until the ledger has written what there was."""
    async with asyncio.timeout(60):
        while True:
            found: list[UsageRecord] = [
                each for each in await opened.records() if each.model.endswith(":free")
            ]
            if sum(each.status == 200 for each in found) == 2:
                return
            await asyncio.sleep(0.05)  # it writes by itself
