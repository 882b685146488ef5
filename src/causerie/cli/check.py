"""``causerie check``: does the configuration hold, and what is in force."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import Config, Database, Set, local_url, settings_in_force

if TYPE_CHECKING:
    import msgspec

    from causerie.accounts.entry import StoredEntry
    from causerie.settings import Loaded, Settings
    from causerie.settings.addresses import DoorAddress
    from causerie.settings.lines import Path


def check(
    config: Config = None,
    pairs: Set = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the exit code.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Show the defaults too.")] = False,
    database: Database = False,
) -> None:
    """Check the configuration and show what is set, and where each value comes from.

    With `--all` the defaults are shown too. What is printed is a valid
    configuration file itself; a table of the doors stands at its end. Secrets
    are left out. Those in variables and files are looked for, and so are weights
    that are named by a path; commands that give secrets are not run, and nothing
    is fetched.

    With `--database` the entries that operators have made are shown too, and on
    stderr those that are not in force, with the reason.

    **Examples**

    `causerie check`

    `causerie check --config other.toml --quiet && echo fine`
    """
    from causerie.cli.entries import with_database
    from causerie.composition.validated import checked
    from causerie.settings.notes import notes

    with reporting():
        loaded, _ = checked(lambda: settings_in_force(config, pairs), commands=False, weights=True)
        if database:
            loaded, stored = with_database(config, pairs)
            print_left_out(stored, loaded)
        for name in loaded.ignored:
            typer.echo(f"causerie: the variable {name} sets nothing", err=True)
        for note in notes(loaded.settings):
            typer.echo(f"causerie: {note}", err=True)
        if not quiet:
            typer.echo("\n".join([*in_force(loaded, everything), "", *door_table(loaded.settings)]))


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


def print_left_out(stored: Sequence[StoredEntry], loaded: Loaded) -> None:
    """Print each stored entry that is not in force, with the reason."""
    from causerie.composition.entries import origin_of, reasons

    for each in stored:
        for reason in reasons(each, loaded) if each.enabled else ("switched off",):
            typer.echo(f"{origin_of(each)} is not in force: {reason}", err=True)


def in_force(loaded: Loaded, everything: bool) -> Iterator[str]:
    """Yield the settings as TOML with their origins; without defaults unless ``everything``."""
    import msgspec

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
    import msgspec

    from causerie.settings import Secret

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
    import msgspec

    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _line(field: Any, value: object, origin: str) -> str:
    from causerie.settings.decode import is_secret, names_user

    if value is None:
        return f"# {field.name}: unset"
    written = _toml_value(value)
    if is_secret(field.type) or names_user(written):
        return f"# {field.name}: set, not shown  # {origin}"
    return f"{field.name} = {written}  # {origin}"


def _toml_value(value: object) -> str:
    import msgspec

    from causerie.settings import Secret

    if isinstance(value, Secret):
        places = msgspec.structs.asdict(value)
        value = {name: place for name, place in places.items() if place is not None}
    if isinstance(value, dict):
        pairs = (
            f"{msgspec.json.encode(key).decode()} = {_toml_value(item)}"
            for key, item in value.items()
        )
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


_TITLES = ("DOOR", "KIND", "KEYS", "ADDRESS", "MODELS")


def door_table(settings: Settings) -> Sequence[str]:
    """Return a table of the doors and their addresses, as comments of TOML."""
    from causerie.settings.addresses import default_address, door_addresses

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
    port = settings.server.port
    here = local_url(settings.server.host, port)
    found = [f"{here}/v1"] if door_address == default else []
    return [
        *found,
        f"{here}{door_address.prefix}",
        *(f"http://{host}:{port}/v1" for host in door_address.hosts),
    ]


def _keys(door_address: DoorAddress) -> str:
    from causerie.errors import counted

    keys = door_address.door.keys
    if not isinstance(keys, tuple):
        return keys or "off"
    return counted(len(keys), "key")
