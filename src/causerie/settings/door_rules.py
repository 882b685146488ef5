"""Rules for doors: no addresses that collide, models that exist, openness stated."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from causerie.settings.addresses import DoorAddress, behind, door_addresses, has_accounts
from causerie.settings.lines import Path as KeyPath
from causerie.settings.problems import Broken, dotted
from causerie.settings.tree import Settings

_OURS = frozenset({"api", "console", "docs", "health", "metrics", "openapi.json", "v1"})
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
    wanted = settings.server.default_door
    names = [way.door.name for way in every]
    if wanted is not None and wanted not in names:
        known = ", ".join(names)
        yield Broken(
            ("server", "default_door"),
            f'no door is named "{wanted}"; known: {known}',
            None,
            (("doors",), ("models",)),
        )
    for way in every:
        if way.own and not way.door.name:
            advice = "holds no letter or digit a host name could have; set `door`"
            yield Broken((*way.at, "id"), advice)
    yield from _collisions(every)
    for way in listed:
        yield from _listed(way, settings)
    yield from _keys(every)
    yield from open_doors(settings, settings.server.host)


def open_doors(settings: Settings, host: str) -> Iterator[Broken]:
    """Yield the doors that admit everybody at the address without stating so."""
    unsaid = [way.door.name for way in door_addresses(settings) if way.door.keys is None]
    if unsaid and not is_loopback(host):
        words = f"door {unsaid[0]}" if len(unsaid) == 1 else f"doors {', '.join(unsaid)}"
        yield Broken(
            ("server", "keys"),
            f"is unset, and {host} can be reached from other machines, so everybody could enter "
            f'at {words}; add a digest (`causerie key`), or write `keys = "off"`, here or at each',
            relies_on=tuple((*way.at, "keys") for way in door_addresses(settings)),
        )


def is_loopback(host: str) -> bool:
    """Return true if only this machine can reach the address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_private(host: str) -> bool:
    """Return true unless the address is one of the public internet."""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return True


def _collisions(every: tuple[DoorAddress, ...]) -> Iterator[Broken]:
    """Names first: where those collide, the addresses made of them do too."""
    names: dict[str, DoorAddress] = {}
    addresses: dict[str, DoorAddress] = {}
    for way in every:
        other = names.setdefault(way.door.name, way)
        if other is not way:
            advice = f'"{way.door.name}" is taken by {_words(other)}; {_advice(way)}'
            yield Broken(_key(way, "name"), advice, other.at)
            continue
        for key, address in [("prefix", way.prefix), *(("hosts", host) for host in way.hosts)]:
            other = addresses.setdefault(address, way)
            if other is not way:
                advice = f'"{address}" leads to {_words(other)} already; {_advice(way)}'
                yield Broken(_key(way, key), advice, other.at)


def _words(way: DoorAddress) -> str:
    return f"the own door of {dotted(way.at)}" if way.own else dotted(way.at)


def _advice(way: DoorAddress) -> str:
    return "set another `door` for the model" if way.own else "give the door another"


def _key(way: DoorAddress, key: str) -> KeyPath:
    if not way.own:
        return (*way.at, key)
    return (*way.at, "id")


def _listed(way: DoorAddress, settings: Settings) -> Iterator[Broken]:
    gateway = way.door.kind == "gateway"
    noun = _BEHIND[way.door.kind]
    there = behind(settings, way.door.kind)
    for model in way.door.models or ():
        if model not in there:
            known = ", ".join(there) or "none"
            yield Broken(
                (*way.at, "models"),
                f'no {noun} has the id "{model}"; known: {known}',
                relies_on=((*way.at, "kind"), ("models",), ("aliases",), ("catalog",)),
            )
    filled = settings.models or settings.aliases or settings.catalog
    if not way.models and filled and not has_accounts(settings):  # else the console fills it
        kind = next(one for one in ("endpoint", "gateway", "router") if behind(settings, one))
        yield Broken(
            (*way.at, "kind"),
            f"leads nowhere, for there is no {noun}; list some, or make it a door of "
            f'`kind = "{kind}"`',
            relies_on=(("models",), ("aliases",), ("catalog",)),
        )
    first, *more = way.prefix.strip("/").split("/")
    if first in _OURS or "." in (first, *more) or ".." in (first, *more):
        yield Broken((*way.at, "prefix"), f'"{way.prefix}" is in use by the service itself')
    if way.door.reasoning and not gateway:
        yield Broken(
            (*way.at, "reasoning"),
            'is for doors of `kind = "gateway"` only',
            relies_on=((*way.at, "kind"),),
        )
    if way.door.kind == "hosted" and way.door.keys != "accounts":
        yield Broken(
            (*way.at, "keys"),
            'of a hosted door are `"accounts"`; leave it out',
            relies_on=((*way.at, "kind"),),
        )


def _keys(every: tuple[DoorAddress, ...]) -> Iterator[Broken]:
    for way in every:
        if way.door.keys == ():
            yield Broken(
                (*way.at, "keys"),
                "is empty, so nobody could enter; add a digest (`causerie key`) "
                'or write `keys = "off"`',
            )
