"""Every door with its whole address: those of the configuration, and those of own models.

A model that a router offers has a door of its own only where it names keys for it: what the
router limits, free requests above all, would not count there.

Nothing is checked here; what collides is found by ``door_rules``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from causerie.settings.lines import Path as KeyPath
from causerie.settings.tree import DoorSettings, ModelSettings, Settings

_ODD = re.compile(r"[^a-z0-9]+")
_LONGEST = 63  # of a part of a host name (RFC 1035, section 2.3.4)


@dataclass(frozen=True, slots=True)
class DoorAddress:
    """A door, where it answers, the ids of what is behind it, and where it stands in the file.

    ``own`` says that it is a model's own door, which the file does not list.
    """

    door: DoorSettings
    prefix: str
    hosts: tuple[str, ...]
    models: tuple[str, ...]
    at: KeyPath
    own: bool = False


def door_addresses(settings: Settings) -> tuple[DoorAddress, ...]:
    """All doors, those of the configuration first."""
    return (*_listed(settings), *_own(settings))


def behind(settings: Settings, kind: str) -> tuple[str, ...]:
    """The ids of all that a door of this kind can have behind it."""
    models = tuple(one.id for one in settings.models)
    aliases = tuple(one.id for one in settings.aliases)
    listed = tuple(one.id for one in settings.catalog)
    found = {"endpoint": models, "gateway": aliases, "router": listed}
    return found.get(kind, models + aliases)


def names(settings: Settings) -> tuple[str, ...]:
    """Everything that a request can name as ``model``."""
    found = [name for one in settings.models for name in (one.id, *one.aliases)]
    found += [one.id for one in settings.aliases]
    return (*found, *(name for one in settings.catalog for name in (one.id, *one.aliases)))


def has_accounts(settings: Settings) -> bool:
    """Return true if a door takes the keys that people create in the console."""
    return any(door_address.door.keys == "accounts" for door_address in door_addresses(settings))


def host_names(settings: Settings) -> Iterator[str]:
    """Yield the host names of the service that are neither its domain nor a door's."""
    yield from settings.server.hosts
    if settings.console.address is not None:
        yield urlsplit(settings.console.address).hostname or ""


def default_address(settings: Settings) -> DoorAddress:
    """The door behind plain ``/v1``; raises :class:`LookupError` where there is none."""
    every = door_addresses(settings)
    wanted = settings.server.default_door
    for door_address in every:
        if wanted is None or door_address.door.name == wanted:
            return door_address
    raise LookupError(f"no door is named {wanted}")


def slug(model: ModelSettings) -> str:
    """The name of a model's own door: ``Qwen/Qwen3-8B`` is ``qwen-qwen3-8b``."""
    return model.door or _ODD.sub("-", model.id.lower())[:_LONGEST].strip("-")


def _listed(settings: Settings) -> Iterator[DoorAddress]:
    for index, door in enumerate(settings.doors):
        yield DoorAddress(
            door=door,
            prefix=door.prefix or _prefix(door.name, door.kind),
            hosts=(*_names(door, settings.server.public_host), *door.hosts),
            models=behind(settings, door.kind) if door.models is None else door.models,
            at=("doors", index),
        )


def _names(door: DoorSettings, domain: str) -> Iterator[str]:
    yield f"{door.name}.{domain}"
    if door.kind == "hosted":
        yield f"api.{domain}"
    if door.kind == "router" and door.name != "router":
        yield f"router.{domain}"


def _own(settings: Settings) -> Iterator[DoorAddress]:
    offered = _offered_by_routers(settings)
    for index, model in enumerate(settings.models):
        if model.keys is None and model.id in offered:
            continue
        name = slug(model)
        keys = settings.server.keys if model.keys is None else model.keys
        yield DoorAddress(
            door=DoorSettings(name=name, keys=keys, models=(model.id,)),
            prefix=_prefix(name, "endpoint"),
            hosts=(f"{name}.{settings.server.public_host}",),
            models=(model.id,),
            at=("models", index),
            own=True,
        )


def _offered_by_routers(settings: Settings) -> frozenset[str]:
    """Return the own models that are endpoints of catalog models behind a door."""
    shown = {id for each in _listed(settings) if each.door.kind == "router" for id in each.models}
    return frozenset(
        endpoint.model
        for entry in settings.catalog
        if entry.id in shown
        for endpoint in entry.endpoints
        if endpoint.provider is None
    )


def _prefix(name: str, kind: str) -> str:
    return f"/endpoints/{name}/v1" if kind == "endpoint" else f"/{name}/v1"
