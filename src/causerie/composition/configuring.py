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
    """Effect of an import on one entry; ``what`` names the changes, or why it is locked."""

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
        """Return a step for each entry of the file; ``prune`` adds deletions of all other entries.

        Raises :class:`SettingsError` with every problem.
        """
        stored = await self._entries.every()
        by_key = {entry_of(each).key: each for each in known(stored)}
        findings, steps = Findings(), list[ImportStep]()
        for entry in filed:
            with findings.collecting():
                steps.append(self._plan_import(entry, by_key.get(entry.key), len(steps)))
        if prune:
            named = {entry.key for entry in filed}
            left = [each for key, each in by_key.items() if key not in named]
            steps += [
                ImportStep("deleted", entry_of(each), "", EntryChange(each, None)) for each in left
            ]
        findings.problems += self._find_import_problems(stored, steps)
        findings.end()
        return steps

    async def carry_out(self, steps: Sequence[ImportStep]) -> None:
        """Write the changes of all steps, or nothing if an entry has changed since the plan."""
        await self._entries.write(SYSTEM, [each.change for each in steps if each.change])

    def _plan_import(self, entry: Entry, stored: StoredEntry | None, position: int) -> ImportStep:
        taken = filed_index(entry, self._file_settings) is not None
        if taken and (locked := refusals(entry, self._file_settings)):
            return ImportStep("locked", entry, "; ".join(locked))
        credential = self._read_credential(entry, stored)
        draft = EntryDraft(entry.kind, entry.name, entry.body, credential)
        if stored is None:
            made = self._entries.drafted(SYSTEM, draft)
            moment = made.created_at + timedelta(microseconds=position)  # the file's order stays
            change = EntryChange(None, replace(made, created_at=moment))
            return ImportStep("new", entry, "", change)
        after = self._entries.changed(SYSTEM, stored, draft)
        what = [*([] if stored.enabled else ["switched on"]), *changed_settings(stored, after)]
        if not what:
            return ImportStep("same", entry)
        return ImportStep("changed", entry, ", ".join(what), EntryChange(stored, after))

    def _read_credential(self, entry: Entry, stored: StoredEntry | None) -> str | None:
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
            kept = stored is not None and (stored.credential is not None or stored.unreadable)
            if stored is not None and kept and not moved(stored.body, entry.body):
                return None
            advice = f"{error}; the import needs it"
            if kept:
                advice += ", for the provider is reached at another place now"
            raise SettingsError([Problem(entry.place, label, advice)]) from error

    def _find_import_problems(
        self, entries: Sequence[StoredEntry], steps: Sequence[ImportStep]
    ) -> Sequence[Problem]:
        text = self._file_settings.text
        changing = [each for each in steps if each.change is not None]
        touched = {each.entry.key: each.entry for each in changing if each.action != "deleted"}
        after = known(_merge_changes(entries, [each.change for each in changing if each.change]))
        wanted = [
            touched.get(entry.key, entry)
            for entry, unreadable in ((entry_of(each), each.unreadable) for each in after)
            if entry.key in touched or not unreadable
        ]
        now = merged_with(self._read, entries, text)
        found = new_problems(wanted, merged(self._read, wanted, text), now, touched)
        return [Problem(entry.origin, "", reason) for entry, reason in found]


_BY_ENTRY = "the entry of "
_NOT_SHOWN = ("keys", "options")
_MAX_TRIALS = 4
_TRIAL = TimeoutSettings(connect=5.0, first_token=20.0, between_chunks=20.0, total=30.0)


@dataclass(eq=False)
class LiveConfiguration:
    """Implements :class:`Configuring` for one service; one change is made after the other."""

    _service: RunningService
    _reloader: Reloading
    _entries: Entries
    _change_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _running_provider_test_count: int = 0

    async def every(self, actor: Actor) -> Sequence[EntryView]:
        """Return all entries by kind, providers first; of each kind those of the file are first."""
        await self._entries.require(actor, Action.PROVIDERS_SEE)
        loaded, stored = self._reloader.loaded, await self._entries.every()
        order = {kind: number for number, kind in enumerate(TABLES)}
        found = [*_view_file_entries(loaded), *(_view_entry(each, loaded) for each in stored)]
        return sorted(found, key=lambda each: order.get(each.kind, len(order)))

    async def see(self, actor: Actor, id: str) -> EntryView:
        await self._entries.require(actor, Action.PROVIDERS_SEE)
        return _view_entry(_find_entry(await self._entries.every(), id), self._reloader.loaded)

    async def create(self, actor: Actor, kind: EntryKind, wish: EntryWish) -> EntryView:
        async with self._lock_entries(actor) as stored:
            change = EntryChange(None, self._build_entry(actor, None, kind, wish))
            return await self._apply_change_and_view(actor, stored, change)

    async def change(self, actor: Actor, id: str, wish: EntryWish) -> EntryView:
        async with self._lock_entries(actor) as stored:
            before = _find_entry(stored, id)
            after = self._build_entry(actor, before, before.kind, wish)
            return await self._apply_change_and_view(actor, stored, EntryChange(before, after))

    async def switch(self, actor: Actor, id: str, *, enabled: bool) -> EntryView:
        async with self._lock_entries(actor) as stored:
            before = _require_known_kind(_find_entry(stored, id))
            draft = EntryDraft(before.kind, before.name, before.body, enabled=enabled)
            after = self._entries.changed(actor, before, draft)
            return await self._apply_change_and_view(actor, stored, EntryChange(before, after))

    async def delete(self, actor: Actor, id: str) -> None:
        async with self._lock_entries(actor) as stored:
            await self._apply_changes(actor, stored, [EntryChange(_find_entry(stored, id), None)])

    async def apply(self, actor: Actor, steps: Sequence[EntryStep]) -> None:
        async with self._lock_entries(actor) as stored:
            changes = []
            for step in steps:
                before, after = _find_entry(stored, step.id) if step.id else None, None
                if step.wish is not None:
                    after = self._build_entry(actor, before, step.kind, step.wish)
                changes.append(EntryChange(before, after))
            await self._apply_changes(actor, stored, changes)

    @asynccontextmanager
    async def _lock_entries(self, actor: Actor) -> AsyncIterator[Sequence[StoredEntry]]:
        await self._entries.require(actor, Action.CONFIGURATION_CHANGE)
        async with self._change_lock:
            yield await self._entries.every()

    async def _apply_changes(
        self, actor: Actor, entries: Sequence[StoredEntry], changes: Sequence[EntryChange]
    ) -> None:
        outcome = await self._check_write_and_reload(actor, entries, changes)
        if not outcome.applied:
            raise _build_config_error(outcome.problems)

    async def _apply_change_and_view(
        self, actor: Actor, entries: Sequence[StoredEntry], change: EntryChange
    ) -> EntryView:
        assert change.after is not None
        outcome = await self._check_write_and_reload(actor, entries, [change])
        view = _view_entry(change.after, self._reloader.loaded)
        if outcome.applied:
            return view
        return msgspec.structs.replace(view, in_force=False, problems=outcome.problems)

    async def _check_write_and_reload(
        self, actor: Actor, entries: Sequence[StoredEntry], changes: Sequence[EntryChange]
    ) -> ReloadOutcome:
        touched = [each.after for each in changes if each.after is not None]
        await self._load_or_refuse(_merge_changes(entries, changes), *touched)
        await self._entries.write(actor, changes)
        return await self._reloader.reload()

    def _build_entry(
        self, actor: Actor, stored: StoredEntry | None, kind: EntryKind, wish: EntryWish
    ) -> StoredEntry:
        if stored is None:
            after = self._entries.drafted(actor, _build_entry_draft(kind, wish))
        else:
            _require_known_kind(stored)
            if wish.version not in (None, stored.version):
                raise meanwhile()
            after = self._entries.changed(actor, stored, _build_entry_draft(stored.kind, wish))
            # A stored key is never sent to somebody else than it was given for.
            keeps = wish.key is None and stored.credential is not None
            if keeps and moved(stored.body, after.body):
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
        found = self._service.now.providers.get(provider)
        if found is None:
            raise NotFound("No provider of this name is in force.", code="not_found")
        return await list_models(found.provider, found.key or "")

    async def test(self, actor: Actor, wanted: TestProvider) -> Trial:
        await self._entries.require(actor, Action.CONFIGURATION_CHANGE)
        if self._running_provider_test_count >= _MAX_TRIALS:
            raise Overloaded("Other providers are being tried; try again in a moment.")
        self._running_provider_test_count += 1
        try:
            tried = self._live_settings_and_keys(wanted.filed) if wanted.filed else None
            one, credentials = tried or await self._build_trial_settings_and_credentials(wanted)
            server = self._service.now.settings.server
            outcome = await _test_provider(one, server, credentials, wanted.model)
        finally:
            self._running_provider_test_count -= 1
        steps = (outcome.listing, outcome.completion, outcome.stream)
        good = all(step is not None and step.ok for step in steps)
        await self._entries.record(
            *(actor, Action.CONFIGURATION_CHANGE, "provider.test", one.base_url[:200]),
            outcome="good" if good else "bad",
        )
        return outcome

    def _live_settings_and_keys(self, provider_name: str) -> tuple[ProviderSettings, Credentials]:
        now = self._service.now
        one = next((each for each in now.settings.providers if each.name == provider_name), None)
        if one is None:
            raise NotFound("No provider of this name is in force.", code="not_found")
        keys = {provider_name: now.providers[provider_name].key or ""}
        return one, replace(now.credentials, keys=keys)

    async def _build_trial_settings_and_credentials(
        self, test: TestProvider
    ) -> tuple[ProviderSettings, Credentials]:
        stored, name = await self._entries.every(), f"trial-{uuid4().hex}"
        if test.entry:
            tried = replace(_find_entry(stored, test.entry), id="", name=name, enabled=True)
        else:
            wish = EntryWish(settings={**test.settings, "name": name}, key=test.key)
            tried = self._entries.drafted(SYSTEM, _build_entry_draft("provider", wish))
        try:
            loaded = await self._load_or_refuse([*stored, tried], tried)
        except InvalidRequest as failure:
            problems = failure.metadata.get("problems")
            if not isinstance(problems, list):
                raise
            typed = str(test.settings.get("name", ""))
            named = [problem.replace(name, typed) for problem in problems]
            raise _build_config_error(named) from failure
        [one] = [each for each in loaded.settings.providers if each.name == name]
        return one, Credentials(keys={name: tried.credential or ""})

    async def _load_or_refuse(self, stored: Sequence[StoredEntry], *touched: StoredEntry) -> Loaded:
        # What was broken before may stay so, other than what is `touched`.
        try:
            loaded = await asyncio.to_thread(self._reloader.read, stored)
        except SettingsError as error:
            raise _build_config_error([str(problem) for problem in error.problems]) from error
        entries = [entry_of(each) for each in known(stored)]
        keys = {entry_of(each).key for each in touched}
        if found := new_problems(entries, loaded, self._reloader.loaded, keys):
            raise _build_config_error([f"{entry.origin}: {reason}" for entry, reason in found])
        return loaded


async def _test_provider(
    provider: ProviderSettings, server: ServerSettings, credentials: Credentials, model_id: str
) -> Trial:
    brief = msgspec.structs.replace(provider, timeouts=_TRIAL)
    reachable = ServerSettings(private_networks=server.private_networks)
    [made] = connected(Settings(providers=(brief,), server=reachable), credentials, {}).values()
    try:
        return await trial(made.provider, credentials.keys.get(provider.name, ""), model_id)
    finally:
        await close([made])


def _build_entry_draft(kind: EntryKind, wish: EntryWish) -> EntryDraft:
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


def _merge_changes(
    entries: Sequence[StoredEntry], changes: Sequence[EntryChange]
) -> Sequence[StoredEntry]:
    after = {each.before.id: each.after for each in changes if each.before is not None}
    kept = [one for each in entries if (one := after.get(each.id, each)) is not None]
    return [*kept, *(each.after for each in changes if each.before is None and each.after)]


def _find_entry(entries: Sequence[StoredEntry], entry_id: str) -> StoredEntry:
    for each in entries:
        if each.id == entry_id:
            return each
    raise NotFound("There is no such entry in the database.", code="not_found")


def _require_known_kind(entry: StoredEntry) -> StoredEntry:
    if entry.kind not in TABLES:
        words = f"This version does not know entries of the kind {entry.kind!r}."
        raise InvalidRequest(f"{words} Change it with the version that made it.", status=409)
    return entry


def _build_config_error(problems: Sequence[str]) -> InvalidRequest:
    words = "The configuration would not hold: " + "; ".join(problems)
    metadata = {"problems": list(problems)}
    return InvalidRequest(words, code="invalid_configuration", metadata=metadata)


def _view_entry(entry: StoredEntry, loaded: Loaded) -> EntryView:
    label = TABLES[entry.kind].name if entry.kind in TABLES else "name"
    return alike(
        EntryView,
        entry,
        origin="database",
        locked=False,
        in_force=in_force(entry, loaded),
        problems=reasons(entry, loaded),
        settings={label: entry.name, **entry.body},
        has_key=entry.credential is not None or entry.unreadable,
    )


def _view_file_entries(loaded: Loaded) -> Iterator[EntryView]:
    for kind, table in TABLES.items():
        path = table.path
        for index, one in enumerate(tables_of(loaded.settings, kind)):
            where = loaded.where((*path, index))
            if where.startswith(_BY_ENTRY):
                continue
            said = {
                name: value
                for name, value in _without_secrets(one).items()
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


def _without_secrets(setting: Any) -> Any:
    if isinstance(setting, Secret):
        return {}  # its place is for those who see the file
    if isinstance(setting, msgspec.Struct):
        return {
            field.name: _without_secrets(getattr(setting, field.name))
            for field in fields(type(setting)).values()
            if (field.required or getattr(setting, field.name) != field.default)
            and not (field.name in _NOT_SHOWN and not isinstance(getattr(setting, field.name), str))
        }
    return [_without_secrets(each) for each in setting] if isinstance(setting, tuple) else setting
