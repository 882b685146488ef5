"""The doors of a configuration as a table for people, each line a comment of TOML."""

from __future__ import annotations

from collections.abc import Sequence

from causerie.errors import counted
from causerie.settings import Settings
from causerie.settings.addresses import Way, default_way, ways

_TITLES = ("DOOR", "KIND", "KEYS", "ADDRESS", "MODELS")
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def root(settings: Settings, host: str | None = None) -> str:
    """Where the service is found on this machine, or by ``host``; no slash at the end."""
    listens = settings.server.host
    here = _EVERYWHERE.get(listens, f"[{listens}]" if ":" in listens else listens)
    return f"http://{host or here}:{settings.server.port}"


def door_table(settings: Settings) -> Sequence[str]:
    """A line for each address of each door; the default door has one more, plain ``/v1``."""
    default = default_way(settings)
    rows = [_TITLES]
    for way in ways(settings):
        first: tuple[str, str, str] = (way.door.name, way.door.kind, _keys(way))
        models = ", ".join(way.models)
        for address in _addresses(way, settings, default):
            rows.append((*first, address, models))
            first, models = ("", "", ""), ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return [f"# {line.rstrip()}" for line in lines]


def _addresses(way: Way, settings: Settings, default: Way) -> list[str]:
    found = [f"{root(settings)}/v1"] if way == default else []
    return [
        *found,
        f"{root(settings)}{way.prefix}",
        *(f"{root(settings, host)}/v1" for host in way.hosts),
    ]


def _keys(way: Way) -> str:
    keys = way.door.keys
    if not isinstance(keys, tuple):
        return keys or "off"
    return counted(len(keys), "key")
