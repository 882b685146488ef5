"""Entries of the configuration that do not come from the file: providers and aliases.

They are checked with the file, by the same rules. The file holds without them, and wins a name;
an entry that does not hold with it, or with the others, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from causerie.settings.problems import Problem, SettingsError

if TYPE_CHECKING:
    from causerie.settings.load import Loaded

Section = Literal["providers", "aliases"]
EntryKey = tuple[Section, str]
NAMES: Mapping[Section, str] = {"providers": "name", "aliases": "id"}
OFF = "all providers that it names are switched off"
# What a file may say, and nobody from elsewhere: places of secrets on this machine, programs.
_FILE_ONLY = (("key",), ("tls", "ca_file"), ("tls", "client_cert"), ("tls", "client_key"))


@dataclass(frozen=True, slots=True)
class Entry:
    """A provider or an alias; ``body`` is in the form of the file, without its key."""

    section: Section
    name: str
    body: Mapping[str, Any]
    enabled: bool = True
    place: str = ""
    """File and line that it was read from, if it was."""

    @property
    def key(self) -> EntryKey:
        """Return what tells it from others."""
        return self.section, self.name

    @property
    def origin(self) -> str:
        """Return the place that problems name."""
        if self.place:
            return self.place
        noun = "provider" if self.section == "providers" else "alias"
        return f'the entry of {noun} "{self.name}"'


ReadWith = Callable[[Sequence[Entry], str | None], "Loaded"]
"""Reads the settings with some entries; with a text, the file is not read but says this."""


def merged(read: ReadWith, entries: Sequence[Entry], text: str | None = None) -> Loaded:
    """Return the settings with all entries that hold; ``text`` is what the file says, if known.

    The reasons why others are left out are in ``left_out``. Raises :class:`SettingsError` if the
    file does not hold alone.
    """
    alone = read((), text)
    left_out = {entry.key: reasons for entry in entries if (reasons := _refused(entry, alone))}
    entries = [one for one in entries if one.key not in left_out]
    entries = tuple(without_providers_off(entries))
    left_out |= {one.key: (OFF,) for one in entries if one.body.get("targets") == []}
    wanted = [one for one in entries if one.enabled and one.key not in left_out]
    while wanted:
        try:
            return replace(read(wanted, alone.text), left_out=left_out)
        except SettingsError as error:
            left_out |= (faulty := _faulty(wanted, error.problems))
        wanted = [one for one in wanted if one.key not in faulty]
    return replace(alone, left_out=left_out)


def filed_place(entry: Entry, alone: Loaded) -> str:
    """Return the place at which the file has this name, or nothing."""
    for index, one in enumerate(getattr(alone.settings, entry.section)):
        if getattr(one, NAMES[entry.section]) == entry.name:
            return alone.where((entry.section, index))
    return ""


def _refused(entry: Entry, alone: Loaded) -> tuple[str, ...]:
    """Return why the entry is not even tried."""
    if place := filed_place(entry, alone):
        return (f'"{entry.name}" is taken by {place}, which wins',)
    if entry.section == "aliases":
        return ()
    named = [".".join(path) for path in _FILE_ONLY if _given(entry.body, path)]
    if isinstance(entry.body.get("proxy"), Mapping):
        named.append("proxy")
    return tuple(f"{one}: only the file may name a place on this machine" for one in named)


def _given(body: Mapping[str, Any], path: Sequence[str]) -> bool:
    found: object = body
    for part in path:
        if not isinstance(found, Mapping) or part not in found:
            return False
        found = found[part]
    return True


def without_providers_off(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the entries; targets of providers that are switched off are removed."""
    off = {one.name for one in entries if one.section == "providers" and not one.enabled}
    for entry in entries:
        targets = entry.body.get("targets")
        if entry.section != "aliases" or not isinstance(targets, list):
            yield entry
            continue
        kept = [
            each
            for each in targets
            if not isinstance(each, Mapping) or each.get("provider") not in off
        ]
        yield replace(entry, body={**entry.body, "targets": kept})


def _faulty(
    entries: Sequence[Entry], problems: Sequence[Problem]
) -> dict[EntryKey, tuple[str, ...]]:
    """Return the entries that the problems speak of, with their problems.

    The file holds alone: where a problem names no entry, the newest has brought it.
    """
    found: dict[EntryKey, tuple[str, ...]] = {}
    by_origin = {one.origin: one for one in entries}
    for problem in problems:
        places = (problem.where, problem.other)
        entry = next((by_origin[place] for place in places if place in by_origin), entries[-1])
        words = ": ".join(part for part in (_short(problem.key), problem.advice) if part)
        found[entry.key] = (*found.get(entry.key, ()), words)
    return found


def _short(key: str) -> str:
    """Return the key below its entry: of ``providers[3].base_url`` only ``base_url``."""
    section, bracket, rest = key.partition("[")
    if bracket and section in NAMES:
        return rest.partition("]")[2].lstrip(".")
    return key
