"""Two whole services on one database and one shared server, as they are run side by side."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from secrets import token_hex

import aiohttp
import pytest
from aiohttp import web
from casekit import first_of
from hostedkit import SECRET, Office, office
from postgres import PostgresServer
from service import Service, serving
from valkey.asyncio import Valkey
from valkeyserver import ValkeyServer
from waiting import eventually

from causerie.composition.service import sharing
from causerie.composition.startup import CannotStart
from causerie.distributed import connection
from causerie.distributed.connection import DistributedOptions
from causerie.hosted.accounts.bounds import Budget, Limit, LimitsAndBudgets
from causerie.hosted.accounts.issuing import KeyDraft, NewKey
from causerie.hosted.accounts.keys import Purpose
from causerie.hosted.accounts.people import SYSTEM, Role, actor_of
from causerie.settings.store import SharedSettings

CONFIG = """
[store]
url = "{database}"
folder = "data"
offline_seconds = {offline}
secret_keys = [{{ command = ["echo", "{secret}"] }}]
{shared}
[[doors]]
name = "hosted"
kind = "hosted"
[[providers]]
name = "up"
base_url = "{upstream}"
dialect = "vllm"
[providers.health]
path = ""
[[aliases]]
id = "small"
targets = [{{ provider = "up", model = "m" }}]
price = {{ prompt = "0", completion = "0", request = "1" }}
"""
SHARED = '[shared]\nurl = "{url}"\nprefix = "{prefix}"\nreply_seconds = {reply_seconds}\n'
PATIENT = 10  # seconds for replies: a machine that stalls lets no replica count alone
REPLY = {
    "id": "x",
    "object": "chat.completion",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
}


@dataclass
class Upstream:
    """Answers when it may; ``asked`` is how many requests came."""

    base_url: str = ""
    asked: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def complete(self, request: web.Request) -> web.Response:
        await request.read()
        self.asked += 1
        await self.open.wait()
        return web.json_response(REPLY)


@asynccontextmanager
async def upstream() -> AsyncIterator[Upstream]:
    """On loopback; it may answer from the beginning."""
    made = Upstream()
    made.open.set()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", made.complete)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield made
    finally:
        made.open.set()
        await runner.cleanup()


@dataclass
class Reply:
    status: int
    code: str | None = None


@dataclass
class Replicas:
    """The services, who answers them, and their database from outside."""

    services: Sequence[Service]
    upstream: Upstream
    office: Office
    session: aiohttp.ClientSession

    async def key(self, *, budget: int | None = None, **limits: int) -> NewKey:
        budgets = () if budget is None else (Budget(Decimal(budget)),)
        return await self.office.key(
            bounds=LimitsAndBudgets(limits=(Limit(**limits),) if limits else (), budgets=budgets)
        )

    async def ask(self, number: int, key: NewKey | str) -> Reply:
        """One plain request to one of them."""
        credential = key if isinstance(key, str) else key.credential
        async with self.session.post(
            f"{self.services[number].root}/hosted/v1/chat/completions",
            json={"model": "small", "messages": [{"role": "user", "content": "Hi"}]},
            headers={"Authorization": f"Bearer {credential}"},
        ) as answer:
            body = await answer.json()
            return Reply(answer.status, body.get("error", {}).get("code"))

    async def manage(self, number: int, key: NewKey, path: str, body: object) -> dict[str, object]:
        """One operation of the management API of one of them."""
        headers = {"Authorization": f"Bearer {key.credential}"}
        address = f"{self.services[number].root}/api{path}"
        async with self.session.post(address, json=body, headers=headers) as answer:
            return {"status": answer.status, **await answer.json()}

    async def status(self, number: int, key: NewKey, path: str, body: object) -> object:
        """Its status alone."""
        return (await self.manage(number, key, path, body))["status"]

    async def statuses(self, key: NewKey, each: int) -> list[int]:
        """Of so many to every one of them, at once."""
        asked = [self.ask(n, key) for n in range(len(self.services)) for _ in range(each)]
        return [reply.status for reply in await asyncio.gather(*asked)]

    async def spent(self, key: NewKey) -> Decimal:
        """Return the amount in the ledger."""
        return sum(
            (one.amount for one in await self.office.records() if one.key == key.key.id), Decimal()
        )

    async def shared(self, number: int) -> dict[str, bool]:
        async with self.session.get(f"{self.services[number].root}/health") as answer:
            found: dict[str, bool] = (await answer.json())["limits"]
            return found

    async def shared_answers(self, expected: bool) -> None:
        """Return when all of them know whether the shared server answers."""

        async def said() -> bool:
            found = [await self.shared(number) for number in range(len(self.services))]
            return all(one == {"shared": True, "answers": expected} for one in found)

        await eventually(said)


def address(server: PostgresServer) -> str:
    return f"postgresql://causerie@/postgres?host={server.folder}"


@asynccontextmanager
async def replicas(
    folder: Path,
    database: str,
    shared: ValkeyServer | None,
    *,
    count: int = 2,
    offline: float = 60,
    reply_seconds: float = PATIENT,
) -> AsyncIterator[Replicas]:
    """So many services, which share what is given, and have found it."""
    async with upstream() as answers, aiohttp.ClientSession() as session:
        sharing = ""
        if shared is not None:
            sharing = SHARED.format(
                url=shared.url, prefix=token_hex(8), reply_seconds=reply_seconds
            )
        text = CONFIG.format(
            database=database,
            secret=SECRET,
            shared=sharing,
            offline=offline,
            upstream=answers.base_url,
        )
        with started(folder, text, count) as services:
            async with office(folder, url=database) as opened:
                service_view = Replicas(services, answers, opened, session)
                if shared is not None:
                    await service_view.shared_answers(True)
                yield service_view


@contextmanager
def started(folder: Path, text: str, count: int) -> Iterator[list[Service]]:
    with ExitStack() as stack:
        services = []
        for number in range(count):
            (folder / str(number)).mkdir()
            services.append(stack.enter_context(serving(folder / str(number), text)))
        yield services


async def test_the_connection_is_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[DistributedOptions] = []

    def noted(url: str, options: DistributedOptions) -> None:
        seen.append(options)
        raise ValueError(url)

    monkeypatch.setattr(connection, "Replica", noted)
    settings = SharedSettings(url="valkey://there", away="refuse", reply_seconds=7)
    with pytest.raises(CannotStart):
        async with sharing(settings):
            pass
    (options,) = seen
    assert (options.away, options.reply_seconds) == ("refuse", 7)


async def test_twice_as_many_as_a_budget_has_do_not_pass_it(
    valkey: ValkeyServer, hosted_database: str, tmp_path: Path
) -> None:
    async with replicas(tmp_path, hosted_database, valkey) as service_view:
        key = await service_view.key(budget=10)
        service_view.upstream.open.clear()
        asked = asyncio.ensure_future(service_view.statuses(key, 10))

        async def refused() -> bool:
            return service_view.upstream.asked == 10

        await eventually(refused)
        assert (await service_view.ask(0, key)).code == "insufficient_budget"  # all of it is held
        service_view.upstream.open.set()
        assert sorted(await asked) == [200] * 10 + [402] * 10
        assert await service_view.statuses(key, 2) == [402] * 4

        async def recorded() -> bool:
            return await service_view.spent(key) == 10

        await eventually(recorded)


@pytest.mark.full
async def test_what_a_killed_service_held_is_free_again(
    valkey: ValkeyServer, hosted_database: str, tmp_path: Path
) -> None:
    async with replicas(tmp_path, hosted_database, valkey) as service_view:
        key = await service_view.key(budget=3, concurrent=4)
        assert (await service_view.ask(1, key)).status == 200
        service_view.upstream.open.clear()
        held = asyncio.gather(*(service_view.ask(0, key) for _ in range(2)), return_exceptions=True)

        async def both_run() -> bool:
            return service_view.upstream.asked == 3

        await eventually(both_run)
        assert (await service_view.ask(1, key)).status == 402
        service_view.services[0].process.kill()
        assert all(isinstance(each, aiohttp.ClientError) for each in await held)
        service_view.upstream.open.set()

        async def let_in() -> bool:
            return (await service_view.ask(1, key)).status == 200

        await eventually(let_in)
        assert (await service_view.ask(1, key)).status == 200
        assert (await service_view.ask(1, key)).status == 402


@pytest.mark.full
async def test_requests_go_on_whatever_becomes_of_the_shared_server(
    own_valkey: ValkeyServer, hosted_database: str, tmp_path: Path
) -> None:
    async with replicas(tmp_path, hosted_database, own_valkey, reply_seconds=0.25) as service_view:
        key = await service_view.key(budget=12)
        answers = service_view.shared_answers

        async def recorded(count: int) -> None:
            async def there() -> bool:
                return await service_view.spent(key) == count

            await eventually(there)

        assert await service_view.statuses(key, 1) == [200] * 2
        own_valkey.pause()
        assert await service_view.statuses(key, 1) == [200] * 2
        await answers(False)
        own_valkey.go_on()
        await answers(True)
        assert await service_view.statuses(key, 1) == [200] * 2
        own_valkey.kill()
        await answers(False)
        assert await service_view.statuses(key, 1) == [200] * 2
        own_valkey.start()
        await answers(True)
        await recorded(8)
        async with Valkey.from_url(own_valkey.url) as client:
            await client.flushall()
        assert sorted(await service_view.statuses(key, 1)) == [200] * 2  # alone, when they notice
        await answers(True)
        await recorded(10)

        async def joined() -> bool:
            return (await service_view.ask(0, key)).status == 402

        found = await service_view.statuses(key, 4)
        await eventually(joined)
        assert 2 <= found.count(200) <= 4  # what the other let in before it was heard of
        assert set(found) <= {200, 402}


async def test_a_key_that_is_revoked_stops_everywhere_within_a_second(
    valkey: ValkeyServer, hosted_database: str, tmp_path: Path
) -> None:
    async with replicas(tmp_path, hosted_database, valkey) as service_view:
        key = await service_view.key()
        assert await service_view.statuses(key, 1) == [200] * 2
        await service_view.office.accounts.keys.delete(SYSTEM, key.key.id)
        revoked = time.monotonic()

        async def last(number: int) -> tuple[float, float]:
            """When the last request began that was let in, and how long the slowest one took."""
            began, slowest = 0.0, 0.0
            async with asyncio.timeout(60):
                while True:
                    at = time.monotonic()
                    reply = await service_view.ask(number, key)
                    slowest = max(slowest, time.monotonic() - at)
                    if reply.status == 401:
                        return began, slowest
                    assert reply.status == 200
                    began = at - revoked
                    await asyncio.sleep(0.02)

        for began, slowest in await asyncio.gather(last(0), last(1)):
            assert began < 1 + slowest  # a machine that is busy with others is slow in everything


async def test_a_database_that_is_stopped_opens_no_door_and_turns_nobody_away(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    url = address(own_postgres)
    async with replicas(tmp_path, url, None, count=1, offline=4) as service_view:
        known, unknown = await service_view.key(budget=1000), await service_view.key()
        refused = await service_view.key()
        await service_view.office.accounts.keys.disable(SYSTEM, refused.key.id)
        assert (await service_view.ask(0, known)).status == 200
        assert (await service_view.ask(0, refused)).status == 401
        assert await service_view.shared(0) == {"shared": False}
        own_postgres.stop()
        answered = 0
        never_seen = f"{unknown.credential[:-6]}aaaaaa"
        for _ in range(10):
            for other in (unknown, never_seen):
                assert await service_view.ask(0, other) == Reply(503, "store_unavailable")
            answered += (await service_view.ask(0, known)).status == 200
        assert answered > 0

        async def over() -> bool:
            reply = await service_view.ask(0, known)
            assert reply.status in (200, 503)
            nonlocal answered
            answered += reply.status == 200
            return reply.status == 503

        await eventually(over)  # as long as was stated, and no longer
        assert await service_view.ask(0, known) == Reply(503, "store_unavailable")
        own_postgres.start()

        async def back() -> bool:
            reply = await service_view.ask(0, unknown)
            assert reply.status in (200, 503)
            return reply.status == 200

        await eventually(back)

        async def known_again() -> bool:
            return (await service_view.ask(0, known)).status == 200

        await eventually(known_again)
        assert (await service_view.ask(0, never_seen)).status == 401

        async def recorded() -> bool:
            return await service_view.spent(known) == answered + 2

        await eventually(recorded)  # nothing is lost of what was served meanwhile


@pytest.mark.parametrize("kind", first_of(["sqlite", "postgresql"]))
async def test_what_derives_from_people_stops_in_every_service_with_them(
    hosted_database: str, tmp_path: Path, kind: str
) -> None:
    url = hosted_database if kind == "postgresql" else f"sqlite:///{tmp_path / 'both.db'}"
    async with replicas(tmp_path, url, None) as service_view:
        for how in ("removed", "demoted", "disabled"):
            await what_derives_stops(service_view, how)


async def what_derives_stops(service_view: Replicas, how: str) -> None:
    """Keys of keys too; and where a role or account comes back, they work again."""
    accounts, project = service_view.office.accounts, service_view.office.project
    user = await accounts.users.create(
        SYSTEM, email=f"{token_hex(4)}@example.org", name="Ada", password=None
    )
    offer = await accounts.projects.invite(SYSTEM, project, Role.ADMIN)
    await accounts.users.join(offer.token, user)
    draft = KeyDraft("manager", Purpose.MANAGEMENT)
    manager = await accounts.keys.create(actor_of(user), project, draft)
    made = await service_view.manage(0, manager, f"/projects/{project}/keys", {"name": "robot"})
    key, keys = str(made["credential"]), f"/projects/{project}/keys"

    async def answers() -> list[int]:
        return [
            *[(await service_view.ask(n, key)).status for n in (0, 1)],
            *[await service_view.status(n, manager, keys, {"name": "other"}) for n in (0, 1)],
        ]

    assert await answers() == [200, 200, 201, 201]
    wanted = [401, 401, 401, 401]
    if how == "removed":
        await accounts.projects.remove(SYSTEM, project, user.id)
    elif how == "disabled":
        await accounts.users.disable(SYSTEM, user.id)
    else:
        await accounts.projects.change_role(SYSTEM, project, user.id, Role.VIEWER)
        wanted = [401, 401, 403, 403]

    async def stopped() -> bool:
        return await answers() == wanted

    await eventually(stopped)
    if how == "disabled":
        await accounts.users.disable(SYSTEM, user.id, disabled=False)

        async def back() -> bool:
            return await answers() == [200, 200, 201, 201]

        await eventually(back)
