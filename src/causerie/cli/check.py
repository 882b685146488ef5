"""``causerie check``: does the configuration hold, and what is in force."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from causerie.cli.exits import reporting
from causerie.cli.options import Config, Set, settings_in_force
from causerie.settings import Loaded
from causerie.settings.decode import is_secret
from causerie.settings.lines import Path


def check(
    config: Config = None,
    pairs: Set = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the exit code.")] = False,
) -> None:
    """Check the configuration and show what is in force, and where each value comes from.

    What is printed is a valid configuration file itself. Secrets are left out.

    **Examples**

    `causerie check`

    `causerie check --config other.toml --quiet && echo fine`
    """
    with reporting():
        loaded = settings_in_force(config, pairs)
        for name in loaded.ignored:
            typer.echo(f"causerie: the variable {name} sets nothing", err=True)
        if not quiet:
            typer.echo("\n".join(in_force(loaded)))


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
    inner: list[tuple[str, msgspec.Struct]] = []
    for field in msgspec.structs.fields(type(value)):
        found = getattr(value, field.name)
        if isinstance(found, msgspec.Struct):
            inner.append((field.name, found))
        else:
            yield _line(field, found, loaded.origins.get((*path, field.name), "default"))
    names = ".".join(str(part) for part in path if isinstance(part, str))
    for name, found in inner:
        if found != type(found)():
            yield from _table(f"[{names}.{name}]", found, (*path, name), loaded)


def _line(field: Any, value: object, origin: str) -> str:
    if value is None:
        return f"# {field.name}: unset"
    if is_secret(field.type):
        return f"# {field.name}: set, not shown  # {origin}"
    return f"{field.name} = {_toml(value)}  # {origin}"


def _toml(value: object) -> str:
    """The value as TOML writes it; JSON's texts, numbers and lists are TOML's too."""
    if isinstance(value, dict):
        pairs = (
            f"{msgspec.json.encode(key).decode()} = {_toml(item)}" for key, item in value.items()
        )
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return msgspec.json.encode(value).decode()
