"""Operations over real parts: a market from a configuration file, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from accountkit import World
from probekit import says_yes

from causerie.access.limits import MemoryCounters
from causerie.chat.compiler import Compiler
from causerie.chat.rendering import Renderers
from causerie.composition.alerting import Alerting, alert_options
from causerie.composition.entries import checked_with
from causerie.composition.operations import LiveOperations
from causerie.composition.reloading import Reloading
from causerie.composition.service import Distribution, RunningService
from causerie.composition.targets import ChatParts
from causerie.engines.fleet import Fleet, FleetEntry
from causerie.engines.registry import FakeEngine
from causerie.hosted.operations.ports import AppliedResult
from causerie.hosted.operations.probes import Examinations, Result, Results
from causerie.hosted.store.operations import SqlProbeResults
from causerie.observe.alerts import AlertKind, Condition
from causerie.observe.logging import LogBuffer
from causerie.probe.interview import Found, ProbeBounds
from causerie.probe.question import ProbeReply, ProbeRequest, RecordedExchange
from causerie.routing.circuit_breaker import THRESHOLD
from causerie.settings.credentials import Credentials
from causerie.settings.entries import Entry
from causerie.settings.load import Loaded, load
from causerie.settings.tree import Settings

QUICK = ProbeBounds(seconds=2.0)
MARKET = """\
# who is asked, and what they cost
[[doors]]
name = "router"
kind = "router"
keys = "off"

[[providers]]
name = "north"
base_url = "{north}"
dialect = "vllm"
max_concurrent = 8

[[providers.models]]
id = "m"
context_length = 32768
supported_parameters = ["max_tokens", "temperature", "tools", "tool_choice", "seed", "stop"]
thinking = "switch"
continues = true
probed = 2026-10-01

[[providers]]
name = "south"
base_url = "{south}"

[[aliases]]
id = "pool"
targets = [
  {{ provider = "north", model = "m", priority = 0, weight = 3 }},
  {{ provider = "south", model = "m", priority = 1 }},
]

[[catalog]]
id = "a/m"
name = "M"
[[catalog.endpoints]]
provider = "north"
model = "m"
price = {{ prompt = "0.40", completion = "1.20" }}
quantization = "fp8"
[[catalog.endpoints]]
provider = "south"
model = "m"
price = {{ prompt = "0.20", completion = "0.60" }}
keeps_data = false

[[catalog]]
id = "a/m:free"
[[catalog.endpoints]]
provider = "south"
model = "m"

[mail]
host = "127.0.0.1"
port = 9
tls = "off"
sender = "causerie@example.org"

[[alerts.webhooks]]
name = "ops"
url = "http://127.0.0.1:9/hook"
secret = {{ command = ["echo", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="] }}

[[alerts.emails]]
name = "team"
to = ["ops@example.org", "on-call@example.org"]
kinds = ["provider", "error_rate"]
"""
NOWHERE = "http://127.0.0.1:9/v1"
HOOK = "http://127.0.0.1:9/hook"


@dataclass
class Market:
    """A market that operators see to."""

    file: Path
    service: RunningService
    configuration: Reloading
    alerting: Alerting
    examinations: Examinations
    services: LiveOperations

    async def put_in_by_hand(self, used: AppliedResult) -> None:
        """Replace the entry of north's model in the file as a person would, and reload."""
        text = self.file.read_text(encoding="utf-8")
        start = text.index("[[providers.models]]")
        end = text.index("\n\n", start)
        self.file.write_text(text[:start] + used.by_hand + text[end:], encoding="utf-8")
        outcome = await self.configuration.reload()
        assert not outcome.problems

    async def probed(self, provider: str) -> str:
        """The state that the probe under way ends in."""
        async with asyncio.timeout(60):
            last = await self.examinations.ended(provider)
        assert last is not None
        return last.state


@asynccontextmanager
async def market(
    world: World,
    folder: Path,
    *,
    north: str = NOWHERE,
    south: str = NOWHERE,
    hook: str = HOOK,
    text: str = MARKET,
    bounds: ProbeBounds = QUICK,
) -> AsyncIterator[Market]:
    """The market of a configuration file."""
    file = folder / "causerie.toml"
    file.write_text(text.format(north=north, south=south).replace(HOOK, hook), encoding="utf-8")

    def read(entries: Sequence[Entry] = (), text: str | None = None) -> Loaded:
        environ = {"XDG_CACHE_HOME": str(folder), "HOME": str(folder)}
        return load(file=file, text=text, environ=environ, entries=entries)

    async with AsyncExitStack() as held:
        parts = ChatParts(Compiler(workers=1), Renderers())
        held.push_async_callback(parts.stop)
        fleet = await held.enter_async_context(Fleet([]))
        loaded, credentials = checked_with(read)
        counters = Distribution(MemoryCounters())
        made = loaded.settings, credentials, fleet, parts, LogBuffer()
        service = RunningService(*made, counters)
        held.push_async_callback(service.close)
        accounts = world.accounts
        check = partial(checked_with, read)
        models = partial(_have_models, fleet)
        configuration = Reloading(loaded, check, service, models, accounts.entries)
        alerting = Alerting(service, configuration, None)
        results = Results(SqlProbeResults(world.database))
        examinations = Examinations(results, world.clock, bounds)
        await held.enter_async_context(examinations)
        services = LiveOperations(
            service, configuration, alerting.center, accounts, examinations, world.clock
        )
        yield Market(file, service, configuration, alerting, examinations, services)


def _have_models(fleet: Fleet, settings: Settings, _: Credentials) -> None:
    def entry(model: str) -> FleetEntry:
        async def make() -> FakeEngine:
            return FakeEngine(model)

        return FleetEntry(model=model, make=make)

    fleet.replace([entry(model.id) for model in settings.models])


@asynccontextmanager
async def seen_to(world: World) -> AsyncIterator[LiveOperations]:
    """One whose providers nobody answers for; what was once found of ``south`` is kept."""
    with tempfile.TemporaryDirectory() as folder:
        async with market(world, Path(folder)) as made:
            await made.examinations.results.keep(result("south", "m"))
            yield made.services


async def lived(made: Market) -> None:
    """Gives a market a past: figures of one provider, failures of the other, a probe."""
    north, south = (made.service.now.router.target_state(f"{one}/m") for one in ("north", "south"))
    assert north is not None
    assert south is not None
    for seconds, speed in ((0.21, 74.0), (0.34, 81.0), (0.9, 66.0)):
        now = north.breaker.clock()
        north.latency_stats.answered(seconds, now)
        north.latency_stats.speed.add(speed, now)
    north.in_flight = 3
    south.latency_stats.failed()
    for _ in range(THRESHOLD + 3):
        south.breaker.failed("upstream_timeout")
    await made.examinations.results.keep(result("north", "m"))


def result(provider: str, model: str, **more: Any) -> Result:
    """Return a possible result of a probe."""
    found: dict[str, Any] = {
        "at": datetime(2026, 11, 20, 9, tzinfo=UTC),
        "complete": True,
        "requests": 200,
        "tokens": 12_345,
        "probed": date(2026, 11, 20),
        "context_length": 8192,
        "supported_parameters": ("max_tokens", "seed", "temperature"),
        "thinking": "never",
        "continues": False,
        "evidence": "3 yes, 1 no",
        "overclaimed": ("tools",),
        "findings": (
            Found(
                id="tools.named",
                rule="C 5.1",
                question="a named function is called",
                decides=("tools", "tool_choice"),
                answer="no",
                how="it answered in words",
                evidence=(
                    RecordedExchange(asked='{"tools":["look"]}', came="200 'No.'", seconds=0.2),
                ),
            ),
            Found(
                id="seed",
                rule="C 4",
                question="the same seed gives the same text",
                decides=("seed",),
                answer="partly",
                how="two of three times",
                evidence=(),
            ),
        ),
    }
    return Result(provider=provider, model=model, **(found | more))


@asynccontextmanager
async def provider(
    reply: Callable[[ProbeRequest], ProbeReply] = says_yes, gate: Callable[[int], Any] | None = None
) -> AsyncIterator[tuple[str, list[str]]]:
    """The base URL of a provider that answers so, and the heads of its requests.

    ``gate`` gives what is awaited before the request with this number is answered.
    """
    heads: list[str] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                heads.append(head)
                size = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
                body = await reader.readexactly(int(size or 0))
                if gate is not None:
                    await gate(len(heads))
                method, path, _ = head.split(" ", 2)
                kind: Any = "POST" if method == "POST" else "GET"
                writer.write(_raw(reply(ProbeRequest(kind, path.removeprefix("/v1"), body))))
                await writer.drain()
        writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", heads
    finally:
        listening.close()


def _raw(reply: ProbeReply) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} x", f"content-length: {len(reply.body)}"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + reply.body


async def alerted(made: Market) -> None:
    """Gives a market alerts: one that holds, one that has no end, one that is over."""
    center = made.alerting.center
    options = replace(alert_options(made.service.now.settings), resolve=timedelta(0))
    away = Condition("provider:north", AlertKind.PROVIDER, "Provider north fails (dns)")
    await center.observe([away], options)
    await center.deliver()
    failing = "Provider south fails and gets no requests (upstream_timeout)"
    used = "Project Search has used 81 % of its budget ($50 a month)"
    holds = [
        Condition("provider:south", AlertKind.PROVIDER, failing, level=2),
        Condition("budget:project:prj_1", AlertKind.BUDGET, used, recovers=False),
    ]
    await center.observe(holds, options)
    await center.deliver()
