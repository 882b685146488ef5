"""A hosted door in a whole service: keys of accounts, limits, budgets, and usage that is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import aiohttp
import openai
import pytest
from hostedkit import Office, config, office
from killkit import killed
from openai import AsyncOpenAI
from service import Service, serving
from waiting import eventually

from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Limit, LimitsAndBudgets, Unit
from causerie.hosted.accounts.issuing import KeyDraft
from causerie.hosted.accounts.keys import Purpose
from causerie.hosted.accounts.people import SYSTEM, actor_of
from causerie.hosted.accounts.usage import By, Step, UsageQuery
from causerie.hosted.store.tables import microseconds
from causerie.metering.ledger import UsageRecord
from causerie.protocol.money import BILLION


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str | None:
    """Return the URL of the database; ``None`` is a file in the service's own folder."""
    if request.param == "sqlite":
        return None
    found: str = request.getfixturevalue("hosted_database")
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, url: str | None) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("hosted"), config(url=url)) as running:
        yield running


@dataclass
class ServiceView:
    """A running service, and its database from outside."""

    service: Service
    office: Office

    def client(self, key: str) -> AsyncOpenAI:
        return AsyncOpenAI(
            api_key=key, base_url=f"{self.service.root}/hosted/v1", max_retries=0, timeout=30
        )

    async def recorded(self, key: str, count: int = 1) -> list[UsageRecord]:
        """The records of a key, once there are so many; they come a little after the reply."""
        async with asyncio.timeout(60):
            while True:
                found = [one for one in await self.office.records() if one.key == key]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.02)  # another process writes them


@pytest.fixture
async def service_view(service: Service, url: str | None) -> AsyncIterator[ServiceView]:
    async with office(service.log.parent / "data", url=url) as opened:
        yield ServiceView(service, opened)


async def say(client: AsyncOpenAI, text: str = "Good day.", model: str = "small") -> str:
    reply = await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": text}], max_tokens=100
    )
    return reply.choices[0].message.content or ""


async def test_a_key_opens_the_door_and_its_use_is_kept(service_view: ServiceView) -> None:
    made = await service_view.office.key()
    async with service_view.client(made.credential) as client:
        assert await say(client) == "Good day."
        stream = await client.chat.completions.create(
            model="small", messages=[{"role": "user", "content": "Again."}], stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == "Again."
    streamed, plain = await service_view.recorded(made.key.id, 2)
    assert (plain.project, plain.door, plain.model) == (
        service_view.office.project,
        "hosted",
        "small",
    )
    assert (plain.status, plain.finish, plain.stream, streamed.stream) == (200, "stop", False, True)
    assert plain.completion == len("Good day.") + 1
    price = Decimal("0.001") * plain.prompt + Decimal("0.002") * plain.completion
    assert plain.amount == price
    assert plain.first_token_us is not None
    assert plain.attempts == 1


async def test_every_line_of_the_log_is_json(service_view: ServiceView) -> None:
    """The start too: a collector of logs reads all of them alike."""
    text = service_view.service.log.read_text()
    events = [json.loads(line)["event"] for line in text.splitlines()]
    assert "ready" in events


async def test_metrics_tell_of_cost_and_of_the_database(service_view: ServiceView) -> None:
    made = await service_view.office.key()
    root = service_view.service.root
    async with service_view.client(made.credential) as client, aiohttp.ClientSession(root) as http:
        before = await metrics(http)
        assert await say(client) == "Good day."
        after = await metrics(http)
    [charged] = await service_view.recorded(made.key.id)
    name = 'causerie_cost_total{door="hosted",model="small"}'
    assert after[name] - before.get(name, 0) == pytest.approx(charged.cost / BILLION)
    names = ("causerie_database_up", "causerie_journal_up", "causerie_usage_records_waiting")
    assert [after[name] for name in names[:2]] == [1, 1]
    assert after[names[2]] >= 0


async def metrics(http: aiohttp.ClientSession) -> dict[str, float]:
    async with http.get("/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"
    }


async def test_who_has_no_key_stays_outside(service_view: ServiceView) -> None:
    made = await service_view.office.key()
    other = made.credential[:-4] + ("aaaa" if made.credential[-4:] != "aaaa" else "bbbb")
    bodies = []
    for wrong in (other, "sk-something", "ck_x_' OR 1=1 --"):
        async with service_view.client(wrong) as client:
            with pytest.raises(openai.AuthenticationError) as refused:
                await say(client)
        bodies.append(refused.value.body)
    assert bodies[0] == bodies[1] == bodies[2]


async def test_a_revoked_key_stops_within_a_second(service_view: ServiceView) -> None:
    made = await service_view.office.key()
    async with service_view.client(made.credential) as client:
        await say(client)
        await service_view.office.accounts.keys.delete(SYSTEM, made.key.id)
        with pytest.raises(openai.AuthenticationError):
            async with asyncio.timeout(60):  # a busy machine; a second is measured elsewhere
                while True:
                    await say(client)
                    await asyncio.sleep(0.05)  # another process hears of it


async def test_a_key_may_use_its_models_only(service_view: ServiceView) -> None:
    made = await service_view.office.key(models=frozenset({"other"}))
    async with service_view.client(made.credential) as client:
        assert [model.id async for model in client.models.list()] == ["other"]
        assert await say(client, model="other") == "Good day."
        with pytest.raises(openai.PermissionDeniedError, match="may not use the model small"):
            await say(client)
        with pytest.raises(openai.NotFoundError):
            await say(client, model="none")


async def test_the_strictest_limit_wins_and_says_whose_it_is(service_view: ServiceView) -> None:
    bounds = LimitsAndBudgets(
        (Limit(requests_per_minute=2), Limit(model="other", requests_per_minute=1))
    )
    made = await service_view.office.key(bounds=bounds)
    async with service_view.client(made.credential) as client:
        reply = await client.chat.completions.with_raw_response.create(
            model="small", messages=[{"role": "user", "content": "Hi"}]
        )
        assert reply.headers["x-ratelimit-limit-requests"] == "2"
        assert reply.headers["x-ratelimit-remaining-requests"] == "1"
        await say(client, model="other")
        with pytest.raises(openai.RateLimitError) as refused:
            await say(client, model="small")
    body = refused.value.body
    assert isinstance(body, dict)
    assert body["metadata"]["scope"] == {"kind": "key", "name": made.key.id}
    assert int(refused.value.response.headers["retry-after"]) >= 1
    assert refused.value.response.headers["x-ratelimit-remaining-requests"] == "0"
    [refusal, *_] = await service_view.recorded(made.key.id, 3)
    assert (refusal.status, refusal.code) == (429, "requests")
    assert not refusal.cost
    assert made.key.id in refusal.reason


async def test_a_budget_is_held_before_and_settled_after(service_view: ServiceView) -> None:
    budget = Budget(Decimal("0.05"), BudgetPeriod.NEVER, Unit.MONEY)
    made = await service_view.office.key(bounds=LimitsAndBudgets(budgets=(budget,)))
    async with service_view.client(made.credential) as client:
        answered = 0
        with pytest.raises(openai.APIStatusError) as refused:
            for _ in range(20):
                await say(client)
                answered += 1
    assert refused.value.status_code == 402
    assert refused.value.code == "insufficient_budget"
    records = await service_view.recorded(made.key.id, answered + 1)
    spent = sum(one.amount for one in records)
    dearest = max(one.amount for one in records)
    assert Decimal("0.05") <= spent < Decimal("0.05") + dearest
    assert [one.status for one in records] == [402] + [200] * answered


async def test_many_at_once_do_not_pass_a_budget_together(service_view: ServiceView) -> None:
    """Reservations count: running requests hold their highest possible cost."""
    made = await service_view.office.key(
        bounds=LimitsAndBudgets(budgets=(Budget(Decimal(200), unit=Unit.TOKENS),))
    )
    async with service_view.client(made.credential) as client:
        outcomes = await asyncio.gather(*(say(client) for _ in range(20)), return_exceptions=True)
    answered = [one for one in outcomes if isinstance(one, str)]
    refused = [one for one in outcomes if isinstance(one, openai.APIStatusError)]
    assert len(answered) + len(refused) == 20
    assert answered
    assert {one.status_code for one in refused} <= {402}
    records = await service_view.recorded(made.key.id, 20)
    used = sum(one.prompt + one.completion for one in records if one.status == 200)
    assert used < 200 + 150  # the estimate of the one that crosses the line


async def test_a_persons_budget_holds_over_keys_of_several_projects(
    service_view: ServiceView,
) -> None:
    """Two keys in two projects, at once: together they spend what one key could."""
    accounts = service_view.office.accounts
    mira = await accounts.users.create(SYSTEM, email="mira@example.org", name="Mira", password=None)
    budget = Budget(Decimal(200), unit=Unit.TOKENS)
    await accounts.person_bounds.set(SYSTEM, mira.id, LimitsAndBudgets(budgets=(budget,)))
    made = []
    for name in ("Atlas", "Zephyr"):
        project = await accounts.projects.create(SYSTEM, name, owner=mira.id)
        made.append(await accounts.keys.create(actor_of(mira), project.id, KeyDraft(name)))
    async with (
        service_view.client(made[0].credential) as one,
        service_view.client(made[1].credential) as other,
    ):
        asked = (say(client) for client in [one, other] * 10)
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    refused = [each for each in outcomes if isinstance(each, openai.APIStatusError)]
    assert {(each.status_code, each.code) for each in refused} == {(402, "insufficient_budget")}
    assert all("The budget of this user, 200 tokens a month" in str(each) for each in refused)
    found = [await service_view.recorded(each.key.id, 10) for each in made]
    used = [one for each in found for one in each if one.status == 200]
    assert 0 < sum(one.prompt + one.completion for one in used) < 200 + 150


async def test_a_client_that_leaves_is_charged_for_what_was_made(service_view: ServiceView) -> None:
    made = await service_view.office.key()
    async with service_view.client(made.credential) as client:
        stream = await client.chat.completions.create(
            model="small",
            messages=[{"role": "user", "content": "word " * 1500}],
            stream=True,
        )
        async for _ in stream:
            break
        await stream.close()
    [record] = await service_view.recorded(made.key.id)
    assert record.prompt > 0
    assert record.status in (200, 499)  # the latter where it left in time
    assert record.amount == Decimal("0.001") * record.prompt + Decimal("0.002") * record.completion


@pytest.mark.parametrize("journal", ["write", "off"])
def test_what_a_client_saw_end_is_in_the_ledger_once(tmp_path: Path, journal: str) -> None:
    outcome = killed(tmp_path, 2, journal=journal, seed=7)
    assert outcome.ended > 0
    assert not outcome.missing
    assert not outcome.twice


async def test_the_management_api_takes_management_keys_only(service_view: ServiceView) -> None:
    manages = await service_view.office.key(purpose=Purpose.MANAGEMENT)
    infers = await service_view.office.key()
    async with aiohttp.ClientSession(service_view.service.root) as session:
        headers = {"Authorization": f"Bearer {manages.credential}"}
        body = {"name": "made by a program"}
        path = f"/api/projects/{service_view.office.project}/keys"
        async with session.post(path, headers=headers, json=body) as made:
            assert made.status == 201
            credential = (await made.json())["credential"]
        headers = {"Authorization": f"Bearer {infers.credential}"}
        async with session.get(path, headers=headers) as refused:
            assert refused.status == 403
        async with session.get(path, headers={"Host": "hosted.localhost"}) as elsewhere:
            assert elsewhere.status == 404
        for host in ("hosted.localhost", "api.localhost"):
            headers = {"Authorization": f"Bearer {credential}", "Host": host}
            async with session.get("/v1/models", headers=headers) as listed:
                assert listed.status == 200
    async with service_view.client(credential) as client:
        assert await say(client) == "Good day."
    async with service_view.client(manages.credential) as client:
        with pytest.raises(openai.PermissionDeniedError):
            await say(client)


@pytest.mark.full
async def test_replicas_hear_of_each_other(hosted_database: str, tmp_path: Path) -> None:
    """Two services on one database: what is revoked or used at one, the other knows."""
    folders = tmp_path / "one", tmp_path / "two"
    for folder in folders:
        folder.mkdir()
    settings = config(url=hosted_database)
    with serving(folders[0], settings) as first, serving(folders[1], settings) as second:
        async with office(tmp_path, url=hosted_database) as opened:
            budget = Budget(Decimal("0.01"), BudgetPeriod.NEVER, Unit.MONEY)
            spent = await opened.key(bounds=LimitsAndBudgets(budgets=(budget,)))
            async with ServiceView(first, opened).client(spent.credential) as client:
                await say(client)
            await ServiceView(first, opened).recorded(spent.key.id)
            async with ServiceView(second, opened).client(spent.credential) as client:
                with pytest.raises(openai.APIStatusError, match="is spent"):
                    await say(client)
            made = await opened.key()
            for one in (first, second):
                async with ServiceView(one, opened).client(made.credential) as client:
                    assert await say(client) == "Good day."
            await opened.accounts.keys.disable(SYSTEM, made.key.id)
            for one in (first, second):
                async with ServiceView(one, opened).client(made.credential) as client:
                    with pytest.raises(openai.AuthenticationError):
                        async with asyncio.timeout(60):
                            while True:
                                await say(client)
                                await asyncio.sleep(0.05)  # another process hears of it


async def test_a_budget_smaller_than_one_request_admits_one_and_says_its_amount(
    service_view: ServiceView,
) -> None:
    """``docs/billing.md``: admitted while something is left; what runs holds its estimate."""
    made = await service_view.office.key(
        bounds=LimitsAndBudgets(budgets=(Budget(Decimal("0.00001")),))
    )
    async with service_view.client(made.credential) as client:
        begun = await asyncio.gather(*(say(client) for _ in range(8)), return_exceptions=True)
        answers = [one for one in begun if not isinstance(one, BaseException)]
        refusals = [one for one in begun if isinstance(one, openai.APIStatusError)]
        assert answers == ["Good day."]
        assert [one.status_code for one in refusals] == [402] * 7
        with pytest.raises(openai.APIStatusError) as caught:
            await say(client)
    [charged] = [one for one in await service_view.recorded(made.key.id, 9) if one.status == 200]
    assert charged.amount > Decimal("0.00001")
    assert caught.value.status_code == 402
    assert caught.value.code == "insufficient_budget"
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["message"].startswith(
        "The budget of this key, $0.00001 a month, is spent. It begins anew at "
    )
    budget = caught.value.body["metadata"]["budget"]
    assert (budget["amount"], budget["period"]) == ("0.00001", "month")


async def test_a_key_over_its_budget_takes_nothing_of_limits_that_others_share(
    service_view: ServiceView,
) -> None:
    """``docs/guides/limits.md``: admitted requests are counted, so a loop of 402 blocks nobody."""
    accounts = service_view.office.accounts
    project = await accounts.projects.create(SYSTEM, "Shared")
    limits = (Limit(requests_per_minute=3),)
    await accounts.projects.set_bounds(SYSTEM, project.id, LimitsAndBudgets(limits=limits))
    spent, innocent = [
        await accounts.keys.create(SYSTEM, project.id, KeyDraft("key", bounds=bounds))
        for bounds in (LimitsAndBudgets(budgets=(Budget(Decimal(0)),)), LimitsAndBudgets())
    ]
    async with (
        service_view.client(spent.credential) as loop,
        service_view.client(innocent.credential) as client,
    ):
        for _ in range(8):
            with pytest.raises(openai.APIStatusError) as refused:
                await say(loop)
            assert refused.value.status_code == 402
        for _ in range(3):
            assert await say(client) == "Good day."
        with pytest.raises(openai.RateLimitError):
            await say(client)


async def test_a_budget_of_nothing_admits_nothing(service_view: ServiceView) -> None:
    made = await service_view.office.key(bounds=LimitsAndBudgets(budgets=(Budget(Decimal(0)),)))
    async with service_view.client(made.credential) as client:
        with pytest.raises(openai.APIStatusError, match=r"\$0\.00 a month, so it may"):
            await say(client)
    [record] = await service_view.recorded(made.key.id)
    assert (record.status, record.attempts) == (402, 0)


async def test_the_model_that_was_asked_for_in_vain_is_shown_and_is_no_label(
    service_view: ServiceView,
) -> None:
    made = await service_view.office.key()
    name = "nobody-<b>\x00\x1b" + "x" * 200
    async with service_view.client(made.credential) as client:
        with pytest.raises(openai.NotFoundError):
            await say(client, model=name)
    [record] = await service_view.recorded(made.key.id)
    assert (record.status, record.code) == (404, "model_not_found")
    assert record.model == ("nobody-<b>\ufffd\ufffd" + "x" * 88 + "…")
    now = datetime.now(UTC)
    question = UsageQuery(
        now - timedelta(days=1), now + timedelta(days=1), Step.ALL, by=(By.MODEL,)
    )
    used = await service_view.office.reader.sums(question)
    assert not [each for each in used if "nobody" in each.group[By.MODEL]]
    last = await service_view.office.reader.last_used(service_view.office.project)
    assert microseconds(last[made.key.id]) == record.at
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{service_view.service.root}/metrics") as told,
    ):
        assert "nobody" not in await told.text()

    async def logged() -> bool:  # lines of requests are written together, a moment later
        return "nobody-<b>" in service_view.service.log.read_text()

    await eventually(logged)
