"""The chat page over real HTTP: a scripted pipeline behind the doors, and the page at `/`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from edgekit import LOCKED, OPEN, ScriptedPipeline, Statuses, serving
from msgspec import UNSET

from causerie.access.keys import Caller
from causerie.composition.doors import mount_chat_page, mount_docs
from causerie.http.application import Edge
from causerie.http.doors import DoorTable, MountedDoor
from causerie.observe.metrics import MetricsCounters
from causerie.pipeline import PipelineDoor
from causerie.protocol.model_entries import (
    Modalities,
    Model,
    Pricing,
    ReasoningSupport,
    ServedModelEntry,
)
from causerie.settings.console import BrandingSettings
from causerie.settings.tree import DoorSettings, ServerSettings, Settings

THINKER = "org/thinker-with-eyes"


def entry(
    id: str, parameters: str, context: int, *, thinks: bool | None = False
) -> ServedModelEntry:
    return ServedModelEntry(
        id=id,
        created=0,
        owned_by="test",
        description="",
        context_length=context,
        architecture=Modalities(
            input_modalities=["text", "image"] if thinks else ["text"],
            output_modalities=["text"],
            evidence="measured",
        ),
        pricing=Pricing(prompt="0", completion="0", request="0"),
        supported_parameters=parameters.split(),
        evidence="measured",
        default_parameters=None,
        reasoning=UNSET
        if thinks is False
        else ReasoningSupport(
            supported_efforts=["low", "high"] if thinks else None, mandatory=False
        ),
    )


ENTRIES = (
    entry("small", "temperature max_tokens seed tools tool_choice response_format", 8192),
    entry(THINKER, "temperature max_tokens reasoning_effort tools tool_choice", 40960, thinks=True),
)


class FrontPipeline(ScriptedPipeline):
    """Lists models of different abilities."""

    entries: Sequence[Model] = ENTRIES

    def models(self, door: PipelineDoor, caller: Caller | None) -> Sequence[Model]:
        return self.entries


@dataclass
class Front:
    """A service without accounts. Tests change ``server``, which is in force at once."""

    port: int
    pipeline: FrontPipeline
    server: ServerSettings = field(default_factory=ServerSettings)
    branding: BrandingSettings = field(default_factory=BrandingSettings)

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def front(*doors: MountedDoor) -> AsyncIterator[Front]:
    """The first of the doors is the one behind plain ``/v1``."""
    doors = doors or (OPEN, LOCKED)
    pipeline = FrontPipeline(any_model=True)
    table = DoorTable(doors, default=doors[0].name)
    statuses = Statuses()
    edge = Edge(table, pipeline, statuses, MetricsCounters(statuses.status, shared=statuses.shared))
    found = Front(0, pipeline)
    listed = tuple(
        DoorSettings(name=door.name, prefix=door.prefix, keys="off" if door.open else ("0" * 64,))
        for door in doors
    )

    def settings() -> Settings:
        return Settings(server=found.server, branding=found.branding, doors=listed, models=())

    mount_chat_page(edge, settings)
    mount_docs(edge, settings)
    async with serving(edge) as port:
        found.port = port
        yield found
