"""Keys, credits and past requests at a router's door, on a whole service with accounts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from accountkit import World
from casekit import each_of
from faultkit import Fault, Reply, upstream
from hostedkit import Office, office
from servicekit import ServiceView, service_view

from causerie.access.admission import SlotQueue
from causerie.access.keys import FreeScopes
from causerie.access.limits import Rates
from causerie.errors import InvalidRequest, RateLimited
from causerie.hosted.accounts.bounds import (
    Balance,
    Budget,
    BudgetPeriod,
    CreditBudget,
    Limit,
    LimitsAndBudgets,
    Unit,
    bounded,
)
from causerie.hosted.accounts.people import SYSTEM, actor_of
from causerie.hosted.accounts.tokens import digest
from causerie.protocol.targets import Candidate

R = "/router/v1"
PROMPT, COMPLETION = Decimal("1000"), Decimal("2000")  # per 1M tokens


def config(base_url: str) -> str:
    entries = ""
    for id, price in (("a/paid", PROMPT), ("a/dear", PROMPT * 1000), ("a/paid:free", 0)):
        entries += (
            f'[[catalog]]\nid = "{id}"\n[[catalog.endpoints]]\nprovider = "up"\nmodel = "m"\n'
            f'price = {{ prompt = "{price}", completion = "{price * 2}" }}\n'
        )
    return f"""\
[store]
folder = "data"
[[providers]]
name = "up"
base_url = "{base_url}"
dialect = "vllm"
[providers.health]
path = ""
{entries}"""


@dataclass
class Bank:
    """A running router, and its database from outside."""

    service_view: ServiceView
    office: Office

    async def put(self, amount: str) -> None:
        """Put money in, and wait until the service knows."""
        await self.office.accounts.credits.put(SYSTEM, self.office.project, Decimal(amount))

    async def get(self, path: str, key: str = "") -> tuple[int, Any]:
        return await self.service_view.get(R + path, key)

    async def until(self, path: str, key: str, wanted: Any) -> Any:
        """Return the answer, once it is as wanted; records are written a little after a reply."""
        async with asyncio.timeout(60):
            while True:
                status, told = await self.get(path, key)
                if status == 200 and wanted(told["data"]):
                    return told["data"]
                await asyncio.sleep(0.05)  # the ledger writes by itself


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncIterator[Bank]:
    async with upstream(lambda received: Reply("Yes, indeed.")) as up:
        text = config(up.base_url)
        async with service_view(tmp_path, text) as running, office(tmp_path / "data") as opened:
            yield Bank(running, opened)


async def test_what_a_request_cost_is_told_afterwards(bank: Bank) -> None:
    made = await bank.office.key(name="robot")
    status, _, answer = await bank.service_view.ask(R, "a/paid", made.credential)
    assert status == 200, answer
    usage = answer["usage"]
    cost = float(
        (PROMPT * usage["prompt_tokens"] + COMPLETION * usage["completion_tokens"]) / 1_000_000
    )
    assert usage["cost"] == cost
    told = await bank.until(f"/generation?id={answer['id']}", made.credential, lambda data: True)
    assert told["id"] == answer["id"]
    assert told["model"] == "a/paid"
    assert told["provider_name"] == "up"
    assert told["total_cost"] == cost
    assert told["tokens_prompt"] == usage["prompt_tokens"]
    assert told["streamed"] is False
    assert told["finish_reason"] == "stop"
    assert told["latency"] > 0

    key = await bank.until("/key", made.credential, lambda data: data["usage"] > 0)
    assert key["label"] == "robot"
    assert key["usage"] == key["usage_daily"] == pytest.approx(cost)
    assert (key["limit"], key["limit_remaining"]) == (None, None)
    assert key["is_free_tier"] is True
    status, credits = await bank.get("/credits", made.credential)
    assert credits["data"] == {"total_credits": 0.0, "total_usage": pytest.approx(cost)}


async def test_programs_are_labels(bank: Bank, caplog: pytest.LogCaptureFixture) -> None:
    made = await bank.office.key()
    url = f"{bank.service_view.root}{R}/chat/completions"
    body = {"model": "a/paid", "messages": [{"role": "user", "content": "Hi"}]}
    headers = {
        "authorization": f"Bearer {made.credential}",
        "HTTP-Referer": "https://robot.example/chat?who=me",
        "X-OpenRouter-Title": "Robot",
    }
    async with bank.service_view.session.post(url, json=body, headers=headers) as response:
        assert response.status == 200
        answer = await response.json()
    told = await bank.until(f"/generation?id={answer['id']}", made.credential, bool)
    assert told["http_referer"] == told["origin"] == "https://robot.example/chat"
    assert 0 < told["app_id"] < 2**53
    [kept] = await bank.office.records()
    assert (kept.app, kept.key) == ("Robot", made.key.id)
    assert "Robot" not in caplog.text
    _, _, plain = await bank.service_view.ask(R, "a/paid", made.credential)
    told = await bank.until(f"/generation?id={plain['id']}", made.credential, bool)
    assert (told["http_referer"], told["origin"], told["app_id"]) == (None, "", None)


async def test_others_are_told_nothing(bank: Bank) -> None:
    mine, other = await bank.office.key(), await bank.office.accounts.projects.create(SYSTEM, "B")
    async with office(bank.service_view.file.parent / "data", other.id) as theirs:
        stranger = await theirs.key()
    _, _, answer = await bank.service_view.ask(R, "a/paid", mine.credential)
    path = f"/generation?id={answer['id']}"
    await bank.until(path, mine.credential, lambda data: True)
    assert (await bank.get(path, stranger.credential))[0] == 404
    assert (await bank.get("/generation", mine.credential))[0] == 400
    for closed in ("/key", "/credits", path):
        assert (await bank.get(closed))[0] == 401


async def test_free_requests_are_counted_apart(bank: Bank) -> None:
    made = await bank.office.key()
    assert (await bank.service_view.ask(R, "a/paid:free", made.credential))[0] == 200
    key = await bank.until(
        "/key", made.credential, lambda data: data["free_model_daily_requests"]["used"] == 1
    )
    free = key["free_model_daily_requests"]
    assert free["limit"] == free["remaining"] + 1
    assert key["usage"] == 0


async def test_nobody_spends_more_than_was_put_in(bank: Bank) -> None:
    await bank.put("0.5")
    made = await bank.office.key()
    status, _, answer = await bank.service_view.ask(R, "a/paid", made.credential, max_tokens=10)
    assert status == 200, answer
    assert (await bank.service_view.ask(R, "a/dear", made.credential, max_tokens=100))[
        0
    ] == 200  # the last
    status, _, refused = await bank.service_view.ask(R, "a/paid", made.credential, max_tokens=10)
    assert (status, refused["error"]["code"]) == (402, "insufficient_budget")
    assert (await bank.service_view.ask(R, "a/paid:free", made.credential, max_tokens=10))[0] == 200
    status, headers, _ = await bank.service_view.ask(
        R, "a/paid", made.credential, models=["a/paid:free"], max_tokens=10
    )
    assert (status, headers["x-served-model"]) == (200, "a/paid:free")
    status, told = await bank.get("/credits", made.credential)
    assert told["data"]["total_credits"] == 0.5
    await bank.put("1000")
    async with asyncio.timeout(60):
        while True:
            status, _, _ = await bank.service_view.ask(R, "a/paid", made.credential, max_tokens=10)
            if status == 200:
                break
            await asyncio.sleep(0.05)  # other processes hear of it within a second
    key = await bank.until("/key", made.credential, lambda data: data["usage"] > 0.5)
    assert key["is_free_tier"] is False


async def test_no_more_is_held_than_an_offer_gives(tmp_path: Path) -> None:
    once = LimitsAndBudgets(limits=(Limit(tokens_per_minute=1000),))
    async with upstream(Reply("Yes.")) as up:
        offer = 'model = "m"\nmax_output_tokens = 100'
        text = config(up.base_url).replace('model = "m"', offer)
        async with service_view(tmp_path, text) as there, office(tmp_path / "data") as opened:
            key = (await opened.key(bounds=once)).credential
            status, headers, _ = await there.ask(R, "a/paid", key, max_tokens=100_000)
            assert (status, headers["x-ratelimit-remaining-tokens"]) == (200, "895")


async def test_a_record_tells_of_no_model_but_its_own(tmp_path: Path) -> None:
    """The first one breaks its reply off, the second one may not be paid any more."""
    spent = LimitsAndBudgets(budgets=(Budget(Decimal(0), model="a/dear"),))
    async with upstream(Fault.RESET_MID_STREAM) as up:
        text = config(up.base_url).replace('"vllm"', '"llama-server"')
        async with service_view(tmp_path, text) as there, office(tmp_path / "data") as opened:
            key = (await opened.key(bounds=spent)).credential
            status, headers, _ = await there.ask(R, "a/paid", key, models=["a/dear"])
            assert status == 402
            assert up.requests
            bank = Bank(there, opened)
            path = f"/generation?id={headers['x-request-id']}"
            told = await bank.until(path, key, lambda data: True)
            assert told["model"] == "a/dear"
            assert (told["provider_name"], told["tokens_prompt"]) == (None, 0)


@pytest.mark.parametrize("change", ["dearer", "gone"])
async def test_a_request_costs_what_it_did_when_it_began(tmp_path: Path, change: str) -> None:
    """The books and the client agree, even if a reload changes its model meanwhile."""
    tale = Reply("Once upon a time there was a price.", pause=0.02)
    async with upstream(lambda received: tale) as up:
        text = config(up.base_url)
        paid = text.split("[[catalog]]")[1]
        later = (
            text.replace(paid, paid.replace("000", "000000"))
            if change == "dearer"
            else (text.replace(f"[[catalog]]{paid}", ""))
        )
        async with service_view(tmp_path, text) as there, office(tmp_path / "data") as opened:
            key, bank = (await opened.key()).credential, Bank(there, opened)
            body = {
                "model": "a/paid",
                "messages": [{"role": "user", "content": "Hi"}],
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            url, bearer = f"{there.root}{R}/chat/completions", {"authorization": f"Bearer {key}"}
            async with there.session.post(url, json=body, headers=bearer) as response:
                assert response.status == 200
                assert (await there.reload(later)).applied
                *_, last = [line async for line in response.content if b'"usage":' in line]
                id = response.headers["x-request-id"]
            told = json.loads(last.removeprefix(b"data: "))["usage"]
            cost = PROMPT * told["prompt_tokens"] + COMPLETION * told["completion_tokens"]
            assert told["cost"] == float(cost / 1_000_000)
            kept = await bank.until(f"/generation?id={id}", key, lambda data: True)
            assert kept["total_cost"] == told["cost"]


async def test_a_key_that_may_use_one_model_sees_one(bank: Bank) -> None:
    made = await bank.office.key(models=frozenset({"a/paid"}))
    status, mine = await bank.get("/models/user", made.credential)
    assert [one["id"] for one in mine["data"]] == ["a/paid"]
    status, _, refused = await bank.service_view.ask(R, "a/dear", made.credential)
    assert (status, refused["error"]["code"]) == (403, "model_not_allowed")
    status, _, refused = await bank.service_view.ask(
        R, "a/paid", made.credential, models=["a/dear"]
    )
    assert (status, refused["error"]["code"]) == (403, "model_not_allowed")
    assert (await bank.service_view.ask(R, "a/paid:floor", made.credential))[0] == 200


async def test_money_is_put_in_and_taken_out(world: World) -> None:
    project = await world.project()
    assert (await world.credits.balance(SYSTEM, project.id)).left == 0
    await world.credits.put(SYSTEM, project.id, Decimal("10.5"), " first ")
    world.later(hours=1)
    await world.credits.put(SYSTEM, project.id, Decimal("-0.25"))
    balance = await world.credits.balance(SYSTEM, project.id)
    assert balance == Balance(Decimal("10.25"), Decimal(0))
    assert balance.left == Decimal("10.25")
    listed = await world.credits.of(SYSTEM, project.id)
    assert [each.amount for each in listed] == [Decimal("-0.25"), Decimal("10.5")]
    assert listed[1].note == "first"
    assert (await world.actions()).count("credits.put") == 2
    for wrong in ("0", "NaN", "Infinity", "1e12", "-1e99999999", "1e-99999999999", "0.0000000001"):
        with pytest.raises(InvalidRequest):
            await world.credits.put(SYSTEM, project.id, Decimal(wrong))
    with pytest.raises(InvalidRequest):
        await world.credits.put(SYSTEM, project.id, Decimal(1), "x" * 201)


async def test_what_was_put_in_stays_a_sum_that_can_be_kept(world: World) -> None:
    """Beyond it the database could not add up, and no key of the project would work."""
    project = await world.project()
    made = await world.key(project)
    most = Decimal(9_000_000_000)
    await world.credits.put(SYSTEM, project.id, most)
    with pytest.raises(InvalidRequest, match="in all") as caught:
        await world.credits.put(SYSTEM, project.id, Decimal(1))
    assert caught.value.param == "amount"
    for sign in (-1, -1):
        await world.credits.put(SYSTEM, project.id, sign * most)
    with pytest.raises(InvalidRequest):
        await world.credits.put(SYSTEM, project.id, Decimal(-1))
    assert (await world.credits.balance(SYSTEM, project.id)).left == -most
    async with world.store.reading() as repositories:
        assert await repositories.keys.grant(digest(made.credential)) is not None


async def test_a_key_is_bounded_by_the_credits_of_its_project(world: World) -> None:
    project = await world.project()
    made = await world.key(project)
    await world.credits.put(SYSTEM, project.id, Decimal(7))
    async with world.store.reading() as repositories:
        grant = await repositories.keys.grant(digest(made.credential))
    assert grant is not None
    assert grant.project_bounds.budgets == (CreditBudget(Decimal(7), BudgetPeriod.NEVER),)


async def test_who_asks_without_a_key_is_bounded_by_them_too(world: World) -> None:
    """The playground is at the project's expense like everything else."""
    project = await world.project(member=(user := await world.person()))
    await world.credits.put(SYSTEM, project.id, Decimal(7))
    grant = await world.projects.ask(actor_of(user), project.id)
    assert grant.project_bounds.budgets == (CreditBudget(Decimal(7), BudgetPeriod.NEVER),)
    assert (await world.projects.see(SYSTEM, project.id)).bounds == LimitsAndBudgets()


def test_of_a_budget_and_credits_the_smaller_one_holds() -> None:
    whole = Budget(Decimal(5), BudgetPeriod.NEVER, Unit.MONEY)
    month = Budget(Decimal(1), BudgetPeriod.MONTH, Unit.MONEY)
    bounds = LimitsAndBudgets(budgets=(whole, month))
    assert bounded(bounds, None) is bounds
    assert bounded(bounds, Decimal(9)).budgets == (month, whole)
    assert bounded(bounds, Decimal(2)).budgets == (
        month,
        CreditBudget(Decimal(2), BudgetPeriod.NEVER),
    )
    assert bounded(LimitsAndBudgets(), Decimal(-2)).budgets == (
        CreditBudget(Decimal(0), BudgetPeriod.NEVER),
    )


def test_free_requests_do_not_wait_where_paid_ones_are() -> None:
    busy = {"a/m"}
    free = FreeScopes(Rates(requests_per_minute=1), lambda name: name in busy)
    a, b = Candidate("a/m"), Candidate("b/m")
    assert free.spare("x:free", [a, b]) == [b]
    busy.add("b/m")
    with pytest.raises(RateLimited) as caught:
        free.spare("x:free", [a, b])
    assert (caught.value.status, caught.value.code) == (429, "concurrency")
    assert int(caught.value.headers["Retry-After"]) > 0


@each_of(
    ("slots", "taken", "spares"),
    [(1, 0, True), (1, 1, False), (4, 3, True), (4, 4, False), (8, 6, True), (8, 7, False)],
)
async def test_a_quarter_of_the_places_is_left_to_paid_requests(
    slots: int, taken: int, spares: bool
) -> None:
    gate = SlotQueue("m", lambda: slots, 4, 1.0)
    async with gate.enter(taken):
        assert gate.spares is spares


async def test_reasoning_is_charged_at_its_own_price(tmp_path: Path) -> None:
    thinking = Reply("Yes.", reasoning="Let me see, what was it?")
    async with upstream(lambda _: thinking) as up:
        text = config(up.base_url).replace('"2000" }', '"2000", reasoning = "7000" }')
        async with service_view(tmp_path, text) as there, office(tmp_path / "data") as opened:
            made = await opened.key()
            status, _, answer = await there.ask(R, "a/paid", made.credential)
            assert status == 200, answer
            usage = answer["usage"]
            thought = usage["completion_tokens_details"]["reasoning_tokens"]
            said = usage["completion_tokens"] - thought
            assert thought > 0 < said
            cost = (PROMPT * usage["prompt_tokens"] + 2000 * said + 7000 * thought) / 1_000_000
            assert usage["cost"] == float(cost)
            bank = Bank(there, opened)
            told = await bank.until(f"/generation?id={answer['id']}", made.credential, bool)
            assert told["total_cost"] == float(cost)
