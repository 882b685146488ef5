"""Operators' actions on the service itself: entries of the configuration, providers and alerts,
with their authorization and their audit entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.audit import CONFIGURATION, AuditEntry, difference, entry
from causerie.hosted.accounts.audit import entry as audited
from causerie.hosted.accounts.authorization import Clock, no_such, require
from causerie.hosted.accounts.people import Action, Actor
from causerie.hosted.accounts.ports import CHANGED, AccountStore, EntryDraft, StoredEntry, Taken


_MOST_VALUES = 20
_PRICES = ("price", "cost")


@dataclass(frozen=True, slots=True)
class EntryChange:
    """A change of an entry; without ``before`` it is new, without ``after`` it is deleted."""

    before: StoredEntry | None
    after: StoredEntry | None


class Entries:
    """Entries, read by the service and changed by operators.

    A change is written in one transaction with its audit entry and word of it to every process.
    """

    def __init__(self, store: AccountStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def every(self) -> Sequence[StoredEntry]:
        """All entries, oldest first, with their credentials: for the service itself."""
        async with self._store.reading() as repositories:
            return await repositories.entries.every()

    async def look(self, actor: Actor) -> None:
        """Before entries are shown; raises :class:`Forbidden`."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.PROVIDERS_SEE)

    async def may_change(self, actor: Actor) -> None:
        """Before a change is checked; raises :class:`Forbidden`."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.CONFIGURATION_CHANGE)

    def drafted(self, actor: Actor, draft: EntryDraft) -> StoredEntry:
        now, who = self._clock(), actor.label
        return StoredEntry(
            id=f"cfg_{uuid4().hex}",
            kind=draft.kind,
            name=draft.name,
            body=draft.body,
            enabled=draft.enabled,
            version=1,
            created_at=now,
            created_by=who,
            updated_at=now,
            updated_by=who,
            credential=draft.credential or None,
        )

    def changed(self, actor: Actor, before: StoredEntry, draft: EntryDraft) -> StoredEntry:
        """Return the entry as it would be kept after a change."""
        return replace(
            before,
            name=draft.name,
            body=draft.body,
            enabled=draft.enabled,
            version=before.version + 1,
            updated_at=self._clock(),
            updated_by=actor.label,
            credential=before.credential if draft.credential is None else draft.credential or None,
            unreadable=before.unreadable and draft.credential is None,
        )

    async def add(self, actor: Actor, made: StoredEntry) -> None:
        """Keep a new entry; raises :class:`InvalidRequest` where its name is taken."""
        await self.write(actor, [EntryChange(None, made)])

    async def change(self, actor: Actor, before: StoredEntry, after: StoredEntry) -> None:
        """Keep what an entry is now; raises :class:`InvalidRequest` if it has changed meanwhile."""
        await self.write(actor, [EntryChange(before, after)])

    async def remove(self, actor: Actor, gone: StoredEntry) -> None:
        """Forget an entry, with its credential; raises :class:`NotFound`."""
        await self.write(actor, [EntryChange(gone, None)])

    async def write(self, actor: Actor, changes: Sequence[EntryChange]) -> None:
        """Make several changes: all of them, or none.

        A few statements are enough for any number of changes, so that other writers do not wait
        long. What is deleted goes first, because its name may be taken over.
        """
        now = self._clock()
        noted = [_noted(now, actor, each) for each in changes]
        gone = [each.before for each in changes if each.after is None and each.before is not None]
        after = [each.after for each in changes if each.after is not None]
        made = [each.after for each in changes if each.before is None and each.after is not None]
        new = {each.id for each in made}
        async with self._store.writing() as repositories:
            await require(repositories, actor, Action.CONFIGURATION_CHANGE)
            for each in gone:
                if not await repositories.entries.remove(each.id):
                    raise no_such("entry")
            if not await repositories.entries.change([one for one in after if one.id not in new]):
                raise meanwhile()
            try:
                await repositories.entries.add(made)
            except Taken as failure:
                raise _taken(made) from failure
            await repositories.audit.add_all(noted)
            await repositories.keys.announce(CHANGED, now)

    async def note_test(self, actor: Actor, base_url: str, outcome: str) -> None:
        """Write down that a provider was tried."""
        async with self._store.writing() as repositories:
            await require(repositories, actor, Action.CONFIGURATION_CHANGE)
            noted = audited(self._clock(), actor, "provider.test", base_url[:200], outcome=outcome)
            await repositories.audit.add(noted)


def _noted(now: datetime, actor: Actor, change: EntryChange) -> AuditEntry:
    before, after = change.before, change.after
    if after is None:
        gone = "" if before is None else before.label
        return audited(now, actor, f"{CONFIGURATION}delete", gone)
    done, told = "create", {"what": _told(before, after)}
    if before is not None:
        done = _switched(before, after) or "change"
        told |= _numbers(before.body, after.body)
    return replace(audited(now, actor, f"{CONFIGURATION}{done}", after.label), details=told)


def _taken(made: Sequence[StoredEntry]) -> InvalidRequest:
    words = "There is an entry of one of these names already; read them again."
    if len(made) == 1:
        words = f"There is an entry of {made[0].kind} {made[0].name} already."
    return InvalidRequest(words, code="taken", status=409)


def meanwhile() -> InvalidRequest:
    """Return the error for a change of something that has changed since it was read."""
    words = "It has been changed meanwhile; read it again."
    return InvalidRequest(words, code="changed_meanwhile", status=409)


def _switched(before: StoredEntry, after: StoredEntry) -> str:
    if before.enabled == after.enabled or before.body != after.body:
        return ""
    return "enable" if after.enabled else "disable"


def _told(before: StoredEntry | None, after: StoredEntry) -> str:
    return ", ".join(changed_settings(before, after))[:500] or "none"


def _numbers(was: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    before, after = _leaves(was), _leaves(now)
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {
        name: difference(before.get(name, "default"), after.get(name, "default"))
        for name in changed[:_MOST_VALUES]
    }


def _leaves(body: Mapping[str, Any], under: str = "", *, money: bool = False) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in body.items():
        path = under + name
        if isinstance(value, bool):
            found[path] = "yes" if value else "no"
        elif isinstance(value, int | float) or (money and isinstance(value, str)):
            found[path] = str(value)
        else:
            for key, part in _parts(value):
                found |= _leaves(part, f"{path}{key}.", money=name in _PRICES)
    return found


def _parts(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        yield "", value
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for number, each in enumerate(value, 1):
            if isinstance(each, Mapping):
                yield f".{each.get('provider') or each.get('id') or number}", each


def changed_settings(before: StoredEntry | None, after: StoredEntry) -> Sequence[str]:
    """Return the names of the settings that a change touches, never their values."""
    was = before.body if before is not None else {}
    names = {name for name in {*was, *after.body} if was.get(name) != after.body.get(name)}
    if after.credential != (before.credential if before is not None else None):
        names.add("key")
    return sorted(names)


class Operating:
    """Rights over providers and alerts, which are in no account."""

    def __init__(self, store: AccountStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def look(self, actor: Actor) -> None:
        """Before providers are shown; raises :class:`Forbidden`."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.PROVIDERS_SEE)

    async def probe(self, actor: Actor) -> None:
        """Before a provider is probed, or what was found is used; raises :class:`Forbidden`."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.PROVIDERS_PROBE)

    async def note(self, actor: Actor, action: str, provider: str, **details: str) -> None:
        """Write down what was done with a provider; raises :class:`Forbidden`."""
        async with self._store.writing() as repositories:
            await require(repositories, actor, Action.PROVIDERS_PROBE)
            await repositories.audit.add(entry(self._clock(), actor, action, provider, **details))

    async def see_alerts(self, actor: Actor) -> None:
        """Before alerts are shown; raises :class:`Forbidden`."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.SERVICE_SEE)

    async def may_test_alerts(self, actor: Actor) -> None:
        """Before a test is sent by a channel; raises :class:`Forbidden`."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.ALERTS_TEST)

    async def note_alert_test(self, actor: Actor, channel: str, *, delivered: bool) -> None:
        """Write down that a test was sent by a channel; raises :class:`Forbidden`."""
        outcome = "delivered" if delivered else "failed"
        noted = entry(self._clock(), actor, "alerts.test", channel, outcome=outcome)
        async with self._store.writing() as repositories:
            await require(repositories, actor, Action.ALERTS_TEST)
            await repositories.audit.add(noted)
