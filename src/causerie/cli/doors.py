"""The doors of a configuration as a table for people, each line a comment of TOML."""

from __future__ import annotations

from collections.abc import Sequence

from causerie.errors import counted
from causerie.settings import Settings
from causerie.settings.addresses import DoorAddress, default_address, door_addresses

_TITLES = ("DOOR", "KIND", "KEYS", "ADDRESS", "MODELS")
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def root(settings: Settings, host: str | None = None) -> str:
    """Return the service's address on this machine, or under ``host``; no slash at the end."""
    listens = settings.server.host
    here = _EVERYWHERE.get(listens, f"[{listens}]" if ":" in listens else listens)
    return f"http://{host or here}:{settings.server.port}"


def door_table(settings: Settings) -> Sequence[str]:
    """A line for each address of each door; the default door has one more, plain ``/v1``."""
    default = default_address(settings)
    rows = [_TITLES]
    for door_address in door_addresses(settings):
        first: tuple[str, str, str] = (
            door_address.door.name,
            door_address.door.kind,
            _keys(door_address),
        )
        models = ", ".join(door_address.models)
        for address in _addresses(door_address, settings, default):
            rows.append((*first, address, models))
            first, models = ("", "", ""), ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return [f"# {line.rstrip()}" for line in lines]


def _addresses(door_address: DoorAddress, settings: Settings, default: DoorAddress) -> list[str]:
    found = [f"{root(settings)}/v1"] if door_address == default else []
    return [
        *found,
        f"{root(settings)}{door_address.prefix}",
        *(f"{root(settings, host)}/v1" for host in door_address.hosts),
    ]


def _keys(door_address: DoorAddress) -> str:
    keys = door_address.door.keys
    if not isinstance(keys, tuple):
        return keys or "off"
    return counted(len(keys), "key")
