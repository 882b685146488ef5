"""A provider that goes a step when a test says so and counts what it processed; a gateway that
writes a ledger; clients that leave."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal

import aiohttp
from aiohttp import web
from edgekit import Statuses, serving
from gatewaykit import settled

from causerie.access.keys import StaticKeys
from causerie.access.limits import MemoryCounters, Rates, RateScope
from causerie.catalog.catalog import Catalog
from causerie.catalog.model import ModelCard, ServedModel, TargetCapabilities, Tariff
from causerie.chat.parser import Separation
from causerie.hosted.accounts.bookkeeping import Bookkeeping, ModelPrices
from causerie.hosted.accounts.budgets import Budgets
from causerie.hosted.accounts.usage import Spent
from causerie.http.api import RequestLimits
from causerie.http.application import Edge
from causerie.http.client import HttpClient
from causerie.http.doors import DoorTable, MountedDoor
from causerie.metering.ledger import Ledger, UsageRecord
from causerie.metering.meter import Meter
from causerie.observe.metrics import MetricsCounters
from causerie.pipeline import Pipeline, Scopes
from causerie.protocol.events import Partial
from causerie.protocol.parameters import HONOURED
from causerie.protocol.request import ChatRequest
from causerie.protocol.targets import Candidate
from causerie.providers.dialects import DIALECTS
from causerie.providers.provider import Provider
from causerie.providers.target import ProviderReply, ProviderTarget
from causerie.routing.router import Router

Telling = Literal["last", "first", "each"]
"""When a provider says what it counts: at the end of a stream, at its beginning too, always."""
PRICE = Tariff(prompt=Decimal("0.001"), completion=Decimal("0.002"))
TOKENS_A_MINUTE = 10**9
TOKEN = "abc "
"""The text of a token."""


@dataclass(eq=False)
class Bill:
    """A request as its provider has it, and the tokens that it takes for processed.

    The prompt from the moment when the whole request was there, of the completion what was
    made, whether somebody got it or not. ``whole`` is how many tokens it will be, ``piece`` how
    many go out at a time; with each ``go`` the provider takes a step.
    """

    name: str
    prompt: int
    whole: int
    piece: int
    telling: Telling
    streamed: bool
    made: int = 0
    out: int = 0
    over: bool = False
    go: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def usage(self) -> dict[str, int]:
        return {"prompt_tokens": self.prompt, "completion_tokens": self.made}


@dataclass(eq=False)
class CountingProvider:
    """``reads`` lets it read what arrives. How it answers the next request can be set."""

    reads: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    bills: dict[str, Bill] = field(default_factory=dict)
    waiting: int = 0
    tokens_a_piece: int = 1
    telling: Telling = "last"
    refuses: int | None = None  # every request, with this status
    base_url: str = ""

    def billed(self, name: str) -> tuple[int, int]:
        """Return its counts for the request of this name."""
        bill = self.bills.get(name)
        return (bill.prompt, bill.made) if bill is not None else (0, 0)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        self.waiting += 1
        try:
            await self.reads.wait()
            body = await request.json()
        finally:
            self.waiting -= 1
        if self.refuses is not None:
            return web.json_response({"error": {"message": "No."}}, status=self.refuses)
        text = body["messages"][0]["content"]
        name, _, wanted = text.partition(" ")[0].partition("/")
        streamed = bool(body.get("stream"))
        prompt = 4 + -(-len(text) // 4)
        whole = min(int(wanted), body.get("max_tokens", int(wanted)))
        bill = Bill(name, prompt, whole, self.tokens_a_piece, self.telling, streamed)
        self.bills[name] = bill
        self.arrived.release()
        try:
            if streamed:
                return await self._stream(request, bill, body.get("n", 1))
            return await self._plain(bill)
        finally:
            bill.over = True

    async def _stream(self, request: web.Request, bill: Bill, n: int) -> web.StreamResponse:
        await bill.go.acquire()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if bill.telling == "first":
            # A number that was told is not replaced by a zero, so it tells none that would be.
            told = bill.usage() | {"completion_tokens": min(1, bill.whole)}
            await _send(response, {"choices": [], "usage": told})
        while bill.made < bill.whole * n:
            await bill.go.acquire()
            count = min(bill.piece, bill.whole - bill.made // n)
            for index in range(n):
                bill.made += count
                choice = {"index": index, "delta": {"content": TOKEN * count}}
                more = {"usage": bill.usage()} if bill.telling == "each" else {}
                await _send(response, {"choices": [choice], **more})
            bill.out = bill.made
        await bill.go.acquire()
        ends = [{"index": index, "delta": {}, "finish_reason": "stop"} for index in range(n)]
        await _send(response, {"choices": ends})
        await bill.go.acquire()
        await _send(response, {"choices": [], "usage": bill.usage()})
        await bill.go.acquire()
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _plain(self, bill: Bill) -> web.Response:
        """It is made to its end, whether somebody waits for it or not."""
        try:
            while bill.made < bill.whole:
                await bill.go.acquire()
                bill.made += min(bill.piece, bill.whole - bill.made)
            await bill.go.acquire()
        except asyncio.CancelledError:
            bill.made = bill.whole
            raise
        message = {"role": "assistant", "content": TOKEN * bill.whole}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "usage": bill.usage()})


async def _send(response: web.StreamResponse, chunk: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


@asynccontextmanager
async def providing() -> AsyncIterator[CountingProvider]:
    """A provider behind a free port, which reads."""
    provider = CountingProvider()
    provider.reads.set()
    app = web.Application(client_max_size=2**30)
    app.router.add_post("/v1/chat/completions", provider.complete)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield provider
    finally:
        await runner.cleanup()


class Heard(ProviderTarget):
    """A model of a provider that keeps its replies, so that tests know what has arrived."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.replies: list[ProviderReply] = []

    def generate(self, request: ChatRequest, partial: Partial | None = None) -> ProviderReply:
        self.replies.append(super().generate(request, partial))
        return self.replies[-1]


@dataclass
class Kept:
    """A database that is a list."""

    records: list[UsageRecord] = field(default_factory=list)

    async def append(self, records: Sequence[UsageRecord]) -> None:
        self.records += records

    async def spent(self, owner: str, model: str, since: object) -> Spent:
        return Spent()


@dataclass
class Charging:
    """A gateway: ``plain`` is a model whose provider is asked as its client asks, ``streamed`` one
    whose provider always streams, ``fallback`` one with two such providers."""

    root: str
    session: aiohttp.ClientSession
    records: list[UsageRecord]
    targets: dict[str, Heard]
    router: Router

    def send(self, name: str, model: str, text: str, **more: Any) -> asyncio.Task[Any]:
        """A request under way, named after its client's id; its text begins with its name."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
        return asyncio.ensure_future(self._answered(name, body))

    async def _answered(self, name: str, body: dict[str, Any]) -> Any:
        headers = {"x-request-id": name, "content-type": "application/json"}
        where, data = f"{self.root}/chat/completions", io.BytesIO(json.dumps(body).encode())
        async with self.session.post(where, data=data, headers=headers) as response:
            content = await response.read()
            return response.status, content, response.headers

    async def record(self, name: str) -> UsageRecord:
        """Return the ledger's record, once the request has ended."""
        await settled(lambda: any(one.request_id == name for one in self.records), 20)
        [found] = [one for one in self.records if one.request_id == name]
        return found


@asynccontextmanager
async def charging(*providers: str, limits: RequestLimits | None = None) -> AsyncIterator[Charging]:
    """A gateway before these base URLs, with a ledger, prices, and a limit of tokens."""
    kept = Kept()
    async with AsyncExitStack() as held:
        targets: dict[str, Heard] = {}
        for number, base_url in enumerate(providers):
            for name, streams in (("plain", False), ("streamed", True)):
                client = HttpClient(base_url)
                held.push_async_callback(client.close)
                dialect = replace(DIALECTS["generic"], streams=streams)
                provider = Provider(name, client, dialect)
                heard = Heard(provider, "m", separators=Separation())
                targets[f"{name}{number}"] = heard
        router = Router(targets)
        ledger = await held.enter_async_context(Ledger(kept))
        repositories = Bookkeeping(ledger, Budgets(kept, lambda: 0))
        repositories.prices = ModelPrices(dict.fromkeys(("plain", "streamed", "fallback"), PRICE))
        edge = _edge(router, len(providers), repositories, limits)
        port = await held.enter_async_context(serving(edge))
        connector = aiohttp.TCPConnector(limit=0)
        session = await held.enter_async_context(aiohttp.ClientSession(connector=connector))
        yield Charging(f"http://127.0.0.1:{port}/v1", session, kept.records, targets, router)


def _edge(
    router: Router, count: int, repositories: Bookkeeping, limits: RequestLimits | None
) -> Edge:
    models = [
        _model("plain", ["plain0"]),
        _model("streamed", ["streamed0"]),
        _model("fallback", [f"streamed{number}" for number in range(count)]),
    ]
    counters = MetricsCounters(lambda: [])
    scope = RateScope("door", "gateway", Rates(tokens_per_minute=TOKENS_A_MINUTE))
    pipeline = Pipeline(
        keys=StaticKeys(),
        catalog=Catalog(models),
        limits=MemoryCounters(lambda: 10**15),
        scopes=Scopes({}, {"gateway": scope}),
        router=router,
        meter=Meter([counters], repositories),
    )
    door = MountedDoor("gateway", "/gateway/v1", kind="gateway")
    doors = DoorTable([door], default="gateway")
    return Edge(doors, pipeline, Statuses(), counters, limits=limits)


def _model(name: str, targets: Sequence[str]) -> ServedModel:
    offers = [
        TargetCapabilities(Candidate(one, place), HONOURED) for place, one in enumerate(targets)
    ]
    return ServedModel(ModelCard(name, name, created=1), offers)
