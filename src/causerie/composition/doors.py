"""Doors, paths and bounds of the server, from the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from causerie.access.keys import FreeScopes, KeyDigest
from causerie.access.limits import Rates, RateScope, ScopeKind
from causerie.access.networks import Network, NetworkList
from causerie.composition.worker import WorkerPlace, metrics_of_all
from causerie.http import doors
from causerie.http.api import RequestLimits
from causerie.http.application import OwnPaths
from causerie.http.connection import Listen
from causerie.http.doors import DoorTable, Origins
from causerie.http.exchange import BodyLimits
from causerie.pipeline import Scopes
from causerie.protocol.bounded_json import Bounds
from causerie.protocol.model_entries import free_name
from causerie.settings import values as configured
from causerie.settings.doors import (
    DoorAddress,
    default_address,
    door_addresses,
    host_names,
    is_loopback,
    is_private,
)
from causerie.settings.tree import ServerSettings, Settings

_BYTES_A_VALUE = 14  # of a request outside its texts, on average


def door_table(settings: Settings, proxies: tuple[Network, ...] = ()) -> DoorTable:
    return DoorTable(
        [_door(way, settings.server, proxies) for way in door_addresses(settings)],
        default=default_address(settings).door.name,
        domains=[settings.server.public_host],
        names=host_names(settings),
        private=is_private(settings.server.host),
    )


def own_paths(settings: Settings, place: WorkerPlace | None, *, metrics_apart: bool) -> OwnPaths:
    keys = settings.metrics.keys
    return OwnPaths(
        docs=settings.server.docs,
        metrics_keys=tuple(map(KeyDigest.parse, keys)) if keys is not None else None,
        metrics_apart=metrics_apart,
        metrics_of_all=None if place is None else partial(metrics_of_all, place),
    )


def limits(server: ServerSettings) -> RequestLimits:
    return RequestLimits(
        body=BodyLimits(max_bytes=server.max_body_bytes, seconds=server.body_seconds),
        max_messages=server.max_messages,
        work=Bounds(
            nesting=server.max_nesting,
            values=server.max_values,
            escapes=server.max_escapes,
            bare=max(Bounds().bare, _BYTES_A_VALUE * server.max_values),
        ),
        ping_seconds=server.ping_seconds,
        first_byte_seconds=server.first_byte_seconds,
    )


def scopes(settings: Settings, busy: Callable[[str], bool]) -> Scopes:
    """Return the limits of doors and models; free requests avoid the targets that are ``busy``."""
    models = {one.id: one.limits for one in settings.models}
    models |= {one.id: one.limits for one in settings.aliases}
    models |= {one.id: one.limits for one in settings.catalog}
    doors = {way.door.name: way.door.limits for way in door_addresses(settings)}
    doors |= {free_name(name): each for name, each in doors.items()}
    rates = Rates(
        requests_per_minute=settings.free.requests_per_minute, concurrent=settings.free.concurrent
    )
    free = FreeScopes(rates, busy)
    return Scopes(_limited("model", models), _limited("door", doors), free)


def _limited(
    kind: ScopeKind, limits: Mapping[str, configured.LimitSettings]
) -> Mapping[str, RateScope]:
    made: dict[str, RateScope] = {}
    for name, each in limits.items():
        rates = Rates(**msgspec.structs.asdict(each))
        if rates != Rates():
            made[name] = RateScope(kind, name, rates)
    return made


def listen(server: ServerSettings) -> Listen:
    return Listen(
        server.host,
        server.port,
        drain_seconds=server.drain_seconds,
        shutdown_delay_seconds=server.shutdown_delay_seconds,
        busy_poll_seconds=server.busy_poll_seconds,
    )


def _door(
    way: DoorAddress, server: ServerSettings, proxies: tuple[Network, ...]
) -> doors.MountedDoor:
    keys = way.door.keys
    origins = server.origins if way.door.origins is None else way.door.origins
    local = origins is None and not isinstance(keys, tuple) and keys != "accounts"
    usual_scope = "project" if keys == "accounts" else "service"
    return doors.MountedDoor(
        name=way.door.name,
        prefix=way.prefix,
        kind=way.door.kind,
        hosts=frozenset(way.hosts),
        keys=tuple(map(KeyDigest.parse, keys)) if isinstance(keys, tuple) else None,
        models=frozenset(way.models),
        accounts=keys == "accounts",
        reasoning_object=way.door.reasoning or way.door.kind == "router",
        reject_unknown=way.door.unknown_params == "reject",
        reject_long_output=way.door.long_output == "reject",
        open_catalog=way.door.kind == "router",
        origins=Origins.of(origins or (), local=local and is_loopback(server.host)),
        separate_caches=(way.door.cache_scope or usual_scope) == "project",
        networks=NetworkList.of(way.door.networks),
        proxies=proxies,
    )
