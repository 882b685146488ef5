"""``causerie import FILE``: entries of a file, taken over into the database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from causerie.cli.database_entries import reader, with_entries
from causerie.cli.exits import confirm
from causerie.cli.tables import print_table
from causerie.composition.entries import KINDS
from causerie.composition.importing import EntryImport, ImportStep
from causerie.settings.entry_file import EntryFile, read_entry_file
from causerie.settings.environment import variables

if TYPE_CHECKING:
    from causerie.accounts.entries import Entries


def import_entries(file: Path, config: Path | None, pairs: list[str] | None, *, yes: bool) -> None:
    """Show what would change, ask unless ``yes``, and write all of it."""
    read = reader(config, pairs)
    alone = read((), None)
    found = read_entry_file(file)
    _tell(file, found)

    async def work(entries: Entries) -> int:
        importing = EntryImport(entries, alone, read, variables())
        steps = await importing.plan(found.entries)
        _show(steps)
        count = sum(each.after is not None for each in steps)
        if count and not yes:
            confirm(f"Write {_entries(count)} into the database?")
        await importing.carry_out(steps)
        return count

    count = with_entries(alone, work)
    typer.echo(f"{_entries(count)} written." if count else "Nothing to write.", err=True)


def _tell(file: Path, found: EntryFile) -> None:
    for name in found.others:
        typer.echo(f"{file}: `{name}` is not imported; it belongs into causerie.toml", err=True)


def _show(steps: Sequence[ImportStep]) -> None:
    rows = [
        (each.action, KINDS[each.entry.section], each.entry.name, each.what or "-")
        for each in steps
    ]
    print_table(("IMPORT", "KIND", "NAME", "CHANGES"), rows)


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"
