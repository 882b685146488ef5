"""``causerie check``: does the configuration hold, and what is in force."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, time
from typing import Annotated, Any

import msgspec
import typer

from causerie.cli.doors import door_table
from causerie.cli.exits import reporting
from causerie.cli.options import Config, Set, settings_in_force
from causerie.composition.validated import checked
from causerie.settings import Loaded, Secret
from causerie.settings.decode import is_secret, names_user
from causerie.settings.lines import Path


def check(
    config: Config = None,
    pairs: Set = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the exit code.")] = False,
) -> None:
    """Check the configuration and show what is in force, and where each value comes from.

    What is printed is a valid configuration file itself; a table of the doors
    stands at its end. Secrets are left out. Those in variables and files are
    looked for, and so are weights that are named by a path; commands that give
    secrets are not run, and nothing is fetched.

    **Examples**

    `causerie check`

    `causerie check --config other.toml --quiet && echo fine`
    """
    with reporting():
        loaded, _ = checked(lambda: settings_in_force(config, pairs), commands=False, weights=True)
        for name in loaded.ignored:
            typer.echo(f"causerie: the variable {name} sets nothing", err=True)
        if not quiet:
            typer.echo("\n".join([*in_force(loaded), "", *door_table(loaded.settings)]))


def in_force(loaded: Loaded) -> Iterator[str]:
    """The settings as TOML, each line with its origin as a comment."""
    yield f"# {loaded.file or 'no configuration file'}"
    for field in msgspec.structs.fields(type(loaded.settings)):
        value = getattr(loaded.settings, field.name)
        if isinstance(value, tuple):
            for index, item in enumerate(value):
                yield from _table(f"[[{field.name}]]", item, (field.name, index), loaded)
        else:
            yield from _table(f"[{field.name}]", value, (field.name,), loaded)


def _table(header: str, value: msgspec.Struct, path: Path, loaded: Loaded) -> Iterator[str]:
    yield f"\n{header}"
    names = ".".join(str(part) for part in path if isinstance(part, str))
    inner: list[tuple[str, msgspec.Struct, Path]] = []
    for field in msgspec.structs.fields(type(value)):
        found = getattr(value, field.name)
        if isinstance(found, tuple) and found and isinstance(found[0], msgspec.Struct):
            header = f"[[{names}.{field.name}]]"
            inner += [(header, one, (field.name, index)) for index, one in enumerate(found)]
        elif isinstance(found, msgspec.Struct) and not isinstance(found, Secret):
            if found != type(found)():
                inner.append((f"[{names}.{field.name}]", found, (field.name,)))
        else:
            yield _line(field, found, loaded.origins.get((*path, field.name), "default"))
    for header, found, below in inner:
        yield from _table(header, found, (*path, *below), loaded)


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
