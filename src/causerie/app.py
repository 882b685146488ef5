"""The composition root: builds every part from the settings, starts and stops them.

The one place that names concrete engines and hands settings to those who need
them. Nothing here decides anything about a request.
"""

from __future__ import annotations

from pathlib import Path

from causerie.access.keys import KeyDigest
from causerie.edge import doors
from causerie.edge.body import BodyLimits
from causerie.edge.doors import DoorTable
from causerie.edge.openai import Limits
from causerie.edge.server import Listen
from causerie.engines.weights import Cache, HubOptions, Progress, Silent, Weights, fetch
from causerie.engines.weights.errors import WeightsError
from causerie.settings import Door, Server, Settings
from causerie.settings.rules import door_prefix


async def fetch_weights(settings: Settings, ref: str, progress: Progress) -> Weights:
    """The weights on this machine, fetched if needed. Raises :class:`WeightsError`."""
    return await fetch(ref, _cache_folder(settings), progress=progress, hub=_hub(settings))


async def weights_here(settings: Settings, ref: str) -> Weights | None:
    """The weights if they are on this machine already; no network is asked."""
    try:
        return await fetch(
            ref, _cache_folder(settings), progress=Silent(), hub=HubOptions(offline=True)
        )
    except WeightsError:
        return None


def cached_weights(settings: Settings) -> tuple[Weights, ...]:
    """Everything in the cache."""
    return Cache(_cache_folder(settings)).every()


def _cache_folder(settings: Settings) -> Path:
    if settings.weights.cache is None:
        raise ValueError("settings come from causerie.settings.load, which fills the cache folder")
    return Path(settings.weights.cache)


def _hub(settings: Settings) -> HubOptions:
    weights = settings.weights
    return HubOptions(endpoint=weights.hub_endpoint, token=weights.token, offline=weights.offline)


def door_table(settings: Settings) -> DoorTable:
    """The doors as the edge knows them."""
    server = settings.server
    return DoorTable(
        [_door(door, server.public_host) for door in settings.doors],
        default=server.default_door or settings.doors[0].name,
        domains=[server.public_host],
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


def _door(door: Door, public_host: str) -> doors.Door:
    return doors.Door(
        name=door.name,
        prefix=door_prefix(door),
        kind=door.kind,
        hosts=frozenset({f"{door.name}.{public_host}", *door.hosts}),
        keys=tuple(map(KeyDigest.parse, door.keys)) if isinstance(door.keys, tuple) else None,
        models=frozenset(door.models) if door.models is not None else None,
    )
