"""Entries of a file, taken over into the database: planned, checked as a whole, written at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Literal

from msgspec import Struct

from causerie.composition.entries import KINDS, entry_of, known, merged_with, moved, new_problems
from causerie.hosted.accounts.operating import Entries, EntryChange, changed_settings
from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.accounts.records import EntryDraft, StoredEntry
from causerie.observe.alerts import secret_bytes
from causerie.settings.credentials import secret_value
from causerie.settings.entries import KEYS, Entry, ReadWith, filed_index, merged, refusals
from causerie.settings.load import FiledEntry, Loaded
from causerie.settings.problems import Findings, Problem, SettingsError


class ImportStep(Struct, frozen=True):
    """Effect of the import on one entry; ``what`` names its changes, or who has it locked."""

    action: Literal["new", "changed", "same", "locked", "deleted"]
    entry: Entry
    what: str = ""
    before: StoredEntry | None = None
    after: StoredEntry | None = None

    @property
    def changes(self) -> bool:
        return self.before is not None or self.after is not None


class EntryImport(Struct):
    """Import of file entries into a database; ``_environ`` may hold their keys."""

    _entries: Entries
    _alone: Loaded
    _read: ReadWith
    _environ: Mapping[str, str]

    async def plan(
        self, filed: Sequence[FiledEntry], *, prune: bool = False
    ) -> Sequence[ImportStep]:
        """Return a step for each entry; with ``prune`` also for those that are in no file.

        Raises :class:`SettingsError` with every problem.
        """
        stored = await self._entries.every()
        by_key = {entry_of(each).key: each for each in known(stored)}
        findings, steps = Findings(), list[ImportStep]()
        for one in filed:
            with findings.collecting():
                steps.append(self._step(one, by_key.get(one.entry.key), len(steps)))
        if prune:
            named = {one.entry.key for one in filed}
            left = [each for key, each in by_key.items() if key not in named]
            steps += [ImportStep("deleted", entry_of(each), "", each) for each in left]
        findings.problems += self._problems(stored, steps)
        findings.end()
        return steps

    async def carry_out(self, steps: Sequence[ImportStep]) -> None:
        """Write all of it, or nothing if an entry has changed since."""
        written = [EntryChange(each.before, each.after) for each in steps if each.changes]
        await self._entries.write(SYSTEM, written)

    def _step(self, filed: FiledEntry, before: StoredEntry | None, index: int) -> ImportStep:
        entry = filed.entry
        taken = filed_index(entry, self._alone) is not None
        if taken and (locked := refusals(entry, self._alone)):
            return ImportStep("locked", entry, "; ".join(locked))
        credential = self._credential(filed, before)
        draft = EntryDraft(KINDS[entry.section], entry.name, entry.body, credential)
        if before is None:
            made = self._entries.drafted(SYSTEM, draft)
            moment = made.created_at + timedelta(microseconds=index)  # the file's order stays
            return ImportStep("new", entry, "", None, replace(made, created_at=moment))
        after = self._entries.changed(SYSTEM, before, draft)
        what = [*([] if before.enabled else ["switched on"]), *changed_settings(before, after)]
        if not what:
            return ImportStep("same", entry)
        return ImportStep("changed", entry, ", ".join(what), before, after)

    def _credential(self, filed: FiledEntry, before: StoredEntry | None) -> str | None:
        # None: the stored key stays.
        label = KEYS.get(filed.entry.section, "")
        if filed.key is None:
            if label == "secret" and filed.entry.body.get("format", "standard") == "standard":
                advice = "is missing; receivers check signatures by it"
                raise SettingsError([Problem(filed.entry.place, label, advice)])
            return ""
        try:
            value = secret_value(filed.key, self._environ)
            if label == "secret":
                secret_bytes(value)
            return value
        except ValueError as error:
            kept = before is not None and (before.credential is not None or before.unreadable)
            if before is not None and kept and not moved(before.body, filed.entry.body):
                return None
            advice = f"{error}; the import needs it"
            if kept:
                advice += ", for the provider is reached at another place now"
            raise SettingsError([Problem(filed.entry.place, label, advice)]) from error

    def _problems(
        self, stored: Sequence[StoredEntry], steps: Sequence[ImportStep]
    ) -> Sequence[Problem]:
        text = self._alone.text
        now = merged_with(self._read, stored, text)
        touched = {each.entry.key: each for each in steps if each.after is not None}
        gone = {each.entry.key for each in steps if each.action == "deleted"}
        entries = [entry_of(each) for each in known(stored) if not each.unreadable]
        others = [each for each in entries if each.key not in gone]
        names = {one.key for one in others}
        wanted = [touched[one.key].entry if one.key in touched else one for one in others]
        wanted += [each.entry for key, each in touched.items() if key not in names]
        found = new_problems(wanted, merged(self._read, wanted, text), now, touched)
        return [Problem(entry.origin, "", reason) for entry, reason in found]
