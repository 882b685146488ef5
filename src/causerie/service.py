"""What a service is made of, put together from the settings and the engines.

Each part is made once and handed to whoever needs it; nothing here decides
anything about a request.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from causerie.access.admission import Gate
from causerie.access.keys import KeyDigest, StaticKeys
from causerie.catalog import catalog
from causerie.catalog.catalog import Catalog, Profile
from causerie.chat.chat import ChatOptions, TextChat
from causerie.chat.compiler import Compiler
from causerie.edge import doors
from causerie.edge.application import Edge
from causerie.edge.body import BodyLimits
from causerie.edge.doors import DoorTable
from causerie.edge.openai import Limits
from causerie.edge.server import Listen
from causerie.journal import Journal
from causerie.metering.counters import Counters
from causerie.metering.meter import Meter
from causerie.metering.request_log import RequestLog
from causerie.pipeline import Pipeline
from causerie.protocol.candidate import Candidate
from causerie.protocol.parsing.rules import HONOURED
from causerie.routing.router import Router
from causerie.settings import Model, Server, Settings
from causerie.settings.addresses import Way, default_way, ways
from causerie.startup import Engines

_VOCABULARY_READER = "causerie.engines.weights.vocabulary:read_vocabulary"


@asynccontextmanager
async def service(settings: Settings, engines: Engines) -> AsyncIterator[Edge]:
    """The service, ready to be served; leaving ends what it started."""
    compiler = Compiler(reader=_VOCABULARY_READER)
    journal = Journal()
    try:
        chats = {
            model.id: TextChat(engines.engine(model.id), compiler, chat_options(model))
            for model in settings.models
        }
        gates = {model.id: _gate(model, engines) for model in settings.models}
        counters = Counters(
            engines.status, lambda: [(id, gate.waiting) for id, gate in gates.items()]
        )
        pipeline = Pipeline(
            keys=StaticKeys(),
            catalog=_catalog(settings, chats),
            router=Router(chats, gates),
            meter=Meter([counters, RequestLog(journal)]),
        )
        server = settings.server
        yield Edge(
            door_table(settings),
            pipeline,
            engines,
            counters,
            limits=limits(server),
            docs=server.docs,
        )
    finally:
        journal.flush()
        await compiler.stop()


def chat_options(model: Model) -> ChatOptions:
    """What the configuration says of a model's chat."""
    template = Path(model.template).read_text(encoding="utf-8") if model.template else None
    return ChatOptions(
        format=model.format, template=template, max_output_tokens=model.max_output_tokens
    )


def door_table(settings: Settings) -> DoorTable:
    """The doors as the edge knows them."""
    return DoorTable(
        [_door(way) for way in ways(settings)],
        default=default_way(settings).door.name,
        domains=[settings.server.public_host],
    )


def limits(server: Server) -> Limits:
    """What a request may be."""
    return Limits(
        body=BodyLimits(max_bytes=server.max_body_bytes, seconds=server.body_seconds),
        max_messages=server.max_messages,
        max_nesting=server.max_nesting,
        ping_seconds=server.ping_seconds,
    )


def listen(server: Server) -> Listen:
    """Where to listen, and how to stop."""
    return Listen(server.host, server.port, drain_seconds=server.drain_seconds)


def _door(way: Way) -> doors.Door:
    keys = way.door.keys
    return doors.Door(
        name=way.door.name,
        prefix=way.prefix,
        kind=way.door.kind,
        hosts=frozenset(way.hosts),
        keys=tuple(map(KeyDigest.parse, keys)) if isinstance(keys, tuple) else None,
        models=frozenset(way.models),
        reasoning_object=way.door.reasoning,
    )


def _gate(model: Model, engines: Engines) -> Gate:
    return Gate(
        model.id,
        lambda: engines.slots(model.id),
        model.queue.max_waiting,
        model.queue.max_wait_seconds,
    )


def _catalog(settings: Settings, chats: Mapping[str, TextChat]) -> Catalog:
    created = int(time.time_ns() // 1_000_000_000)
    return Catalog(
        catalog.Model(
            id=model.id,
            name=model.name or model.id,
            description=model.description,
            created=created,
            targets=(Candidate(model.id),),
            parameters=HONOURED - {"reasoning"},  # the router's own
            aliases=model.aliases,
            profile=_profile(model, chats[model.id]),
        )
        for model in settings.models
    )


def _profile(model: Model, chat: TextChat) -> Callable[[], Profile]:
    """What is known of the model now; more once it has been loaded."""

    def profile() -> Profile:
        loaded = chat.loaded
        if loaded is None:
            return Profile(
                context_length=model.llamacpp.context, max_output_tokens=model.max_output_tokens
            )
        switch = loaded.form.thinking
        return Profile(
            context_length=loaded.facts.context_length,
            max_output_tokens=model.max_output_tokens,
            images=loaded.facts.vision,
            must_think=switch is not None and switch.mandatory,
        )

    return profile
