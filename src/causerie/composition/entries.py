"""The configuration as a whole: what the file says, and the entries that operators have made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from causerie.accounts.entry import EntryKind, StoredEntry
from causerie.composition.validated import checked
from causerie.settings import Loaded
from causerie.settings.credentials import Credentials
from causerie.settings.entries import Entry, ReadWith, Section, merged

SECTIONS: Mapping[EntryKind, Section] = MappingProxyType(
    {"provider": "providers", "alias": "aliases"}
)


def entry_of(stored: StoredEntry) -> Entry:
    """Return the entry as the settings take it."""
    return Entry(SECTIONS[stored.kind], stored.name, stored.body, stored.enabled)


def checked_with(
    read: ReadWith, stored: Sequence[StoredEntry] = (), text: str | None = None
) -> tuple[Loaded, Credentials]:
    """Return the settings with the entries that hold, and all secrets. Blocks.

    ``text`` is what the file says, if that is known. Raises :class:`SettingsError` if the file
    does not hold.
    """
    entries = [entry_of(each) for each in stored if not each.unreadable]
    loaded, credentials = checked(lambda: merged(read, entries, text))
    given = {
        each.name: each.credential
        for each in stored
        if each.credential is not None and in_force(each, loaded)
    }
    return loaded, replace(credentials, keys={**credentials.keys, **given})


def in_force(stored: StoredEntry, loaded: Loaded) -> bool:
    """Return true if the entry is a part of these settings."""
    return stored.enabled and not stored.unreadable and entry_of(stored).key not in loaded.left_out
