"""``causerie export`` and ``import``: entries of the configuration that the database holds.

They work on the database that the settings name, also while the service runs, with the rights of
the machine's owner. A running service adopts a change within a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from causerie.cli.exits import CommandFailed, ExitCode, confirm, reporting
from causerie.cli.options import Config, Set, settings_in_force

if TYPE_CHECKING:
    from causerie.accounts.entries import Entries
    from causerie.accounts.entry import StoredEntry
    from causerie.composition.importing import ImportStep
    from causerie.settings import Loaded
    from causerie.settings.entries import Entry, EntryKey, ReadWith
    from causerie.settings.entry_file import EntryFile


def export_config(
    output: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="File to write. Unset: stdout.")
    ] = None,
    config: Config = None,
    pairs: Set = None,
) -> None:
    """Write the entries of the configuration that the database holds, as a file.

    Entries that are switched off, or do not hold, are comments in it. Keys are
    never written. A file that exists is never written over.

    **Examples**

    `causerie export entries.toml`
    """
    with reporting():
        loaded, stored = with_database(config, pairs)
        write_or_print(output, export_text(stored, loaded))


_HEAD = """\
# Entries of the configuration in the database, by `causerie export`.
# `causerie import FILE` reads them into another database. Keys stay where they are: each is
# named by a variable here, which has to be set for the import.
"""


def export_text(stored: Sequence[StoredEntry], loaded: Loaded) -> str:
    """Return the entries as TOML: by kind, oldest first."""
    from causerie.composition.entries import SECTIONS, entry_of, known
    from causerie.settings.entries import without_switched_off

    usable = without_switched_off([entry_of(each) for each in known(stored)], loaded)
    kept = {one.key: one for one in usable}
    tables = [
        "\n".join(_entry_lines(each, kept, loaded))
        for kind in SECTIONS
        for each in stored
        if each.kind == kind
    ]
    return "\n".join([_HEAD, *(f"{table}\n" for table in tables)])


def _entry_lines(
    stored: StoredEntry, kept: Mapping[EntryKey, Entry], loaded: Loaded
) -> Iterator[str]:
    from causerie.composition.entries import entry_of, reasons
    from causerie.settings.entry_rules import KEYS, NAMES, PATHS
    from causerie.settings.toml import table_text

    full, entry = entry_of(stored), kept[entry_of(stored).key]
    why = "switched off" if not stored.enabled else "; ".join(reasons(stored, loaded))
    if why:
        yield f"# Not in force: {' '.join(why.split())}"
    elif entry.body != full.body:
        yield "# Without its targets that are switched off."
    values = {NAMES[entry.section]: stored.name, **(full.body if why else entry.body)}
    remarks = {}
    if stored.credential is not None or stored.unreadable:
        label = KEYS[entry.section]
        values[label] = {"env": key_variable(stored.name, label)}
        remarks[label] = f"the {label} itself stays in the database"
    for line in table_text(PATHS[entry.section], _without_null(values), remarks).split("\n"):
        yield f"# {line}" if why else line


def key_variable(name: str, label: str = "key") -> str:
    """Return the variable that names a provider's key or a webhook's secret in the file."""
    word = re.sub(r"[^A-Z0-9]+", "_", name.upper())
    ending = "API_KEY" if label == "key" else "WEBHOOK_SECRET"
    return f"_{word}_{ending}" if word[:1].isdigit() else f"{word}_{ending}"


def _without_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_null(item) for name, item in value.items() if item is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value


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
    config: Config = None,
    pairs: Set = None,
) -> None:
    """Take entries of a file over into the database, or LiteLLM's configuration into a file.

    The entries of FILE are checked together with the configuration and with
    those that the database holds. What would change is shown, and you are
    asked; then all is written, or nothing. Keys are read where FILE says that
    they are. Entries that FILE does not name stay.

    With `--litellm` the configuration of LiteLLM's proxy becomes a
    `causerie.toml`: models, providers, wildcards, fallbacks, limits, prices
    and the master key. What is not carried over is listed on stderr, each with
    its place and what to do instead. A file that exists is never written over.

    **Examples**

    `causerie import entries.toml --yes`

    `causerie import --litellm config.yaml -o causerie.toml && causerie check`
    """
    from causerie.cli.litellm import translate

    with reporting():
        if file is not None and litellm is None and output is None:
            import_entries(file, config, pairs, yes=yes)
        elif litellm is not None and file is None:
            text, notes = translate(litellm)
            if text is not None:
                write_or_print(output, text)
            for note in notes:
                typer.echo(note, err=True)
            if text is None:
                words = f"{litellm}: nothing in `model_list` can be carried over"
                raise CommandFailed(words, ExitCode.CONFIGURATION)
        else:
            raise CommandFailed("name one file: FILE, or `--litellm FILE`", ExitCode.USAGE)


def import_entries(file: Path, config: Path | None, pairs: list[str] | None, *, yes: bool) -> None:
    """Print what would change, ask unless ``yes``, and write all of it."""
    from causerie.composition.importing import EntryImport
    from causerie.settings.entry_file import read_entry_file
    from causerie.settings.environment import variables

    read = settings_reader(config, pairs)
    alone = read((), None)
    found = read_entry_file(file)
    _print_ignored(file, found)

    async def work(entries: Entries) -> int:
        importing = EntryImport(entries, alone, read, variables())
        steps = await importing.plan(found.entries)
        _print_steps(steps)
        count = sum(each.after is not None for each in steps)
        if count and not yes:
            confirm(f"Write {_counted(count)} into the database?")
        await importing.carry_out(steps)
        return count

    count = with_entries(alone, work)
    typer.echo(f"{_counted(count)} written." if count else "Nothing to write.", err=True)


def _print_ignored(file: Path, found: EntryFile) -> None:
    for name in found.others:
        typer.echo(f"{file}: `{name}` is not imported; it belongs into causerie.toml", err=True)


def _print_steps(steps: Sequence[ImportStep]) -> None:
    from causerie.cli.terminal import print_table
    from causerie.composition.entries import KINDS

    rows = [
        (each.action, KINDS[each.entry.section], each.entry.name, each.what or "-")
        for each in steps
    ]
    print_table(("IMPORT", "KIND", "NAME", "CHANGES"), rows)


def _counted(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def write_or_print(output: Path | None, text: str) -> None:
    """Write text to a new file, or to stdout without one. Raises :class:`CommandFailed`."""
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CommandFailed(f"cannot write {output}: {error}", ExitCode.USAGE) from error


T = TypeVar("T")


def settings_reader(config: Path | None, pairs: list[str] | None) -> ReadWith:
    """Return the function that reads the settings together with some entries."""

    def read(entries: Sequence[Entry], text: str | None) -> Loaded:
        return settings_in_force(config, pairs, text=text, entries=entries)

    return read


def with_entries(loaded: Loaded, work: Callable[[Entries], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on the entries in the database that the settings name."""
    import asyncio

    from causerie.composition.account_backend import entries_of
    from causerie.settings.addresses import has_accounts
    from causerie.settings.credentials import read_store_keys

    if not has_accounts(loaded.settings):
        raise CommandFailed(
            'no door has `keys = "accounts"`, so the service reads no entries of a database',
            ExitCode.CONFIGURATION,
        )
    secret_keys = read_store_keys(loaded)

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
