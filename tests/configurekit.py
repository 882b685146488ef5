"""A market whose operators add providers: one that lists models as a test says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accountkit import World
from operationskit import Market, market, provider
from probekit import document, says_yes

from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.operations.configuring import EntryView, EntryWish
from causerie.probe.question import ProbeReply, ProbeRequest

SECRET = "sk-a-key-that-nobody-shows-again"
LISTED = (
    {
        "id": "vendor/small",
        "name": "Small",
        "context_length": 8192,
        "pricing": {"prompt": "0.0000002", "completion": "0.0000006"},
    },
    {"id": "vendor/large", "context_length": 65536},
)


@dataclass
class Listing:
    """A provider with a list of models; without one it refuses the key."""

    base_url: str = ""
    models: Sequence[dict[str, Any]] = LISTED
    refuses: bool = False
    heads: list[str] = field(default_factory=list)

    def reply(self, ask: ProbeRequest) -> ProbeReply:
        if self.refuses:
            refused = {"error": {"message": f"Incorrect API key provided: {SECRET}"}}
            return document(refused, status=401)
        return document({"data": list(self.models)}) if ask.method == "GET" else says_yes(ask)


@asynccontextmanager
async def listing() -> AsyncIterator[Listing]:
    """A provider that answers."""
    made = Listing()
    async with provider(made.reply) as (made.base_url, made.heads):
        yield made


@asynccontextmanager
async def configured(world: World, folder: Path) -> AsyncIterator[tuple[Market, Listing]]:
    """A market, and a provider that is not a part of it yet."""
    async with listing() as lists, market(world, folder) as made:
        yield made, lists


async def added(made: Market, kind: Any, key: str = "", **settings: Any) -> EntryView:
    """An entry that an operator has made."""
    wish = EntryWish(settings=settings, key=key or None)
    return await made.services.configuration.create(SYSTEM, kind, wish)


async def configure(made: Market) -> None:
    """Make a provider that is off, and an alias that it answers for with another."""
    spare = await added(made, "provider", SECRET, name="spare", known="groq", max_concurrent=4)
    west, north = {"provider": "spare", "model": "m"}, {"provider": "north", "model": "m"}
    await added(made, "alias", id="talk", name="Small talk", targets=[west, north])
    await made.services.configuration.switch(SYSTEM, spare.id, enabled=False)
