"""Alerts of a whole service: who is told of budgets, keys, providers, errors and jobs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import openai
import pytest
from accountkit import World
from hostedkit import Office, office
from ledgerkit import record
from openai import AsyncOpenAI
from operationskit import market
from routingkit import Scripted
from service import Service, free_port, serving
from smtpserver import Mailbox, smtp
from webhookreceiver import SECRET, Receiver, webhook_receiver

from causerie.composition.account_backend import AccountConditions
from causerie.composition.alerting import (
    Alerting,
    ImpossibleUsage,
    engine_conditions,
    error_conditions,
    provider_conditions,
)
from causerie.engines.base import EngineState, EngineStatus
from causerie.errors import ErrorClass, StoreUnavailable, UpstreamFailed
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, LimitsAndBudgets, Unit
from causerie.hosted.accounts.issuing import KeyDraft
from causerie.hosted.accounts.people import REMINDERS, SYSTEM, Role, User, actor_of
from causerie.hosted.accounts.spending import Watching
from causerie.hosted.store.usage import SqlUsage
from causerie.http.tasks import owned
from causerie.observe.alerts import AlertKind, ErrorRate, ErrorRates, MemoryBook, StoredAlert
from causerie.routing.circuit_breaker import THRESHOLD, CircuitBreaker
from causerie.routing.router import Router
from causerie.routing.target import Target
from causerie.routing.target_state import IMPOSSIBLE_USAGE, TargetState
from causerie.settings.alerts import Alerts
from causerie.settings.load import load
from causerie.settings.tree import Settings

CONFIG = """
[store]
folder = "data"

[[doors]]
name = "hosted"
kind = "hosted"

[[models]]
id = "small"
engine = "fake"

[[providers]]
name = "north"
base_url = "http://127.0.0.1:{port}/v1"
health = {{ interval_seconds = 0.2 }}

[[aliases]]
id = "far"
targets = [{{ provider = "north", model = "m" }}]

[mail]
host = "127.0.0.1"
port = {smtp}
tls = "off"
sender = "causerie@example.org"

[alerts]
check_seconds = 0.1
accounts_seconds = 0.2
resolve_seconds = 0.5
quiet_seconds = 0.1
error_requests = 3

[[alerts.webhooks]]
name = "ops"
url = "{hook}"
secret = {{ command = ["echo", "{secret}"] }}

[[alerts.emails]]
name = "team"
to = ["team@example.org"]
kinds = ["provider"]
"""
HOURS = timedelta(hours=1)


@dataclass
class Heard:
    """What came to the webhook, by types; each is awaited once."""

    hook: Receiver
    early: list[dict[str, Any]] = field(default_factory=list)

    async def of(self, kind: str) -> dict[str, Any]:
        """The data of the next message of this type."""
        for body in self.early:
            if body["type"] == kind:
                self.early.remove(body)
                return dict(body["data"])
        while (body := (await self.hook.next()).body)["type"] != kind:
            self.early.append(body)
        return dict(body["data"])


async def person_with_key(office: Office) -> tuple[User, str, str]:
    """A person whose key expires soon, both with a budget in tokens; the key's id and secret."""
    ada = await office.accounts.users.create(
        SYSTEM, email="ada@example.org", name="Ada", password=None, operator=False
    )
    project = await office.accounts.projects.create(SYSTEM, "Search", owner=ada.id)
    budget = Budget(Decimal(10), BudgetPeriod.MONTH, Unit.TOKENS)
    draft = KeyDraft(
        "ci",
        expires_at=datetime.now(UTC) + 40 * HOURS,
        bounds=LimitsAndBudgets(budgets=(budget,)),
    )
    made = await office.accounts.keys.create(actor_of(ada), project.id, draft)
    await office.accounts.person_bounds.set(SYSTEM, ada.id, LimitsAndBudgets(budgets=(budget,)))
    return ada, made.key.id, made.credential


async def ask(service: Service, key: str, model: str) -> None:
    client = AsyncOpenAI(api_key=key, base_url=f"{service.root}/hosted/v1", max_retries=0)
    async with client:
        await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Good day."}], max_tokens=20
        )


async def provider(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A provider that has no models, and says so."""
    await reader.readuntil(b"\r\n\r\n")
    body = b'{"object": "list", "data": []}'
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n")
    writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()
    writer.close()


async def test_who_is_told_of_what(tmp_path: Path) -> None:
    port = free_port()
    async with webhook_receiver() as hook, smtp() as box:
        text = CONFIG.format(port=port, smtp=box.port, hook=hook.url, secret=SECRET)
        with serving(tmp_path, text) as service:
            heard = Heard(hook)
            first = await heard.of("provider.firing")
            assert "Provider north fails and gets no requests" in first["summary"]
            assert (first["provider"], first["targets"]) == ("north", "north/m")
            async with office(tmp_path / "data") as outside:
                await told_of_accounts(service, outside, heard, box)
            await told_of_the_configuration(service, text, heard)
            server = await asyncio.start_server(provider, "127.0.0.1", port)
            async with server:
                assert (await heard.of("provider.resolved"))["provider"] == "north"
            await told_team(box)
            assert hook.wrong == []
            service.process.terminate()  # awaited, for it may be sending a letter to this process
            await asyncio.to_thread(service.process.wait, 30)
        log = service.log.read_text()
        for secret in (SECRET, "ada@example.org", "team@example.org", "hook?team"):
            assert secret not in log


async def told_of_accounts(service: Service, office: Office, heard: Heard, box: Mailbox) -> None:
    ada, key, secret = await person_with_key(office)
    expiry = await heard.of("key_expiry.firing")
    assert expiry["owner"] == f"key:{key}"
    assert expiry["summary"] == f'Key "ci" ({key}) of project Search expires in 2 days'
    await letter_to(box, ada.email, "expires in 2 days")
    for _ in range(3):
        with pytest.raises(openai.InternalServerError):
            await ask(service, secret, "far")
    rate = await heard.of("error_rate.firing")
    assert (rate["model"], rate["percent"]) == ("far", "100")
    await ask(service, secret, "small")
    budgets = [await heard.of("budget.firing") for _ in range(2)]
    assert {each["owner"] for each in budgets} == {f"key:{key}", f"user:{ada.id}"}
    for _ in budgets:
        await letter_to(box, ada.email, "of its budget")
    assert all(int(each["percent"]) >= int(each["threshold"]) >= 50 for each in budgets)
    assert secret not in str(budgets)


async def told_of_the_configuration(service: Service, text: str, heard: Heard) -> None:
    file = service.log.parent / "causerie.toml"
    file.write_text(text + "\n[nonsense]\n")
    service.process.send_signal(signal.SIGHUP)
    assert "causerie check" in (await heard.of("job.firing"))["summary"]
    file.write_text(text)
    service.process.send_signal(signal.SIGHUP)
    assert (await heard.of("job.resolved"))["job"] == "reload"


async def letter_to(box: Mailbox, address: str, words: str) -> None:
    others = []
    while (letter := await box.letter())["To"] != address:
        others.append(letter)
    for other in others:
        box.letters.put_nowait(other)
    assert words in letter["Subject"]


async def told_team(box: Mailbox) -> None:
    """Of the provider alone, since the channel is for nothing else."""
    subjects: list[str] = []
    while len(subjects) < 2:
        letter = await box.letter()
        assert letter["To"] == "team@example.org"
        subjects.append(letter["Subject"].strip())
    assert subjects[0].startswith("[Causerie] Provider north fails")
    assert subjects[1].startswith("[Causerie] Resolved: Provider north")


ADA, OLGA = "ada@example.org", "olga@example.org"


async def found(world: World, low_balance: str = "0") -> Sequence[tuple[str, int, str]]:
    """Levels, owners and words of conditions of accounts."""
    watching = Watching(world.store)
    conditions = AccountConditions(
        MemoryBook(), watching, world.accounts.scope_budgets, world.clock
    )
    conditions.low_balance = Decimal(low_balance)
    return [
        (each.summary, each.level, " ".join(each.owners))
        for each in await conditions.look(Alerts())
    ]


async def test_a_key_is_told_of_as_its_end_comes_near(lite: World) -> None:
    ada = await lite.person("ada")
    project = await lite.project(owner=ada)
    draft = KeyDraft("ci", expires_at=lite.now + 20 * 24 * HOURS)
    key = (await lite.keys.create(actor_of(ada), project.id, draft)).key
    said = []
    for days in (0, 7, 11, 1.5, 1):
        lite.later(days=days)
        said += [
            (words.partition("expires")[2], level, to) for words, level, to in await found(lite)
        ]
    to = "ada@example.org"
    assert said == [
        *((" in 13 days", 1, to), (" in 2 days", 12, to), (" in a day or less", 14, to)),
    ]
    await lite.keys.delete(actor_of(ada), key.id)
    assert await found(lite) == []


async def test_people_learn_of_their_budgets_and_owners_of_those_of_their_projects(
    lite: World,
) -> None:
    """A soft limit too, which refuses nothing."""
    ada, olga = await lite.person("ada"), await lite.person("olga")
    gone = await lite.person("gone")
    project = await lite.project(owner=olga, member=ada)
    await lite.join(project, gone, Role.OWNER)
    await lite.users.disable(SYSTEM, gone.id)
    soft = LimitsAndBudgets(budgets=(Budget(Decimal("0.0001"), soft=True),))
    key = (await lite.key(project, ada, bounds=soft)).key
    for owner in (f"project:{project.id}", f"user:{ada.id}"):
        async with lite.store.writing() as repositories:
            await repositories.keys.set_bounds({owner: soft})
    budgets = [Budget(Decimal("0.0001"))]
    await lite.accounts.scope_budgets.set(SYSTEM, "tag", "nightly", budgets)
    await lite.accounts.scope_budgets.set(SYSTEM, "provider", "north", budgets)
    used = record(project=project.id, key=key.id, user=ada.id, tag="nightly", served_by="north/m")
    await SqlUsage(lite.database).append([used])
    words = "has used 123 % of its"
    assert sorted(await found(lite)) == sorted(
        [
            (f"Project Project {words} soft limit ($0.0001 a month (soft))", 100, OLGA),
            (f"ada ({ada.id}) {words} soft limit ($0.0001 a month (soft))", 100, ADA),
            (
                f'Key "key" ({key.id}) of project Project {words} soft limit '
                "($0.0001 a month (soft))",
                100,
                f"{ADA} {OLGA}",
            ),
            (f"Tag nightly {words} budget ($0.0001 a month)", 100, ""),
            (f"Provider north {words} budget ($0.0001 a month)", 100, ""),
        ]
    )


async def test_owners_are_reminded_while_their_balance_is_low(lite: World) -> None:
    ada, olga = await lite.person("ada"), await lite.person("olga")
    project = await lite.project(owner=olga, member=ada)
    other = await lite.project(owner=ada)
    await lite.credits.put(SYSTEM, other.id, Decimal("0.5"))
    await lite.projects.archive(SYSTEM, other.id)
    assert await found(lite, "1") == []  # without credits there is no balance
    await lite.credits.put(SYSTEM, project.id, Decimal("1.5"))
    assert await found(lite, "1.5") == []
    assert await found(lite, "0") == []
    used = record(project=project.id, cost=600_000_000)
    await SqlUsage(lite.database).append([used])
    assert await found(lite, "1") == [("Project Project has $0.90 of credits left", 1, OLGA)]
    await lite.credits.put(SYSTEM, project.id, Decimal(1))
    assert await found(lite, "1") == []


async def test_people_get_the_reminders_that_they_chose(lite: World) -> None:
    olga = await lite.person("olga")
    project = await lite.project(owner=olga)
    spent = LimitsAndBudgets(budgets=(Budget(Decimal("0.0001")),))
    await lite.key(project, olga, bounds=spent, expires_at=lite.now + 24 * HOURS)
    async with lite.store.writing() as repositories:
        owners = (f"project:{project.id}", f"user:{olga.id}")
        await repositories.keys.set_bounds(dict.fromkeys(owners, spent))
    await lite.credits.put(SYSTEM, project.id, Decimal(1))
    [key] = await lite.keys.of(actor_of(olga), project.id)
    used = record(project=project.id, key=key.id, user=olga.id, cost=900_000_000)
    await SqlUsage(lite.database).append([used])

    async def reminded() -> dict[str, str]:
        kinds = {"credits left": "credits", "expires in": "keys", "has used": "budgets"}
        words = await found(lite, "0.5")
        assert len(words) == 5, "operators hear of all, whoever wants no letter"
        return {
            kind: to for summary, _, to in words for mark, kind in kinds.items() if mark in summary
        }

    assert await reminded() == dict.fromkeys(REMINDERS, OLGA)
    for wanted in REMINDERS:
        await lite.accounts.profile.choose_reminders(olga, [wanted])
        assert await reminded() == {**dict.fromkeys(REMINDERS, ""), wanted: OLGA}


def test_the_rate_of_errors_is_that_of_the_window() -> None:
    rates = ErrorRates()
    assert rates.look({"m": (100, 50)}, 0, 60) == {"m": ErrorRate(0, 0)}
    assert rates.look({"m": (110, 55), "n": (4, 4)}, 30, 60)["m"] == ErrorRate(10, 5)
    assert rates.look({"m": (110, 55)}, 75, 60)["m"] == ErrorRate(10, 5)
    assert rates.look({"m": (150, 56)}, 100, 60)["m"] == ErrorRate(40, 1)
    few, many = ErrorRate(19, 19), ErrorRate(20, 4)
    assert [*error_conditions(Alerts(), {"m": few, "n": ErrorRate(100, 19)})] == []
    [condition] = error_conditions(Alerts(), {"m": many})
    assert condition.summary == "Model m fails: 20 % of 20 requests"


def test_impossible_usage_is_told_for_a_while() -> None:
    breaker = CircuitBreaker(lambda: 0.0, lambda: 0.5)
    state = TargetState("north/m", cast(Target, None), None, breaker)
    target = SimpleNamespace(name="north/m", provider="north")
    settings = cast(Settings, SimpleNamespace(targets=[target]))
    reports = ImpossibleUsage()
    assert [*reports.look(settings, [state], 0.0)] == []
    state.failures[IMPOSSIBLE_USAGE] += 1
    for now in (10.0, 600.0):
        [condition] = reports.look(settings, [state], now)
        assert (condition.key, condition.kind) == ("usage:north", AlertKind.PROVIDER)
    assert [*reports.look(settings, [state], 611.0)] == []


class AwayBook(MemoryBook):
    """A book whose database cannot be reached."""

    async def alerts(self) -> Sequence[StoredAlert]:
        raise StoreUnavailable


async def test_a_database_that_is_away_is_told_without_it(lite: World, tmp_path: Path) -> None:
    async with webhook_receiver() as hook, market(lite, tmp_path, hook=hook.url) as made:
        watching = Watching(lite.store)
        conditions = AccountConditions(
            AwayBook(), watching, lite.accounts.scope_budgets, lite.clock
        )
        alerting = Alerting(made.service, made.configuration, conditions)
        await alerting.look()
        await alerting.look()
        async with owned(alerting.deliver()):
            posted = await hook.next()
        assert posted.body["type"] == "job.firing"
        assert posted.body["data"]["summary"] == "The database cannot be reached"
        assert hook.posted.empty()


def test_an_engine_that_has_failed_is_a_job() -> None:
    engines = [EngineStatus("a", EngineState.READY), EngineStatus("b", EngineState.FAILED)]
    assert [each.key for each in engine_conditions(engines)] == ["job:engine:b"]


@pytest.mark.parametrize("cause", [each for each in ErrorClass if each.is_rejection])
def test_a_provider_that_rejects_everything_is_told_of_with_the_reason(
    cause: ErrorClass, tmp_path: Path
) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text(
        '[server]\nkeys = "off"\n'
        '[[providers]]\nname = "north"\nbase_url = "http://127.0.0.1:1/v1"\n'
        '[[aliases]]\nid = "m"\ntargets = [{ provider = "north", model = "m" }]\n'
        '[[aliases]]\nid = "n"\ntargets = [{ provider = "north", model = "n" }]\n'
    )
    settings = load(file=file).settings
    states = Router({name: Scripted(()) for name in ("north/m", "north/n")}).target_states()
    refusal = UpstreamFailed("No.", metadata={"upstream_status": 400}).caused_by(cause)
    for _ in range(THRESHOLD):
        assert not list(provider_conditions(settings, states))
        states[0].failed(refusal)
    [some] = provider_conditions(settings, states)
    assert "for 1 of 2 targets" in some.summary
    for _ in range(THRESHOLD):
        states[1].failed(refusal)
    states[1].breaker.back()  # a check has found it there
    [condition] = provider_conditions(settings, states)
    assert (condition.key, condition.kind) == ("rejects:north", AlertKind.PROVIDER)
    assert condition.summary.startswith("Provider north rejects all requests, so others")
    assert condition.details["reason"] == cause.value
    for state in states:
        state.breaker.answers()
    assert not list(provider_conditions(settings, states))
