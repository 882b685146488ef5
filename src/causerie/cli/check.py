"""``causerie check``: does the configuration hold, and what is in force."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from typing import Any

import msgspec
import typer

from causerie.accounts.entry import StoredEntry
from causerie.composition.entries import origin_of, reasons
from causerie.settings import Loaded, Secret
from causerie.settings.decode import is_secret, names_user
from causerie.settings.lines import Path


@dataclass(frozen=True, slots=True)
class _Shown:
    """Selection of the settings to show: all, or those that come from somewhere."""

    origins: Mapping[Path, str]
    everything: bool

    def table(self, path: Path) -> bool:
        """Return true if something in the table, or the table itself, is shown."""
        return self.everything or any(one[: len(path)] == path for one in self.origins)

    def value(self, path: Path) -> bool:
        return self.everything or path in self.origins


def tell_left_out(stored: Sequence[StoredEntry], loaded: Loaded) -> None:
    """Say of each stored entry that is not in force why."""
    for each in stored:
        for reason in reasons(each, loaded) if each.enabled else ("switched off",):
            typer.echo(f"{origin_of(each)} is not in force: {reason}", err=True)


def in_force(loaded: Loaded, everything: bool) -> Iterator[str]:
    """The settings as TOML, each line with its origin as a comment; defaults only if wanted."""
    shown = _Shown(loaded.origins, everything)
    yield f"# {loaded.file or 'no configuration file'}"
    for field in msgspec.structs.fields(type(loaded.settings)):
        value = getattr(loaded.settings, field.name)
        if isinstance(value, tuple):
            for index, item in enumerate(value):
                yield from _table(f"[[{field.name}]]", item, (field.name, index), shown)
        else:
            yield from _table(f"[{field.name}]", value, (field.name,), shown)


def _table(header: str, value: msgspec.Struct, path: Path, shown: _Shown) -> Iterator[str]:
    if not shown.table(path):
        return
    yield f"\n{header}"
    names = ".".join(str(part) for part in path if isinstance(part, str))
    inner: list[tuple[str, msgspec.Struct, Path]] = []
    for field in msgspec.structs.fields(type(value)):
        found = getattr(value, field.name)
        if isinstance(found, tuple) and found and isinstance(found[0], msgspec.Struct):
            header = f"[[{names}.{field.name}]]"
            inner += [(header, one, (field.name, index)) for index, one in enumerate(found)]
        elif isinstance(found, msgspec.Struct) and not isinstance(found, Secret):
            if found != _default(field):
                inner.append((f"[{names}.{field.name}]", found, (field.name,)))
        elif shown.value((*path, field.name)):
            yield _line(field, found, shown.origins.get((*path, field.name), "default"))
    for header, found, below in inner:
        yield from _table(header, found, (*path, *below), shown)


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _line(field: Any, value: object, origin: str) -> str:
    if value is None:
        return f"# {field.name}: unset"
    written = _toml(value)
    if is_secret(field.type) or names_user(written):
        return f"# {field.name}: set, not shown  # {origin}"
    return f"{field.name} = {written}  # {origin}"


def _toml(value: object) -> str:
    """The value as TOML writes it; most of JSON's texts, numbers and lists are TOML's too."""
    if isinstance(value, Secret):
        places = msgspec.structs.asdict(value)
        value = {name: place for name, place in places.items() if place is not None}
    if isinstance(value, dict):
        pairs = (
            f"{msgspec.json.encode(key).decode()} = {_toml(item)}" for key, item in value.items()
        )
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
