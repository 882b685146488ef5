"""``causerie export``: the entries that the database holds, in the form of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from causerie.accounts.entry import StoredEntry
from causerie.composition.entries import SECTIONS, entry_of, known, reasons
from causerie.settings import Loaded
from causerie.settings.entries import Entry, EntryKey, without_switched_off
from causerie.settings.entry_rules import KEYS, NAMES, PATHS
from causerie.settings.toml import table_text

_HEAD = """\
# Entries of the configuration in the database, by `causerie export`.
# `causerie import FILE` reads them into another database. Keys stay where they are: each is
# named by a variable here, which has to be set for the import.
"""


def exported(stored: Sequence[StoredEntry], loaded: Loaded) -> str:
    """Return the entries as text: by kind, oldest first."""
    usable = without_switched_off([entry_of(each) for each in known(stored)], loaded)
    kept = {one.key: one for one in usable}
    tables = [
        "\n".join(_table(each, kept, loaded))
        for kind in SECTIONS
        for each in stored
        if each.kind == kind
    ]
    return "\n".join([_HEAD, *(f"{table}\n" for table in tables)])


def _table(stored: StoredEntry, kept: Mapping[EntryKey, Entry], loaded: Loaded) -> Iterator[str]:
    """Yield the lines of one entry: as comments where the file would not hold with it."""
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
        values[label] = {"env": variable(stored.name, label)}
        remarks[label] = f"the {label} itself stays in the database"
    for line in table_text(PATHS[entry.section], _without_null(values), remarks).split("\n"):
        yield f"# {line}" if why else line


def variable(name: str, label: str = "key") -> str:
    """Return the variable that the file names for the key of a provider, or a webhook's secret."""
    word = re.sub(r"[^A-Z0-9]+", "_", name.upper())
    ending = "API_KEY" if label == "key" else "WEBHOOK_SECRET"
    return f"_{word}_{ending}" if word[:1].isdigit() else f"{word}_{ending}"


def _without_null(value: Any) -> Any:
    """Return the value without what is unset: TOML has no word for that."""
    if isinstance(value, Mapping):
        return {name: _without_null(item) for name, item in value.items() if item is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value
