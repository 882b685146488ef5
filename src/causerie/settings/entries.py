"""Entries of the configuration that do not come from the file.

They are checked with the file, by the same rules. The file holds without them, and what it sets
stays; an entry that does not hold with it, or with the others, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from causerie.settings.entry_rules import PATHS, filed_index, refusals
from causerie.settings.problems import Problem, SettingsError

if TYPE_CHECKING:
    from causerie.settings.load import Loaded

Section = Literal["providers", "aliases", "catalog", "models", "doors", "webhooks", "emails"]
EntryKey = tuple[Section, str]
OFF = "all providers that it names are switched off"
_NOUNS: Mapping[Section, str] = {
    "providers": "provider",
    "aliases": "alias",
    "catalog": "catalog model",
    "models": "model",
    "doors": "door",
    "webhooks": "webhook",
    "emails": "email",
}
_TARGETS: Mapping[Section, str] = {"aliases": "targets", "catalog": "endpoints"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A table of the file's form without its name and its key, or an addition to such a table."""

    section: Section
    name: str
    body: Mapping[str, Any]
    enabled: bool = True
    place: str = ""
    """File and line that it was read from, if it was."""

    @property
    def key(self) -> EntryKey:
        return self.section, self.name

    @property
    def origin(self) -> str:
        """Return the place that problems name."""
        if self.place:
            return self.place
        return f'the entry of {_NOUNS[self.section]} "{self.name}"'


ReadWith = Callable[[Sequence[Entry], str | None], "Loaded"]
"""Reads the settings with some entries; with a text, the file is not read but says this."""


def merged(read: ReadWith, entries: Sequence[Entry], text: str | None = None) -> Loaded:
    """Return the settings with all entries that hold; ``text`` is what the file says, if known.

    The reasons why others are left out are in ``left_out``. Raises :class:`SettingsError` if the
    file does not hold alone.
    """
    alone = read((), text)
    left_out = {entry.key: reasons for entry in entries if (reasons := refusals(entry, alone))}
    tried = [one for one in entries if one.key not in left_out]
    usable = list(without_switched_off(tried, alone))
    left_out |= {now.key: (OFF,) for one, now in zip(tried, usable, strict=True) if _lost(one, now)}
    wanted = [one for one in usable if one.enabled and one.key not in left_out]
    while wanted:
        try:
            return replace(read(wanted, alone.text), left_out=left_out)
        except SettingsError as error:
            left_out |= (faulty := _faulty(wanted, error.problems))
        wanted = [one for one in wanted if one.key not in faulty]
    return replace(alone, left_out=left_out)


def without_switched_off(entries: Sequence[Entry], alone: Loaded) -> Iterator[Entry]:
    """Yield the entries; targets that are entries which are switched off are removed.

    An entry that adds to what the file names is no target.
    """
    off = {one.key for one in entries if not one.enabled and filed_index(one, alone) is None}
    for entry in entries:
        label = _TARGETS.get(entry.section, "")
        targets = entry.body.get(label)
        if not isinstance(targets, list):
            yield entry
            continue
        kept = [each for each in targets if _target(each) not in off]
        yield replace(entry, body={**entry.body, label: kept})


def _lost(before: Entry, after: Entry) -> bool:
    """Return true if an entry had targets, and has none any more."""
    label = _TARGETS.get(before.section, "")
    return bool(before.body.get(label)) and not after.body.get(label)


def _target(target: object) -> EntryKey | None:
    """Return the key of the provider that a target names, or of a model of our own."""
    if not isinstance(target, Mapping):
        return None
    provider = target.get("provider")
    if provider is None:
        return "models", str(target.get("model"))
    return "providers", str(provider)


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
    if bracket and section in map(".".join, PATHS.values()):
        return rest.partition("]")[2].lstrip(".")
    return key
