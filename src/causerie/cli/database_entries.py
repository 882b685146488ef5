"""Helpers of the commands on entries of the configuration that the database holds.

They work on the database that the settings name, also while the service runs, with the rights of
the machine's owner. A running service takes a change over within a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from causerie.accounts.entry import StoredEntry
from causerie.cli.exits import CommandFailed, ExitCode
from causerie.cli.in_force import settings_in_force
from causerie.composition.entries import merged_with
from causerie.settings import Loaded
from causerie.settings.addresses import has_accounts
from causerie.settings.credentials import read_store_keys
from causerie.settings.entries import Entry, ReadWith

if TYPE_CHECKING:
    from causerie.accounts.entries import Entries


T = TypeVar("T")


def reader(config: Path | None, pairs: list[str] | None) -> ReadWith:
    """Return the function that reads the settings with some entries."""

    def read(entries: Sequence[Entry], text: str | None) -> Loaded:
        return settings_in_force(config, pairs, text=text, entries=entries)

    return read


def with_entries(loaded: Loaded, work: Callable[[Entries], Coroutine[Any, Any, T]]) -> T:
    """Do something with the entries of the database that the settings name."""
    from causerie.composition.account_backend import entries_of  # noqa: PLC0415 - not for all other commands

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
    """Return the settings with the entries that hold, and all entries."""
    read = reader(config, pairs)
    loaded = read((), None)
    stored = with_entries(loaded, lambda entries: entries.every())
    return merged_with(read, stored, loaded.text), stored
