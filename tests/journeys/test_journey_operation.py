"""A day of a platform engineer: two replicas, sign-in by the company, budgets, faults, an upgrade.

The pages: docs/guides/deployment.md, docs/guides/identity.md. Replicas are processes beside a real
PostgreSQL and a real Valkey; the providers and the company's sign-in are scripted. At the end the
ledger is compared with what clients and providers saw, to the token.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from consolekit import Page, Visitor
from hostedkit import SECRET
from journeykit import Desk, Steps, desk
from oidcserver import CLIENT, RunningIssuer
from postgres import PostgresServer
from prometheus_client.parser import text_string_to_metric_families
from replicakit import Member, members
from upgradekit import migrate, next_version
from valkeyserver import ValkeyServer
from waiting import eventually
from webhookreceiver import SECRET as ALERTS_SECRET
from webhookreceiver import Receiver, webhook_receiver

CONFIG = """
[console]
operator_keys = ["{digest}"]
api_requests_per_minute = 6000
[store]
url = "{database}"
folder = "data"
secret_keys = [{{ command = ["echo", "{secret}"] }}]
[shared]
url = "{shared}"
prefix = "day"
[alerts]
check_seconds = 0.2
accounts_seconds = 0.2
resolve_seconds = 0.5
quiet_seconds = 0.1
[[alerts.webhooks]]
name = "ops"
url = "{hook}"
secret = {{ command = ["echo", "{signs}"] }}
kinds = ["provider", "budget"]
[[doors]]
name = "gateway"
kind = "gateway"
keys = "accounts"
[[providers]]
name = "north"
base_url = "{north}"
dialect = "vllm"
retries = 0
health = {{ path = "" }}
[[providers]]
name = "south"
base_url = "{south}"
dialect = "vllm"
health = {{ path = "" }}
[[aliases]]
id = "chat"
targets = [{{ provider = "north", model = "small" }},
  {{ provider = "south", model = "small", priority = 1 }}]
price = {{ prompt = "1000", completion = "2000" }}
[[aliases]]
id = "north/*"
targets = [{{ provider = "north", model = "*" }}]
price = {{ prompt = "1000", completion = "2000" }}
"""
COMPANY = """
[[identity_providers]]
name = "company"
issuer = "{issuer}"
client_id = "{client}"
client_secret = {{ command = ["echo", "{secret}"] }}
sign_up = true
allowed_domains = ["example.com"]
groups_claim = "groups"
[[identity_providers.groups]]
group = "data-science"
project = "{project}"
role = "member"
"""
CLIENT_SECRET = "a-word-of-the-company"
PROMPT, WORDS = 7, 3  # tokens of each request and of each reply


@dataclass
class Upstream:
    """A provider; ``status`` is that of its answers. ``models`` counts its whole replies."""

    status: int = 200
    base_url: str = ""
    models: Counter[str] = field(default_factory=Counter)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.status != 200:
            error = {"message": "no", "code": self.status}
            return web.json_response({"error": error}, status=self.status)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for word in range(WORDS):
            delta = {"content": f"{word} "}
            try:
                await response.write(_event({"choices": [{"index": 0, "delta": delta}]}))
            except ConnectionError:  # the replica was killed
                return response
            await self.gate.wait()
        self.models[body["model"]] += 1
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        usage = {"prompt_tokens": PROMPT, "completion_tokens": WORDS}
        usage["total_tokens"] = PROMPT + WORDS
        await response.write(_event({"choices": [end]}) + _event({"choices": [], "usage": usage}))
        await response.write(b"data: [DONE]\n\n")
        return response


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@asynccontextmanager
async def upstream() -> AsyncIterator[Upstream]:
    made = Upstream()
    made.gate.set()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", made.complete)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield made
    finally:
        made.gate.set()
        await runner.cleanup()


@dataclass
class Day:
    """Two replicas, who answers them, the engineer's key, and ids of whole replies (``ended``)."""

    replicas: Sequence[Member]
    folders: Sequence[Path]
    north: Upstream
    south: Upstream
    hook: Receiver
    session: aiohttp.ClientSession
    key: str
    ended: list[str] = field(default_factory=list)

    async def manage(self, path: str, body: object = None, method: str = "") -> Any:
        """One operation of the management API, at the second replica; it has to succeed."""
        method = method or ("GET" if body is None else "POST")
        headers = {"Authorization": f"Bearer {self.key}"}
        address = f"{self.replicas[1].root}/api{path}"
        async with self.session.request(method, address, json=body, headers=headers) as answer:
            text = await answer.text()
            assert answer.status < 300, (path, answer.status, text)
            return json.loads(text) if "json" in answer.content_type else text

    async def ask(self, key: str, model: str = "chat", replica: int = 0, **more: Any) -> Asked:
        """One request; what ends whole is noted."""
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], **more}
        headers = {"Authorization": f"Bearer {key}"}
        address = f"{self.replicas[replica].root}/gateway/v1/chat/completions"
        async with self.session.post(address, json=body, headers=headers) as answer:
            text = await answer.text()
        if answer.status == 200:
            self.ended.append(answer.headers["x-request-id"])
        return Asked(answer.status, answer.headers.get("x-served-by", ""), text)

    async def metric(self, name: str, **labels: str) -> float:
        async with self.session.get(f"{self.replicas[0].root}/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
        samples = [each for one in families for each in one.samples if each.name == name]
        return sum(each.value for each in samples if labels.items() <= each.labels.items())

    async def alert(self, kind: str) -> dict[str, Any]:
        while (posted := await self.hook.next()).body["type"] != kind:
            pass
        return dict(posted.body["data"])

    async def reload(self, more: str) -> None:
        """Append to the file of each replica, and have it read again."""
        for replica, folder in zip(self.replicas, self.folders, strict=True):
            with (folder / "causerie.toml").open("a") as file:
                file.write(more)
            replica.send(signal.SIGHUP)


@dataclass(frozen=True)
class Asked:
    status: int
    served_by: str
    text: str


@pytest.fixture
def at(tmp_path: Path) -> Desk:
    """Where the engineer sits."""
    home = tmp_path / "home"
    home.mkdir()
    return desk(home, tmp_path)


@pytest.fixture
async def day(
    tmp_path: Path, own_postgres: PostgresServer, own_valkey: ValkeyServer, at: Desk
) -> AsyncIterator[Day]:
    key, digest = re.findall(r"ck_[\w-]+(?::\w+)?", await at.run("causerie key"))[:2]
    async with AsyncExitStack() as stack:
        north = await stack.enter_async_context(upstream())
        south = await stack.enter_async_context(upstream())
        hook = await stack.enter_async_context(webhook_receiver())
        text = CONFIG.format(
            digest=digest, database=f"postgresql://causerie@/postgres?host={own_postgres.folder}",
            secret=SECRET, shared=own_valkey.url, hook=hook.url, signs=ALERTS_SECRET,
            north=north.base_url, south=south.base_url,
        )  # fmt: skip
        both = await stack.enter_async_context(members(tmp_path, [text, text]))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        folders = [tmp_path / "0", tmp_path / "1"]
        yield Day(both, folders, north, south, hook, session, key)


async def sign_in(day: Day, replica: int, oidc: RunningIssuer) -> tuple[Visitor, Page]:
    """By the company's provider, at one replica."""
    visitor = Visitor(day.replicas[replica].port)
    begun = await visitor.get("/sign-in/company")
    assert begun.status == 303, begun.text
    away = begun.headers["location"]
    async with day.session.get(away, allow_redirects=False) as response:
        assert response.status == 302, await response.text()
        back = response.headers["location"].partition("/console")[2]
    return visitor, await visitor.get(back)


async def set_up(day: Day, oidc: RunningIssuer) -> str:
    """A project with a budget, which the company's group leads into; returns its id."""
    owner = await day.manage("/users", {"email": "olive@example.com", "name": "Olive"})
    project = await day.manage("/projects", {"name": "Data science", "owner": owner["id"]})
    bounds = {"limits": [{"requests_per_minute": 600}], "budgets": [{"amount": "50"}]}
    await day.manage(f"/projects/{project['id']}/bounds", bounds, "PUT")
    company = COMPANY.format(
        issuer=oidc.issuer, client=CLIENT, secret=CLIENT_SECRET, project=project["id"]
    )
    await day.reload(company)

    async def offered() -> bool:
        pages = [await Visitor(one.port).get("/sign-in") for one in day.replicas]
        return all("Continue with" in page.text for page in pages)

    await eventually(offered)
    return str(project["id"])


async def arrive(day: Day, oidc: RunningIssuer, project: str) -> tuple[Visitor, str]:
    """Carla comes by her group, at the other replica, and makes a key."""
    claims = {"email": "carla@example.com", "name": "Carla", "groups": ["data-science"]}
    oidc.behave(secret=CLIENT_SECRET, claims=claims)
    visitor, entered = await sign_in(day, 1, oidc)
    assert entered.status == 303, entered.text
    members_of = (await day.manage(f"/projects/{project}/members"))["data"]
    assert {each["role"] for each in members_of} == {"owner", "member"}
    await visitor.get(f"/projects/{project}/keys/new")
    made = await visitor.post(f"/projects/{project}/keys/new", {"name": "Notebook"})
    return visitor, made.code("credential")


async def use_a_wildcard(day: Day, key: str) -> None:
    for model in ("alpha", "beta"):
        asked = await day.ask(key, f"north/{model}")
        assert (asked.status, asked.served_by) == (200, f"north/{model}")
    assert day.north.models == {"alpha": 1, "beta": 1}


async def fail_over(day: Day, key: str) -> None:
    """A provider that fails, and one that rejects our key: others answer, and ops hear why."""
    for status, words, state in (
        (500, "fails", "down"),
        (401, "it does not accept our key", "rejecting"),
    ):
        day.north.status = status
        for _ in range(6):
            asked = await day.ask(key)
            assert (asked.status, asked.served_by) == (200, "south/small")
        while words not in (told := await day.alert("provider.firing"))["summary"]:
            pass
        assert told["provider"] == "north"
        async with day.session.get(f"{day.replicas[0].root}/health") as answer:
            states = {each["name"]: each["state"] for each in (await answer.json())["targets"]}
        assert states["north/small"] == state
        day.north.status = 200
        if state == "down":  # one that rejects is tried once a minute
            await eventually(lambda: _answers_again(day, key))
            assert "Resolved: " in (await day.alert("provider.resolved"))["summary"]


async def _answers_again(day: Day, key: str) -> bool:
    await asyncio.sleep(0.2)
    return (await day.ask(key)).served_by == "north/small"


async def spend(day: Day, carla: Visitor, project: str, key: str) -> None:
    """An agent's key ends with its budget at both replicas; the project's other key goes on."""
    fields = {"name": "Agent", "budget_amount": "0.05", "budget_unit": "money"}
    fields |= {"budget_period": "month", "budget_model": ""}
    made = await carla.post(f"/projects/{project}/keys/new", fields)
    agent = made.code("credential")
    statuses = [(await day.ask(agent, replica=number % 2)).status for number in range(12)]
    assert statuses == sorted(statuses)
    assert 3 <= statuses.count(200) <= 5  # a request costs $0.013
    assert set(statuses) == {200, 402}
    told = await day.alert("budget.firing")
    while told["threshold"] != "100":
        told = await day.alert("budget.firing")
    assert told["owner"] == f"key:{agent.partition('_')[0]}_{agent.split('_')[1]}"
    assert (await day.ask(key)).status == 200

    async def counted() -> bool:  # each replica looks for itself
        return await day.metric("causerie_budgets", owner="key", used="100") == 1

    await eventually(counted)
    assert await day.metric("causerie_budgets", owner="project", used="50") == 0
    assert await day.metric("causerie_cost_total", model="chat") > 0.05


async def lose_the_database(day: Day, key: str, postgres: PostgresServer) -> None:
    """Requests go on by the journal; one line in the log, and metrics that say so."""
    await asyncio.to_thread(postgres.stop)
    for _ in range(10):
        assert (await day.ask(key)).status == 200
    await eventually(lambda: _is(day, "causerie_database_up", 0))
    assert await day.metric("causerie_usage_records_waiting") > 0
    assert await day.metric("causerie_journal_up") == 1
    await asyncio.sleep(2)  # four looks for changes of keys
    said = day.replicas[0].log().count("the database cannot be used")
    assert said == 1
    await asyncio.to_thread(postgres.start)
    await eventually(lambda: _is(day, "causerie_usage_records_waiting", 0))
    await eventually(lambda: _is(day, "causerie_database_up", 1))


async def _is(day: Day, name: str, value: float) -> bool:
    return await day.metric(name) == value


async def kill(day: Day, key: str) -> None:
    """A replica dies with a stream under way; the other answers, and it comes back."""
    day.south.gate.clear()
    day.north.gate.clear()
    running = asyncio.create_task(_cut(day, key))
    await eventually(lambda: _running(day))
    await day.replicas[0].stop(signal.SIGKILL)
    await running
    day.south.gate.set()
    day.north.gate.set()
    assert (await day.ask(key, replica=1)).status == 200
    await day.replicas[0].start()
    assert (await day.ask(key)).status == 200


async def _running(day: Day) -> bool:
    async with day.session.get(f"{day.replicas[0].root}/health") as answer:
        targets = (await answer.json())["targets"]
    return any(each["in_flight"] for each in targets)


async def _cut(day: Day, key: str) -> None:
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    address = f"{day.replicas[0].root}/gateway/v1/chat/completions"
    headers = {"Authorization": f"Bearer {key}"}
    with pytest.raises(aiohttp.ClientError):
        async with day.session.post(address, json=body, headers=headers) as answer:
            await answer.text()


async def upgrade_and_go_back(day: Day, key: str, folder: Path) -> None:
    """The next version migrates; a replica of this one still starts, beside one that ran on."""
    program = await asyncio.to_thread(next_version, folder)
    at = day.folders[0]
    plan = await asyncio.to_thread(migrate, program, at, "--plan")
    assert "Afterwards the version that runs now can serve these tables too." in plan
    done = await asyncio.to_thread(migrate, program, at)
    assert done == "The database has revision 9999.\n"
    assert (await day.ask(key, replica=1)).status == 200
    assert await day.replicas[0].stop() == 0
    await day.replicas[0].start()
    assert "the tables are those of a newer version" in day.replicas[0].log()
    assert (await day.ask(key)).status == 200


async def start_with_another_secret(day: Day, folder: Path) -> None:
    """A replica that cannot open the keys of the database's entries says so and ends."""
    settings = {"name": "west", "base_url": day.south.base_url}
    entry = {"kind": "provider", "settings": settings, "key": "sk-west"}
    await day.manage("/configuration/entries", entry)
    text = (day.folders[0] / "causerie.toml").read_text()
    stranger = Member(folder / "2", text.replace(SECRET, SECRET[::-1]))
    with pytest.raises(AssertionError, match="encrypted with another key: provider west"):
        await stranger.start()
    assert await stranger.stop() != 0


async def off_board(day: Day, key: str, oidc: RunningIssuer) -> None:
    """Carla leaves the company: her keys stop everywhere, and she comes in no more."""
    people = (await day.manage("/users"))["data"]
    [carla] = [each["id"] for each in people if each["email"] == "carla@example.com"]
    await day.manage(f"/users/{carla}/disable", {})

    async def stopped() -> bool:
        return {(await day.ask(key, replica=one)).status for one in (0, 1)} == {401}

    await eventually(stopped)
    visitor, refused = await sign_in(day, 0, oidc)
    assert refused.status >= 400
    assert (await visitor.get("/profile")).status == 303  # to the page to sign in


async def read_the_statement(day: Day, project: str) -> None:
    """What the providers counted is what the statement says, and each request stands there once."""
    query = f"/usage.csv?step=all&by=model&project={project}"

    async def complete() -> bool:
        rows = await _csv(day, query)
        whole = sum(day.north.models.values()) + sum(day.south.models.values())
        return sum(int(row["completion_tokens"]) for row in rows) >= WORDS * whole

    await eventually(complete)
    rows = await _csv(day, query)
    whole = Counter(f"north/{name}" for name in day.north.models.elements() if name != "small")
    whole["chat"] = day.north.models["small"] + day.south.models["small"]
    charged = {row["model"]: row for row in rows}
    for model, count in whole.items():
        assert int(charged[model]["completion_tokens"]) == WORDS * count, model
        cost = (PROMPT * 1000 + WORDS * 2000) * count / 1_000_000
        assert float(charged[model]["cost"]) == pytest.approx(cost)
    month = f"{datetime.now(UTC):%Y-%m}"
    lines = await _csv(day, f"/statement.csv?month={month}&project={project}")
    invoiced = Counter[tuple[str, str]]()
    for line in lines:
        invoiced[line["provider"], line["provider_model"]] += int(line["output_tokens"])
    assert invoiced == {
        (name, model): WORDS * count
        for name, provider in (("north", day.north), ("south", day.south))
        for model, count in provider.models.items()
    }
    found, cursor = Counter[str](), ""
    while True:
        page = await day.manage(f"/requests?limit=100&project={project}{cursor}")
        found.update(each["request_id"] for each in page["data"] if each["status"] == 200)
        if not page.get("next"):
            break
        cursor = f"&cursor={page['next']}"
    assert found == Counter(day.ended)


async def _csv(day: Day, path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(await day.manage(path), newline="")))


@pytest.mark.full
async def test_a_day_of_a_platform_engineer(
    day: Day, oidc: RunningIssuer, own_postgres: PostgresServer, steps: Steps, tmp_path: Path
) -> None:
    with steps.step("Create a project, and let the company's groups lead into it"):
        project = await set_up(day, oidc)
    with steps.step("Sign in by the company, and make a key"):
        carla, key = await arrive(day, oidc, project)
    with steps.step("Use every model of a provider"):
        await use_a_wildcard(day, key)
    with steps.step("A provider fails, then rejects our key"):
        await fail_over(day, key)
    with steps.step("A key's budget is used up"):
        await spend(day, carla, project, key)
    with steps.step("The database is away"):
        await lose_the_database(day, key, own_postgres)
    with steps.step("A replica is killed"):
        await kill(day, key)
    with steps.step("Upgrade, and go back"):
        await upgrade_and_go_back(day, key, tmp_path)
    with steps.step("Start a replica with another secret"):
        await start_with_another_secret(day, tmp_path)
    with steps.step("Read the statement"):
        await read_the_statement(day, project)
    with steps.step("Somebody leaves"):
        await off_board(day, key, oidc)
    log = day.replicas[0].log() + day.replicas[1].log()
    secrets = key, day.key, SECRET, CLIENT_SECRET, ALERTS_SECRET, "sk-west"
    assert not [one for one in secrets if one in log]
