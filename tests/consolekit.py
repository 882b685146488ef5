"""The console over real HTTP, and a visitor with a cookie jar and no scripts."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from accountkit import PASSWORD, World
from edgekit import OPEN, ScriptedPipeline, Statuses, make_edge, serving

from causerie.access.allowed import AccessRule, Permissions
from causerie.catalog.catalog import DoorCatalog
from causerie.catalog.model import Tariff
from causerie.hosted.accounts.people import User
from causerie.hosted.accounts.tokens import SessionClient
from causerie.hosted.console.application import ConsoleApplication
from causerie.hosted.console.public_chat import PublicChatOptions
from causerie.hosted.console.request_context import OpenPages, Site
from causerie.hosted.console.service_view import DoorView, ModelVerdict
from causerie.hosted.identity.provider import OidcProvider
from causerie.hosted.payments.stripe import Sales
from causerie.hosted.store.database import Database
from causerie.http.api import CompletionHandlers, RequestLimits
from causerie.http.exchange import Exchange
from causerie.http.tasks import Drain
from causerie.observe.mail import Outbox
from causerie.protocol.targets import TargetOffer, TimeBucket
from causerie.shapes.chat_completions.reader import CHAT_COMPLETIONS

MODELS = ("smollm2", "qwen3-4b", "org/large-model-with-a-rather-long-name-instruct-q4_k_m")


class OneModel:
    """A model of the service itself, without a price."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.names = (name,)
        self.offers = (TargetOffer(name, "causerie", Decimal(0), Decimal(0)),)


class ScriptedServiceView(Statuses):
    """A service with doors, models, engines whose state the test says, and scripted answers."""

    def __init__(self) -> None:
        super().__init__()
        self.pipeline = ScriptedPipeline(any_model=True)
        self.limits = RequestLimits()
        self.asked: list[tuple[str, str]] = []
        self.routed: list[bool] = []
        self.talked: list[dict[str, Any]] = []
        self.days: dict[str, Sequence[TimeBucket]] = {}
        self.without_price: Sequence[str] = ()
        self.open_doors = [DoorView("hosted", "/hosted/v1"), DoorView("router", "/router/v1")]

    def doors(self) -> Sequence[DoorView]:
        return self.open_doors

    def models(
        self, door: str | None = None, rules: Sequence[AccessRule] = ()
    ) -> Sequence[Mapping[str, Any]]:
        left = [each.id for each in self.verdicts(rules) if not each.refusal]
        return [{"id": name, "object": "model"} for name in left]

    def verdicts(self, rules: Sequence[AccessRule]) -> Sequence[ModelVerdict]:
        permissions = Permissions(rules)
        return [
            ModelVerdict(name, permissions.verdict(OneModel(name)).refusal, [name], ["causerie"])
            for name in MODELS
        ]

    operations: Any = None

    def unpriced(self) -> Sequence[str]:
        return self.without_price

    costs: Mapping[tuple[str, str], Tariff] = {}

    def provider_costs(self) -> Mapping[tuple[str, str], Tariff]:
        return self.costs

    def market(self) -> DoorCatalog | None:
        return None

    policies: Mapping[str, Mapping[str, Any]] = {}

    def policy(self, provider: str) -> Mapping[str, Any]:
        return self.policies.get(provider, {})

    def answering(self, model: str) -> Sequence[str]:
        return [model]

    def history(self, target: str) -> Sequence[TimeBucket]:
        return self.days.get(target, ())

    def requests(self, target: str) -> int:
        return sum(one.answered + one.failed for one in self.history(target))

    async def talk(self, exchange: Exchange, body: bytes, model: str) -> None:
        self.talked.append(json.loads(body))
        handlers = CompletionHandlers(self.pipeline, Drain(), self.limits)
        await handlers.complete(CHAT_COMPLETIONS, exchange, OPEN, written=body)

    async def complete(
        self, exchange: Exchange, user: User, project_id: str, *, routed: bool = False
    ) -> None:
        self.routed.append(routed)
        self.asked.append((user.id, project_id))
        handlers = CompletionHandlers(self.pipeline, Drain(), self.limits)
        await handlers.complete(CHAT_COMPLETIONS, exchange, OPEN)


@dataclass
class Page:
    """An answer."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def form_token(self) -> str:
        found = re.search(r'name="form-token" content="([0-9a-f]+)"', self.text)
        assert found, self.text[:500]
        return found[1]

    @property
    def target(self) -> str:
        """Return the target of the redirect, below the console."""
        return self.headers["location"].removeprefix("/console")

    @property
    def fields(self) -> list[tuple[str, str]]:
        """Return the fields that the form of its panel would send unchanged."""
        html = re.sub(r"(?s)<template.*?</template>", "", self.text)
        html = html[html.index('id="panel"') :]
        found = [
            (name, unescape(value))
            for whole, name, value in re.findall(
                r'(<input [^>]*?name="([^"]+)"[^>]*?value="([^"]*)"[^>]*>)', html
            )
            if not re.search('type="(radio|checkbox)"', whole) or "checked" in whole
        ]
        for name, options in re.findall(
            r'(?s)<select [^>]*name="([^"]+)"[^>]*>(.*?)</select>', html
        ):
            chosen = re.search(r'value="([^"]*)" selected', options)
            found.append((name, unescape(chosen[1]) if chosen else ""))
        return found

    def code(self, id: str) -> str:
        """The text of the element with this id."""
        found = re.search(rf'id="{id}"[^>]*>([^<]*)<', self.text)
        assert found, self.text
        return unescape(found[1])


@dataclass
class Visitor:
    """A browser that runs no scripts."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)
    form_token: str = ""
    extra: dict[str, str] = field(default_factory=dict)

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Page:
        """One request on a connection of its own; follows nothing."""
        sent = {"host": f"127.0.0.1:{self.port}", "connection": "close", **self.extra}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if body or method == "POST":
            sent["content-length"] = str(len(body))
        sent |= headers or {}
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items() if value)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"{method} /console{path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        raw = await reader.read()
        writer.close()
        await writer.wait_closed()
        return self._page(raw)

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Page:
        page = await self.ask("GET", path, headers=headers)
        if 'name="form-token"' in page.text:
            self.form_token = page.form_token
        return page

    async def post(
        self,
        path: str,
        fields: Mapping[str, object] | Sequence[tuple[str, object]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Page:
        """Send a form as its page would: with token and origin."""
        pairs = list(fields.items()) if isinstance(fields, Mapping) else list(fields)
        if not any(name == "form_token" for name, _ in pairs):
            pairs.append(("form_token", self.form_token))
        sent = {
            "origin": f"http://127.0.0.1:{self.port}",
            "content-type": "application/x-www-form-urlencoded",
            **(headers or {}),
        }
        page = await self.ask("POST", path, urlencode(pairs).encode(), sent)
        if 'name="form-token"' in page.text:
            self.form_token = page.form_token
        return page

    async def sign_in(self, user: User, password: str = PASSWORD) -> Page:
        await self.get("/sign-in")
        page = await self.post("/sign-in", {"email": user.email, "password": password})
        if page.status == 303:
            await self.get("/profile")
        return page

    def _page(self, raw: bytes) -> Page:
        head, _, body = raw.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        headers = {name.lower(): value for name, value in pairs}
        if "set-cookie" in headers:
            name, _, value = headers["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name] = value
        if headers.get("transfer-encoding") == "chunked":
            body = _whole(body)
        return Page(int(status.split()[1]), headers, body.decode(errors="replace"))  # a typeface


def _whole(rest: bytes) -> bytes:
    """Return a chunked body; raise :class:`ConnectionError` if it broke off."""
    body = b""
    while True:
        size, _, rest = rest.partition(b"\r\n")
        if not size:
            raise ConnectionError("the answer broke off")
        length = int(size, 16)
        if not length:
            return body
        body, rest = body + rest[:length], rest[length + 2 :]


@dataclass
class Place:
    """A console that is served."""

    world: World
    service_view: ScriptedServiceView
    port: int

    def visitor(self) -> Visitor:
        return Visitor(self.port)

    async def visitor_of(self, user: User) -> Visitor:
        """Somebody who has signed in, without typing a password."""
        visitor = self.visitor()
        async with self.world.store.writing() as repositories:
            begun = await self.world.sign_in.begin(
                repositories, user, SessionClient("127.0.0.1", "test")
            )
        visitor.cookies["causerie"] = begun.token
        await visitor.get("/profile")
        return visitor


@asynccontextmanager
async def console_of(
    world: World,
    site: Site = Site(),  # noqa: B008 - frozen
    service_view: ScriptedServiceView | None = None,
    *,
    open_to_all: bool = False,
    rankings: bool = False,
    apps: frozenset[str] = frozenset(),
    chat: PublicChatOptions = PublicChatOptions(),  # noqa: B008 - frozen
    providers: Sequence[OidcProvider] = (),
    outbox: Outbox | None = None,
    sales: Sales = Sales(),  # noqa: B008 - frozen
) -> AsyncIterator[Place]:
    service_view = service_view or ScriptedServiceView()
    edge = make_edge(service_view.pipeline, service_view)
    console = ConsoleApplication(
        world.accounts,
        service_view,
        site,
        clock=world.clock,
        open_to=OpenPages(
            open_to_all,
            outbox,
            rankings,
            chat=chat,
            status=rankings,
            sales=sales,
            reminders=True,
            apps=apps,
        ),
        providers=lambda: providers,
    )
    edge.mount("/console", console.answer, console.refuse)
    async with serving(edge) as port:
        yield Place(world, service_view, port)


@pytest.fixture
async def lite(tmp_path: Path, sqlite_template: Path) -> AsyncIterator[World]:
    """An empty service on SQLite."""
    file = tmp_path / "causerie.db"
    shutil.copyfile(sqlite_template, file)
    database = Database(f"sqlite:///{file}")
    yield World(database)
    await database.close()


@pytest.fixture
async def place(lite: World) -> AsyncIterator[Place]:
    """A console over an empty service."""
    async with console_of(lite) as served:
        yield served
