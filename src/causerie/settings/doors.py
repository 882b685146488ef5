"""Doors: their whole addresses, the rules for them, and the chat page at `/`.

A model that a router offers has a door of its own only where it names keys for it: what the
router limits, free requests above all, would not count there.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from msgspec import Struct

from causerie.settings.problems import Broken, dotted, no_such
from causerie.settings.provider import is_loopback
from causerie.settings.toml import KeyPath
from causerie.settings.tree import DoorSettings, ModelSettings, Settings

_ODD = re.compile(r"[^a-z0-9]+")
_OPEN = (None, "off")
_LONGEST = 63  # of a part of a host name (RFC 1035, section 2.3.4)


class DoorAddress(Struct, frozen=True):
    """A door with its path prefix, host names, model ids and place in the settings.

    ``own`` says that it is a model's own door, which the file does not list.
    """

    door: DoorSettings
    prefix: str
    hosts: tuple[str, ...]
    models: tuple[str, ...]
    at: KeyPath
    own: bool = False


def door_addresses(settings: Settings) -> tuple[DoorAddress, ...]:
    """Return all doors with their addresses: configured doors, then models' own doors."""
    return (*_list_configured_doors(settings), *_build_model_doors(settings))


def behind(settings: Settings, kind: str) -> tuple[str, ...]:
    models = tuple(one.id for one in settings.models)
    aliases = tuple(one.id for one in settings.aliases)
    listed = tuple(one.id for one in settings.catalog)
    return {"endpoint": models, "gateway": aliases, "router": listed}.get(kind, models + aliases)


def model_names(settings: Settings) -> tuple[str, ...]:
    """Return all names that a request can have as ``model``."""
    found = [name for one in settings.models for name in (one.id, *one.aliases)]
    found += [one.id for one in settings.aliases]
    return (*found, *(name for one in settings.catalog for name in (one.id, *one.aliases)))


def has_accounts(settings: Settings) -> bool:
    """Return true if a door takes the keys that people create in the console."""
    return any(door_address.door.keys == "accounts" for door_address in door_addresses(settings))


def default_address(settings: Settings) -> DoorAddress:
    """Return the door behind plain ``/v1``: ``default_door``, or the first where that is unset."""
    every = door_addresses(settings)
    wanted = settings.server.default_door
    for door_address in every:
        if wanted is None or door_address.door.name == wanted:
            return door_address
    raise LookupError(f"no door is named {wanted}")


def door_slug(model: ModelSettings) -> str:
    """Return the name of a model's own door: ``qwen-qwen3-8b`` for ``Qwen/Qwen3-8B``."""
    return model.door or _ODD.sub("-", model.id.lower())[:_LONGEST].strip("-")


def _list_configured_doors(settings: Settings) -> Iterator[DoorAddress]:
    domain = settings.server.public_host
    for index, door in enumerate(settings.doors):
        names = [door.name]
        if door.kind == "hosted":
            names.append("api")
        if door.kind == "router" and door.name != "router":
            names.append("router")
        yield DoorAddress(
            door=door,
            prefix=door.prefix or _build_path_prefix(door.name, door.kind),
            hosts=(*(f"{name}.{domain}" for name in names), *door.hosts),
            models=behind(settings, door.kind) if door.models is None else door.models,
            at=("doors", index),
        )


def _build_model_doors(settings: Settings) -> Iterator[DoorAddress]:
    routers = (each for each in _list_configured_doors(settings) if each.door.kind == "router")
    shown = {id for each in routers for id in each.models}
    offered = {
        endpoint.model
        for entry in settings.catalog
        if entry.id in shown
        for endpoint in entry.endpoints
        if endpoint.provider is None
    }
    for index, model in enumerate(settings.models):
        if model.keys is None and model.id in offered:
            continue
        name = door_slug(model)
        keys = settings.server.keys if model.keys is None else model.keys
        yield DoorAddress(
            door=DoorSettings(name=name, keys=keys, models=(model.id,), networks=model.networks),
            prefix=_build_path_prefix(name, "endpoint"),
            hosts=(f"{name}.{settings.server.public_host}",),
            models=(model.id,),
            at=("models", index),
            own=True,
        )


def _build_path_prefix(door_name: str, door_kind: str) -> str:
    return f"/endpoints/{door_name}/v1" if door_kind == "endpoint" else f"/{door_name}/v1"


# Rules for doors: no addresses that collide, models that exist, openness stated.

_OURS = frozenset(
    {"api", "console", "docs", "health", "metrics", "openapi.json", "scim", "v1", "webhooks"}
)
_BEHIND = {
    "endpoint": "model of our own",
    "gateway": "alias",
    "hosted": "model or alias",
    "router": "entry of the catalog",
}


def door_rules(settings: Settings) -> Iterator[Broken]:
    every = door_addresses(settings)
    listed = [way for way in every if not way.own]
    if not listed:
        yield Broken(("doors",), "is empty; without the key there are doors by default")
    wanted, names = settings.server.default_door, [way.door.name for way in every]
    if wanted is not None and wanted not in names:
        advice = no_such("door is named", wanted, names)
        yield Broken(("server", "default_door"), advice, None, (("doors",), ("models",)))
    for way in every:
        if way.own and not way.door.name:
            advice = "holds no letter or digit a host name could have; set `door`"
            yield Broken((*way.at, "id"), advice)
    yield from _find_address_collisions(every)
    for way in listed:
        yield from _find_door_problems(way, settings)
    for way in every:
        if way.door.keys == ():
            yield Broken(
                (*way.at, "keys"),
                "is empty, so nobody could enter; add a digest (`causerie key`) "
                'or write `keys = "off"`',
            )
    yield from open_doors(settings, settings.server.host)


def open_doors(settings: Settings, host: str) -> Iterator[Broken]:
    """Yield a problem if other machines can reach doors whose ``keys`` are unset."""
    unsaid = [way.door.name for way in door_addresses(settings) if way.door.keys is None]
    if unsaid and not is_loopback(host):
        words = f"door {unsaid[0]}" if len(unsaid) == 1 else f"doors {', '.join(unsaid)}"
        yield Broken(
            ("server", "keys"),
            f"is unset, and {host} can be reached from other machines, so everybody could enter "
            f'at {words}; add a digest (`causerie key`), or write `keys = "off"`, here or at each',
            relies_on=tuple((*way.at, "keys") for way in door_addresses(settings)),
        )


def is_private(host: str) -> bool:
    """Return true unless ``host`` is an IP address of the public internet."""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return True


def _find_address_collisions(door_addresses: tuple[DoorAddress, ...]) -> Iterator[Broken]:
    # Names first: where those collide, the addresses made of them do too.
    names: dict[str, DoorAddress] = {}
    addresses: dict[str, DoorAddress] = {}
    for way in door_addresses:
        instead = "set another `door` for the model" if way.own else "give the door another"
        other = names.setdefault(way.door.name, way)
        if other is not way:
            advice = f'"{way.door.name}" is taken by {_describe_door_place(other)}; {instead}'
            yield Broken((*way.at, "id" if way.own else "name"), advice, other.at)
            continue
        for key, address in [("prefix", way.prefix), *(("hosts", host) for host in way.hosts)]:
            other = addresses.setdefault(address, way)
            if other is not way:
                advice = f'"{address}" leads to {_describe_door_place(other)} already; {instead}'
                yield Broken((*way.at, "id" if way.own else key), advice, other.at)


def _describe_door_place(address: DoorAddress) -> str:
    return f"the own door of {dotted(address.at)}" if address.own else dotted(address.at)


def _find_door_problems(address: DoorAddress, settings: Settings) -> Iterator[Broken]:
    gateway = address.door.kind == "gateway"
    noun = _BEHIND[address.door.kind]
    there = behind(settings, address.door.kind)
    for model in address.door.models or ():
        if model not in there:
            yield Broken(
                (*address.at, "models"),
                no_such(f"{noun} has the id", model, there),
                relies_on=((*address.at, "kind"), ("models",), ("aliases",), ("catalog",)),
            )
    filled = settings.models or settings.aliases or settings.catalog
    if not address.models and filled and not has_accounts(settings):  # else the console fills it
        kind = next(one for one in ("endpoint", "gateway", "router") if behind(settings, one))
        yield Broken(
            (*address.at, "kind"),
            f"leads nowhere, for there is no {noun}; list some, or make it a door of "
            f'`kind = "{kind}"`',
            relies_on=(("models",), ("aliases",), ("catalog",)),
        )
    first, *more = address.prefix.strip("/").split("/")
    if first in _OURS or "." in (first, *more) or ".." in (first, *more):
        yield Broken((*address.at, "prefix"), f'"{address.prefix}" is in use by the service itself')
    if address.door.reasoning and not gateway:
        yield Broken(
            (*address.at, "reasoning"),
            'is for doors of `kind = "gateway"` only',
            relies_on=((*address.at, "kind"),),
        )
    if address.door.kind == "hosted" and address.door.keys != "accounts":
        yield Broken(
            (*address.at, "keys"),
            'of a hosted door are `"accounts"`; leave it out',
            relies_on=((*address.at, "kind"),),
        )


def has_chat_page(settings: Settings) -> bool:
    """Return true if `/` is the chat page; with accounts it leads to the console."""
    server = settings.server
    if has_accounts(settings):
        return False
    if server.chat_page is not None:
        return server.chat_page
    return is_loopback(server.host) or any(
        one.door.keys in _OPEN for one in door_addresses(settings)
    )


def chat_base_urls(settings: Settings) -> tuple[str, ...]:
    """Return the base paths that the chat page offers: ``/v1``, then doors without keys."""
    usual = default_address(settings)
    others = (one for one in door_addresses(settings) if one != usual and one.door.keys in _OPEN)
    return ("/v1", *(one.prefix for one in others))
