"""``causerie check``, ``export`` and ``import``: settings in force, and entries in the database.

They work on the database that the settings name, also while the service runs, with the rights
of the machine's owner. A running service adopts a change within a second.
"""

from __future__ import annotations

import asyncio
import math
import re
import shutil
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from causerie.cli import command

if TYPE_CHECKING:
    import msgspec

    from causerie.hosted.accounts.operating import Entries
    from causerie.hosted.accounts.records import StoredEntry
    from causerie.settings.entries import Entry, EntryKey, ReadWith
    from causerie.settings.load import Loaded
    from causerie.settings.toml import KeyPath
    from causerie.settings.tree import Settings


def check(
    config: command.Config = None,
    pairs: command.Set = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the exit code.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Show the defaults too.")] = False,
    database: command.Database = False,
    no_secrets: Annotated[
        bool, typer.Option("--no-secrets", help="Look for no secret, for example in CI.")
    ] = False,
) -> None:
    """Check the configuration and show what is set, and where each value comes from.

    With `--all` the defaults are shown too. What is printed is a valid
    configuration file itself; a table of the doors stands at its end. Secrets
    are left out. Those in variables and files are looked for, and so are weights
    that are named by a path; commands that give secrets are not run, and nothing
    is fetched. Below the doors stands when keys of providers are read again.

    With `--database` the entries that operators have made are shown too, and on
    stderr those that are not in force, with the reason. With `--no-secrets` the rest
    is checked where the secrets are not, as in CI.

    **Examples**

    `causerie check`

    `causerie check --config other.toml --quiet && echo fine`

    `causerie check --config causerie.toml --no-secrets`
    """
    from causerie.composition.entries import checked
    from causerie.settings.rules import notes

    loaded, _ = checked(
        lambda: command.settings_in_force(config, pairs),
        commands=False,
        weights=True,
        secrets=not no_secrets,
    )
    if database:
        loaded, stored = with_database(config, pairs)
        print_left_out(stored, loaded)
    for name in loaded.ignored:
        typer.echo(f"causerie: the variable {name} sets nothing", err=True)
    for note in notes(loaded.settings):
        typer.echo(f"causerie: {note}", err=True)
    if not quiet:
        tables = [*door_table(loaded.settings), *changing_keys(loaded.settings)]
        tables += list_prices(loaded.settings)
        typer.echo("\n".join([*in_force(loaded, everything), "", *tables]))


def print_left_out(stored: Sequence[StoredEntry], loaded: Loaded) -> None:
    from causerie.composition.entries import entry_of, reasons

    for each in stored:
        for reason in reasons(each, loaded) if each.enabled else ("switched off",):
            typer.echo(f"{entry_of(each).origin} is not in force: {reason}", err=True)


def in_force(loaded: Loaded, everything: bool) -> list[str]:
    """Return the settings as TOML with their origins; without defaults unless ``everything``."""
    tables = _format_table_and_subtables("", loaded.settings, (), loaded.origins, everything)
    return [f"# {loaded.file or 'no configuration file'}", *tables]


def _format_table_and_subtables(
    header: str,
    settings: msgspec.Struct,
    path: KeyPath,
    origins: Mapping[KeyPath, str],
    shows_defaults: bool,
) -> list[str]:
    import msgspec

    from causerie.settings.values import Secret

    lines: list[str] = []
    names = "".join(f"{part}." for part in path if isinstance(part, str))
    inner: list[tuple[str, msgspec.Struct, KeyPath]] = []
    for field in msgspec.structs.fields(type(settings)):
        found = getattr(settings, field.name)
        if isinstance(found, tuple) and found and isinstance(found[0], msgspec.Struct):
            each = f"[[{names}{field.name}]]"
            inner += [(each, one, (field.name, index)) for index, one in enumerate(found)]
        elif isinstance(found, msgspec.Struct) and not isinstance(found, Secret):
            if found != field.default or not path:
                inner.append((f"[{names}{field.name}]", found, (field.name,)))
        elif path and (shows_defaults or (*path, field.name) in origins):
            lines.append(_format_setting(field, found, origins.get((*path, field.name), "default")))
    for each, found, below in inner:
        lines += _format_table_and_subtables(each, found, (*path, *below), origins, shows_defaults)
    return [f"\n{header}", *lines] if path and (lines or path in origins) else lines


def _format_setting(field: Any, value: object, origin: str) -> str:
    import msgspec

    from causerie.settings.decode import is_secret, names_user
    from causerie.settings.toml import as_toml
    from causerie.settings.values import Secret

    if value is None:
        return f"# {field.name}: unset"
    if isinstance(value, Secret):
        places = msgspec.structs.asdict(value)
        value = {name: place for name, place in places.items() if place not in (None, ())}
    written = as_toml(value)
    if is_secret(field.type) or names_user(written):
        return f"# {field.name}: set, not shown  # {origin}"
    return f"{field.name} = {written}  # {origin}"


def changing_keys(settings: Settings) -> Iterator[str]:
    """Yield a TOML comment for each key of a provider that is read again, on how and when."""
    from causerie.composition.providers import renewal_seconds

    for provider in settings.providers:
        place = provider.key
        if place is None or place.env is not None:
            continue
        what, seconds = f"the file {place.file} is read", renewal_seconds(place)
        if place.command is not None:
            program = place.command[0]
            missing = "" if shutil.which(program) else " (not found in PATH here)"
            given = "".join(f", {name}" for name in place.environment)
            what = f"the command {program}{missing} is run, with PATH, HOME and the like{given},"
        again = "" if math.isinf(seconds) else f", every {seconds:g} s"
        yield f"# Key of {provider.name}: {what} at the start, a reload{again} and after a 401"


def list_prices(settings: Settings) -> Iterator[str]:
    """Yield a TOML comment for each target of an alias that has a list price, with its date."""
    from causerie.settings.prices import Prices

    prices = Prices(settings)
    for alias in settings.aliases:
        for target in alias.targets:
            found = prices.of(alias, target)
            if found is not None and found.rows:
                row = found.rows[0]
                amounts = f"{found.price.prompt} in, {found.price.completion} out per 1M tokens"
                yield f"# List price of {alias.id} at {target.name}: {amounts} ({row.date})"


def door_table(settings: Settings) -> Sequence[str]:
    """Return a table of the doors and their addresses, as comments of TOML."""
    from causerie.errors import counted
    from causerie.settings.doors import default_address, door_addresses

    default = default_address(settings)
    here = command.local_url(settings.server.host, settings.server.port)
    rows = [("DOOR", "KIND", "KEYS", "ADDRESS", "MODELS")]
    for door_address in door_addresses(settings):
        door, models = door_address.door, ", ".join(door_address.models)
        keys = counted(len(door.keys), "key") if isinstance(door.keys, tuple) else door.keys
        first: tuple[str, str, str] = (door.name, door.kind, keys or "off")
        addresses = [f"{here}/v1"] if door_address == default else []
        others = (f"http://{host}:{settings.server.port}/v1" for host in door_address.hosts)
        for address in (*addresses, f"{here}{door_address.prefix}", *others):
            rows.append((*first, address, models))
            first, models = ("", "", ""), ""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)) for row in rows)
    return [f"# {line.rstrip()}" for line in lines]


def export_config(
    output: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="File to write. Unset: stdout.")
    ] = None,
    config: command.Config = None,
    pairs: command.Set = None,
) -> None:
    """Write the entries of the configuration that the database holds, as a file.

    Entries that are switched off, or do not hold, are comments in it. Keys are
    never written. A file that exists is never written over.

    **Examples**

    `causerie export entries.toml`
    """
    from causerie.composition.entries import entry_of, known
    from causerie.settings.entries import TABLES, without_switched_off

    loaded, stored = with_database(config, pairs)
    usable = without_switched_off([entry_of(each) for each in known(stored)], loaded)
    kept = {one.key: one for one in usable}
    tables = [
        "\n".join(_format_stored_entry(each, kept, loaded))
        for kind in TABLES
        for each in stored  # oldest first
        if each.kind == kind
    ]
    write_or_print(output, "\n".join([_HEAD, *(f"{table}\n" for table in tables)]))


_HEAD = """\
# Entries of the configuration in the database, by `causerie export`.
# `causerie import FILE` reads them into another database. Keys stay where they are: each is
# named by a variable here, which has to be set for the import.
"""


def _format_stored_entry(
    stored_entry: StoredEntry, usable_entry_by_key: Mapping[EntryKey, Entry], loaded: Loaded
) -> Iterator[str]:
    from causerie.composition.entries import entry_of, reasons
    from causerie.settings.toml import table_text

    full, entry = entry_of(stored_entry), usable_entry_by_key[entry_of(stored_entry).key]
    why = "switched off" if not stored_entry.enabled else "; ".join(reasons(stored_entry, loaded))
    if why:
        yield f"# Not in force: {' '.join(why.split())}"
    elif entry.body != full.body:
        yield "# Without its targets that are switched off."
    values = {entry.table.name: stored_entry.name, **(full.body if why else entry.body)}
    remarks = {}
    if stored_entry.credential is not None or stored_entry.unreadable:
        label, word = entry.table.key, re.sub(r"[^A-Z0-9]+", "_", stored_entry.name.upper())
        ending = "API_KEY" if label == "key" else "WEBHOOK_SECRET"
        digit = "_" if word[:1].isdigit() else ""  # no variable begins with one
        values[label] = {"env": f"{digit}{word}_{ending}"}
        remarks[label] = f"the {label} itself stays in the database"
    for line in table_text(entry.table.path, _drop_nulls(values), remarks).split("\n"):
        yield f"# {line}" if why else line


def _drop_nulls(document: Any) -> Any:
    if isinstance(document, Mapping):
        return {name: _drop_nulls(item) for name, item in document.items() if item is not None}
    return [_drop_nulls(item) for item in document] if isinstance(document, list) else document


def import_config(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Entries as `causerie export` writes them."),
    ] = None,
    litellm: Annotated[
        Path | None, typer.Option("--litellm", metavar="FILE", help="LiteLLM's `config.yaml`.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write, with --litellm. Unset: stdout."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete the entries that FILE does not name.")
    ] = False,
    config: command.Config = None,
    pairs: command.Set = None,
) -> None:
    """Take entries of a file over into the database, or LiteLLM's configuration into a file.

    The entries of FILE are checked together with the configuration and with
    those that the database holds. What would change is shown, and you are
    asked; then all is written, or nothing. Keys are read where FILE says that
    they are. Entries that FILE does not name stay, or are deleted with `--prune`,
    so that a file in version control is all that the database holds.

    With `--litellm` the configuration of LiteLLM's proxy becomes a
    `causerie.toml`: models, providers, wildcards, fallbacks, limits, prices
    and the master key. What is not carried over is listed on stderr, each with
    its place and what to do instead. A file that exists is never written over.

    **Examples**

    `causerie import entries.toml --prune --yes`

    `causerie import --litellm config.yaml -o causerie.toml && causerie check`
    """
    if file is not None and litellm is None and output is None:
        import_entries(file, config, pairs, yes=yes, prune=prune)
    elif litellm is not None and file is None and not prune:
        _translate_litellm(litellm, output)
    else:
        raise command.WrongUsage("name one file: FILE, also with `--prune`, or `--litellm FILE`")


def _translate_litellm(litellm_file: Path, output_file: Path | None) -> None:
    from causerie.cli.litellm import translate

    text, notes = translate(litellm_file)
    if text is not None:
        write_or_print(output_file, text)
    for note in notes:
        typer.echo(note, err=True)
    if text is None:
        words = f"{litellm_file}: nothing in `model_list` can be carried over"
        raise command.CommandFailed(words, command.ExitCode.CONFIGURATION)


def import_entries(
    file: Path, config: Path | None, pairs: list[str] | None, *, yes: bool, prune: bool = False
) -> None:
    """Print what a file would change in the database, ask unless ``yes``, and write all of it.

    With ``prune`` entries that the file does not name are deleted.
    """
    from causerie.cli.terminal import print_table
    from causerie.composition.configuring import EntryImport
    from causerie.settings.environment import variables
    from causerie.settings.load import read_entry_file

    read = settings_reader(config, pairs)
    alone = read((), None)
    filed, others = read_entry_file(file)
    for name in others:
        typer.echo(f"{file}: `{name}` is not imported; it belongs into causerie.toml", err=True)

    async def work(entries: Entries) -> int:
        importing = EntryImport(entries, alone, read, variables())
        steps = await importing.plan(filed, prune=prune)
        rows = [(it.action, it.entry.kind, it.entry.name, it.what or "-") for it in steps]
        print_table(("IMPORT", "KIND", "NAME", "CHANGES"), rows)
        count = sum(each.change is not None for each in steps)
        if count and not yes:
            command.confirm(f"Write {_format_entry_count(count)} into the database?")
        await importing.carry_out(steps)
        return count

    count = with_entries(alone, work)
    typer.echo(f"{_format_entry_count(count)} written." if count else "Nothing to write.", err=True)


def _format_entry_count(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def write_or_print(output: Path | None, text: str) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise command.WrongUsage(f"cannot write {output}: {error}") from error


T = TypeVar("T")


def settings_reader(config: Path | None, pairs: list[str] | None) -> ReadWith:
    """Return the function that reads the settings together with some entries."""

    def read(entries: Sequence[Entry], text: str | None) -> Loaded:
        return command.settings_in_force(config, pairs, text=text, entries=entries)

    return read


def with_entries(loaded: Loaded, work: Callable[[Entries], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on the entries in the database that the settings name."""
    from causerie.composition.account_backend import entries_of
    from causerie.settings.credentials import read_credentials
    from causerie.settings.doors import has_accounts

    if not has_accounts(loaded.settings):
        raise command.CommandFailed(
            'no door has `keys = "accounts"`, so the service reads no entries of a database',
            command.ExitCode.CONFIGURATION,
        )
    secret_keys = read_credentials(loaded, section="store").store

    async def main() -> T:
        async with entries_of(loaded.settings.store, secret_keys) as entries:
            return await work(entries)

    return asyncio.run(main())


def with_database(
    config: Path | None, pairs: list[str] | None
) -> tuple[Loaded, Sequence[StoredEntry]]:
    """Return the settings with the valid entries of the database, and all entries."""
    from causerie.composition.entries import merged_with

    read = settings_reader(config, pairs)
    loaded = read((), None)
    stored = with_entries(loaded, lambda entries: entries.every())
    return merged_with(read, stored, loaded.text), stored
