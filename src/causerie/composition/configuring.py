"""The configuration of a running service, as operators change it: checked, written, in force.

Entries of a file are imported into the database by the same checks: planned, checked as a whole,
written at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
from msgspec import Struct

from causerie.composition.entries import (
    entry_of,
    in_force,
    known,
    merged_with,
    moved,
    new_problems,
    reasons,
)
from causerie.composition.providers import close, connected
from causerie.composition.reloading import Reloading, ReloadOutcome
from causerie.composition.service import RunningService
from causerie.errors import InvalidRequest, NotFound, Overloaded
from causerie.hosted.accounts.operating import Entries, EntryChange, changed_settings, meanwhile
from causerie.hosted.accounts.people import SYSTEM, Action, Actor
from causerie.hosted.accounts.records import EntryDraft, EntryKind, StoredEntry
from causerie.hosted.operations.configuring import (
    EntryStep,
    EntryView,
    EntryWish,
    TestProvider,
    Trial,
    list_models,
    trial,
)
from causerie.observe.alerts import secret_bytes
from causerie.protocol.alike import alike
from causerie.settings.credentials import Credentials, one_word, secret_value
from causerie.settings.decode import fields
from causerie.settings.entries import (
    TABLES,
    Entry,
    ReadWith,
    filed_index,
    merged,
    pop_name,
    refusals,
    tables_of,
)
from causerie.settings.load import Loaded
from causerie.settings.problems import Findings, Problem, SettingsError
from causerie.settings.provider import ProviderSettings, TimeoutSettings
from causerie.settings.tree import ServerSettings, Settings
from causerie.settings.values import Secret


class ImportStep(Struct, frozen=True):
    """Effect of the import on one entry; ``what`` names its changes, or who has it locked."""

    action: Literal["new", "changed", "same", "locked", "deleted"]
    entry: Entry
    what: str = ""
    change: EntryChange | None = None


class EntryImport(Struct):
    """Import of file entries into a database; ``_environ`` may hold their keys."""

    _entries: Entries
    _file_settings: Loaded
    _read: ReadWith
    _environ: Mapping[str, str]

    async def plan(self, filed: Sequence[Entry], *, prune: bool = False) -> Sequence[ImportStep]:
        """Return a step for each entry; with ``prune`` also for those that are in no file.

        Raises :class:`SettingsError` with every problem.
        """
        stored = await self._entries.every()
        by_key = {entry_of(each).key: each for each in known(stored)}
        findings, steps = Findings(), list[ImportStep]()
        for entry in filed:
            with findings.collecting():
                steps.append(self._import_step(entry, by_key.get(entry.key), len(steps)))
        if prune:
            named = {entry.key for entry in filed}
            left = [each for key, each in by_key.items() if key not in named]
            steps += [
                ImportStep("deleted", entry_of(each), "", EntryChange(each, None)) for each in left
            ]
        findings.problems += self._import_problems(stored, steps)
        findings.end()
        return steps

    async def carry_out(self, steps: Sequence[ImportStep]) -> None:
        """Write all of it, or nothing if an entry has changed since."""
        await self._entries.write(SYSTEM, [each.change for each in steps if each.change])

    def _import_step(self, entry: Entry, before: StoredEntry | None, index: int) -> ImportStep:
        taken = filed_index(entry, self._file_settings) is not None
        if taken and (locked := refusals(entry, self._file_settings)):
            return ImportStep("locked", entry, "; ".join(locked))
        credential = self._imported_credential(entry, before)
        draft = EntryDraft(entry.kind, entry.name, entry.body, credential)
        if before is None:
            made = self._entries.drafted(SYSTEM, draft)
            moment = made.created_at + timedelta(microseconds=index)  # the file's order stays
            change = EntryChange(None, replace(made, created_at=moment))
            return ImportStep("new", entry, "", change)
        after = self._entries.changed(SYSTEM, before, draft)
        what = [*([] if before.enabled else ["switched on"]), *changed_settings(before, after)]
        if not what:
            return ImportStep("same", entry)
        return ImportStep("changed", entry, ", ".join(what), EntryChange(before, after))

    def _imported_credential(self, entry: Entry, before: StoredEntry | None) -> str | None:
        # None: the stored key stays.
        label = entry.table.key
        if entry.secret is None:
            if label == "secret" and entry.body.get("format", "standard") == "standard":
                advice = "is missing; receivers check signatures by it"
                raise SettingsError([Problem(entry.place, label, advice)])
            return ""
        try:
            value = secret_value(entry.secret, self._environ)
            if label == "secret":
                secret_bytes(value)
            return value
        except ValueError as error:
            kept = before is not None and (before.credential is not None or before.unreadable)
            if before is not None and kept and not moved(before.body, entry.body):
                return None
            advice = f"{error}; the import needs it"
            if kept:
                advice += ", for the provider is reached at another place now"
            raise SettingsError([Problem(entry.place, label, advice)]) from error

    def _import_problems(
        self, stored: Sequence[StoredEntry], steps: Sequence[ImportStep]
    ) -> Sequence[Problem]:
        text = self._file_settings.text
        changing = [each for each in steps if each.change is not None]
        touched = {each.entry.key: each.entry for each in changing if each.action != "deleted"}
        after = known(_entries_after(stored, [each.change for each in changing if each.change]))
        wanted = [
            touched.get(entry.key, entry)
            for entry, unreadable in ((entry_of(each), each.unreadable) for each in after)
            if entry.key in touched or not unreadable
        ]
        now = merged_with(self._read, stored, text)
        found = new_problems(wanted, merged(self._read, wanted, text), now, touched)
        return [Problem(entry.origin, "", reason) for entry, reason in found]


_BY_ENTRY = "the entry of "
_NOT_SHOWN = ("keys", "options")
_MAX_TRIALS = 4
_TRIAL = TimeoutSettings(connect=5.0, first_token=20.0, between_chunks=20.0, total=30.0)


@dataclass(eq=False)
class LiveConfiguration:
    """Implements :class:`Configuring` for one service; one change is made after the other."""

    _running: RunningService
    _reloading: Reloading
    _entries: Entries
    _change_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _running_trials: int = 0

    async def every(self, actor: Actor) -> Sequence[EntryView]:
        """Return providers first; of each kind those of the file first. Unknown kinds are last."""
        await self._entries.require(actor, Action.PROVIDERS_SEE)
        loaded, stored = self._reloading.loaded, await self._entries.every()
        order = {kind: number for number, kind in enumerate(TABLES)}
        found = [*_file_entries(loaded), *(_entry_view(each, loaded) for each in stored)]
        return sorted(found, key=lambda each: order.get(each.kind, len(order)))

    async def see(self, actor: Actor, id: str) -> EntryView:
        await self._entries.require(actor, Action.PROVIDERS_SEE)
        return _entry_view(_entry_by_id(await self._entries.every(), id), self._reloading.loaded)

    async def create(self, actor: Actor, kind: EntryKind, wish: EntryWish) -> EntryView:
        async with self._locked_entries(actor) as stored:
            change = EntryChange(None, self._wished_entry(actor, None, kind, wish))
            return await self._store_entry(actor, stored, change)

    async def change(self, actor: Actor, id: str, wish: EntryWish) -> EntryView:
        async with self._locked_entries(actor) as stored:
            before = _entry_by_id(stored, id)
            after = self._wished_entry(actor, before, before.kind, wish)
            return await self._store_entry(actor, stored, EntryChange(before, after))

    async def switch(self, actor: Actor, id: str, *, enabled: bool) -> EntryView:
        async with self._locked_entries(actor) as stored:
            before = _check_known(_entry_by_id(stored, id))
            draft = EntryDraft(before.kind, before.name, before.body, enabled=enabled)
            after = self._entries.changed(actor, before, draft)
            return await self._store_entry(actor, stored, EntryChange(before, after))

    async def delete(self, actor: Actor, id: str) -> None:
        async with self._locked_entries(actor) as stored:
            await self._apply_changes(actor, stored, [EntryChange(_entry_by_id(stored, id), None)])

    async def apply(self, actor: Actor, steps: Sequence[EntryStep]) -> None:
        async with self._locked_entries(actor) as stored:
            changes = []
            for step in steps:
                before, after = _entry_by_id(stored, step.id) if step.id else None, None
                if step.wish is not None:
                    after = self._wished_entry(actor, before, step.kind, step.wish)
                changes.append(EntryChange(before, after))
            await self._apply_changes(actor, stored, changes)

    @asynccontextmanager
    async def _locked_entries(self, actor: Actor) -> AsyncIterator[Sequence[StoredEntry]]:
        await self._entries.require(actor, Action.CONFIGURATION_CHANGE)
        async with self._change_lock:
            yield await self._entries.every()

    async def _apply_changes(
        self, actor: Actor, stored: Sequence[StoredEntry], changes: Sequence[EntryChange]
    ) -> None:
        outcome = await self._write_changes(actor, stored, changes)
        if not outcome.applied:
            raise _invalid_configuration(outcome.problems)

    async def _store_entry(
        self, actor: Actor, stored: Sequence[StoredEntry], change: EntryChange
    ) -> EntryView:
        assert change.after is not None
        outcome = await self._write_changes(actor, stored, [change])
        view = _entry_view(change.after, self._reloading.loaded)
        if outcome.applied:
            return view
        return msgspec.structs.replace(view, in_force=False, problems=outcome.problems)

    async def _write_changes(
        self, actor: Actor, stored: Sequence[StoredEntry], changes: Sequence[EntryChange]
    ) -> ReloadOutcome:
        touched = [each.after for each in changes if each.after is not None]
        await self._check_stored(_entries_after(stored, changes), *touched)
        await self._entries.write(actor, changes)
        return await self._reloading.reload()

    def _wished_entry(
        self, actor: Actor, before: StoredEntry | None, kind: EntryKind, wish: EntryWish
    ) -> StoredEntry:
        if before is None:
            after = self._entries.drafted(actor, _entry_draft(kind, wish))
        else:
            _check_known(before)
            if wish.version not in (None, before.version):
                raise meanwhile()
            after = self._entries.changed(actor, before, _entry_draft(before.kind, wish))
            # A stored key is never sent to somebody else than it was given for.
            keeps = wish.key is None and before.credential is not None
            if keeps and moved(before.body, after.body):
                words = "Where the provider is reached has changed, so give its key anew."
                raise InvalidRequest(words, param="key")
        # A webhook whose secret cannot be read now is left out until it is given anew.
        signs = after.kind == "webhook" and after.body.get("format", "standard") == "standard"
        if signs and after.credential is None and not after.unreadable:
            words = "A webhook needs a secret to sign with; give it as `key`."
            raise InvalidRequest(words, param="key")
        return after

    async def listed(self, actor: Actor, provider: str) -> Trial:
        await self._entries.require(actor, Action.CONFIGURATION_CHANGE)
        found = self._running.now.providers.get(provider)
        if found is None:
            raise NotFound("No provider of this name is in force.", code="not_found")
        return await list_models(found.provider, found.key or "")

    async def test(self, actor: Actor, wanted: TestProvider) -> Trial:
        await self._entries.require(actor, Action.CONFIGURATION_CHANGE)
        if self._running_trials >= _MAX_TRIALS:
            raise Overloaded("Other providers are being tried; try again in a moment.")
        self._running_trials += 1
        try:
            tried = self._filed_provider(wanted.filed) if wanted.filed else None
            one, credentials = tried or await self._entry_on_trial(wanted)
            server = self._running.now.settings.server
            outcome = await _connect_and_try(one, server, credentials, wanted.model)
        finally:
            self._running_trials -= 1
        steps = (outcome.listing, outcome.completion, outcome.stream)
        good = all(step is not None and step.ok for step in steps)
        await self._entries.record(
            *(actor, Action.CONFIGURATION_CHANGE, "provider.test", one.base_url[:200]),
            outcome="good" if good else "bad",
        )
        return outcome

    def _filed_provider(self, name: str) -> tuple[ProviderSettings, Credentials]:
        now = self._running.now
        one = next((each for each in now.settings.providers if each.name == name), None)
        if one is None:
            raise NotFound("No provider of this name is in force.", code="not_found")
        keys = {name: now.providers[name].key or ""}
        return one, replace(now.credentials, keys=keys)

    async def _entry_on_trial(self, wanted: TestProvider) -> tuple[ProviderSettings, Credentials]:
        stored, name = await self._entries.every(), f"trial-{uuid4().hex}"
        if wanted.entry:
            tried = replace(_entry_by_id(stored, wanted.entry), id="", name=name, enabled=True)
        else:
            wish = EntryWish(settings={**wanted.settings, "name": name}, key=wanted.key)
            tried = self._entries.drafted(SYSTEM, _entry_draft("provider", wish))
        try:
            loaded = await self._check_stored([*stored, tried], tried)
        except InvalidRequest as failure:
            problems = failure.metadata.get("problems")
            if not isinstance(problems, list):
                raise
            typed = str(wanted.settings.get("name", ""))
            named = [problem.replace(name, typed) for problem in problems]
            raise _invalid_configuration(named) from failure
        [one] = [each for each in loaded.settings.providers if each.name == name]
        return one, Credentials(keys={name: tried.credential or ""})

    async def _check_stored(self, stored: Sequence[StoredEntry], *touched: StoredEntry) -> Loaded:
        # What was broken before may stay so, other than what is `touched`.
        try:
            loaded = await asyncio.to_thread(self._reloading.read, stored)
        except SettingsError as error:
            raise _invalid_configuration([str(problem) for problem in error.problems]) from error
        entries = [entry_of(each) for each in known(stored)]
        keys = {entry_of(each).key for each in touched}
        if found := new_problems(entries, loaded, self._reloading.loaded, keys):
            raise _invalid_configuration([f"{entry.origin}: {reason}" for entry, reason in found])
        return loaded


async def _connect_and_try(
    one: ProviderSettings, server: ServerSettings, credentials: Credentials, model: str
) -> Trial:
    brief = msgspec.structs.replace(one, timeouts=_TRIAL)
    reachable = ServerSettings(private_networks=server.private_networks)
    made = connected(Settings(providers=(brief,), server=reachable), credentials, {})
    try:
        return await trial(made[one.name].provider, credentials.keys.get(one.name, ""), model)
    finally:
        await close(list(made.values()))


def _entry_draft(kind: EntryKind, wish: EntryWish) -> EntryDraft:
    body, table = dict(wish.settings), TABLES[kind]
    if (name := pop_name(kind, body)) is None:
        raise InvalidRequest(f"`settings` lacks `{table.name}`.", param="settings")
    label = table.key
    if label and label in body:
        words = f"`settings` holds `{label}`; give it itself as `key` next to them."
        raise InvalidRequest(words, param="settings")
    key = wish.key
    if key and not label:
        raise InvalidRequest("Only a provider and a webhook have a key here.", param="key")
    if key:
        try:
            key = one_word(key, "it holds")
            if kind == "webhook":
                secret_bytes(key)
        except ValueError as error:
            raise InvalidRequest(f"`key` cannot be used: {error}.", param="key") from error
    return EntryDraft(kind, name, body, key, wish.enabled)


def _entries_after(
    stored: Sequence[StoredEntry], changes: Sequence[EntryChange]
) -> Sequence[StoredEntry]:
    after = {each.before.id: each.after for each in changes if each.before is not None}
    kept = [one for each in stored if (one := after.get(each.id, each)) is not None]
    return [*kept, *(each.after for each in changes if each.before is None and each.after)]


def _entry_by_id(stored: Sequence[StoredEntry], id: str) -> StoredEntry:
    for each in stored:
        if each.id == id:
            return each
    raise NotFound("There is no such entry in the database.", code="not_found")


def _check_known(stored: StoredEntry) -> StoredEntry:
    if stored.kind not in TABLES:
        words = f"This version does not know entries of the kind {stored.kind!r}."
        raise InvalidRequest(f"{words} Change it with the version that made it.", status=409)
    return stored


def _invalid_configuration(problems: Sequence[str]) -> InvalidRequest:
    words = "The configuration would not hold: " + "; ".join(problems)
    metadata = {"problems": list(problems)}
    return InvalidRequest(words, code="invalid_configuration", metadata=metadata)


def _entry_view(stored: StoredEntry, loaded: Loaded) -> EntryView:
    label = TABLES[stored.kind].name if stored.kind in TABLES else "name"
    return alike(
        EntryView,
        stored,
        origin="database",
        locked=False,
        in_force=in_force(stored, loaded),
        problems=reasons(stored, loaded),
        settings={label: stored.name, **stored.body},
        has_key=stored.credential is not None or stored.unreadable,
    )


def _file_entries(loaded: Loaded) -> Iterator[EntryView]:
    for kind, table in TABLES.items():
        path = table.path
        for index, one in enumerate(tables_of(loaded.settings, kind)):
            where = loaded.where((*path, index))
            if where.startswith(_BY_ENTRY):
                continue
            said = {
                name: value
                for name, value in _shown_values(one).items()
                if not loaded.where((*path, index, name)).startswith(_BY_ENTRY)
            }
            has_key = said.pop(table.key, None) is not None
            if kind == "webhook":  # the path of an address can hold a secret
                parts = urlsplit(said["url"])
                said["url"] = f"{parts.scheme}://{parts.netloc}"
            yield EntryView(
                id="",
                kind=kind,
                name=said[table.name],
                origin="file",
                locked=True,
                where=where,
                enabled=True,
                in_force=True,
                settings=said,
                has_key=has_key,
            )


def _shown_values(value: Any) -> Any:
    if isinstance(value, Secret):
        return {}  # its place is for those who see the file
    if isinstance(value, msgspec.Struct):
        return {
            field.name: _shown_values(getattr(value, field.name))
            for field in fields(type(value)).values()
            if (field.required or getattr(value, field.name) != field.default)
            and not (field.name in _NOT_SHOWN and not isinstance(getattr(value, field.name), str))
        }
    return [_shown_values(each) for each in value] if isinstance(value, tuple) else value
