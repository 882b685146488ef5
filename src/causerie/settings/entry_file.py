"""A file of entries for the database, in the form of the configuration: its tables, each checked
alone. Whether they hold is decided with everything else that is in force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from causerie.providers.known import KNOWN_PROVIDERS
from causerie.settings.entries import Entry, EntryKey, Section
from causerie.settings.entry_rules import KEYS, NAMES, PATHS
from causerie.settings.lines import line_numbers
from causerie.settings.load import parsed
from causerie.settings.problems import Findings, Problem, SettingsError
from causerie.settings.values import PLACES, Secret


@dataclass(frozen=True, slots=True)
class FiledEntry:
    """An entry with the place of its key, if it has one."""

    entry: Entry
    key: Secret | None = None


@dataclass(frozen=True, slots=True)
class EntryFile:
    """Entries in the order of the file; ``others`` are tables that are no entries."""

    entries: tuple[FiledEntry, ...]
    others: tuple[str, ...] = ()


def read_entry_file(file: Path) -> EntryFile:
    """Return the entries of a file. Raises :class:`SettingsError` with all problems."""
    text, values = parsed(file)
    lines, findings = line_numbers(text), Findings()
    found: dict[EntryKey, FiledEntry] = {}
    for section in NAMES:
        for index, table in enumerate(_tables(file, section, values, findings)):
            path = PATHS[section]
            place = f"{file}:{lines.get((*path, index)) or lines.get(path)}"
            with findings.collecting():
                filed = _filed(section, table, place)
                if (other := found.get(filed.entry.key)) is not None:
                    advice = f'"{filed.entry.name}" stands here twice ({other.entry.place})'
                    raise SettingsError([Problem(place, "", advice)])
                found[filed.entry.key] = filed
    findings.end()
    return EntryFile(tuple(found.values()), tuple(_others(values)))


def _others(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of tables that are no entries, or hold something else."""
    for name, value in values.items():
        inner = {path[1] for path in PATHS.values() if len(path) > 1 and path[0] == name}
        if (name,) not in PATHS.values() and not (isinstance(value, dict) and set(value) <= inner):
            yield name


def _tables(
    file: Path, section: Section, values: Mapping[str, Any], findings: Findings
) -> Iterator[dict[str, Any]]:
    path = PATHS[section]
    tables: Any = values
    for part in path[:-1]:
        tables = tables.get(part, {})
        if not isinstance(tables, dict):
            findings.add([Problem(str(file), part, "is no table")])
            return
    tables = tables.get(path[-1], [])
    if isinstance(tables, list) and all(isinstance(one, dict) for one in tables):
        yield from tables
    else:
        findings.add(
            [Problem(str(file), ".".join(path), f"takes tables: write `[[{'.'.join(path)}]]`")]
        )


def _filed(section: Section, table: Mapping[str, Any], place: str) -> FiledEntry:
    """Return one entry; raise :class:`SettingsError` without a name, or with a key itself."""
    body = dict(msgspec.to_builtins(table))  # days become text, as the database keeps them
    label = NAMES[section]
    known = KNOWN_PROVIDERS.get(str(body.get("known"))) if section == "providers" else None
    name = body.pop(label, known.name if known is not None else None)
    if not isinstance(name, str) or not name:
        raise SettingsError([Problem(place, label, "is missing; it takes a name")])
    label = KEYS.get(section, "")
    key = body.pop(label, None)
    try:
        secret = None if key is None else msgspec.convert(key, Secret)
    except msgspec.ValidationError:
        raise SettingsError(
            [Problem(place, label, f"is no place of a key; write {PLACES}")]
        ) from None
    if secret == Secret():
        raise SettingsError([Problem(place, label, f"names no place; write {PLACES}")])
    return FiledEntry(Entry(section, name, body, place=place), secret)
