"""Entries of the configuration, and what the audit log says of their changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.authorization import AccountService, conflict, no_such
from causerie.hosted.accounts.people import Action, Actor
from causerie.hosted.accounts.records import (
    CHANGED,
    CONFIGURATION,
    AuditEntry,
    EntryDraft,
    StoredEntry,
    Taken,
    difference,
    entry,
)
from causerie.protocol.alike import alike


@dataclass(frozen=True, slots=True)
class EntryChange:
    """A change of an entry; without ``before`` it is new, without ``after`` it is deleted."""

    before: StoredEntry | None
    after: StoredEntry | None


class Entries(AccountService):
    """Entries of the configuration, read by the service and changed by operators."""

    async def every(self) -> Sequence[StoredEntry]:
        """Return all entries with their credentials, oldest first, for the service itself."""
        async with self._store.reading() as tx:
            return await tx.entries.every()

    def drafted(self, actor: Actor, draft: EntryDraft) -> StoredEntry:
        now, who = self._clock(), actor.label
        return alike(
            StoredEntry,
            draft,
            id=f"cfg_{uuid4().hex}",
            version=1,
            **{"created_at": now, "created_by": who, "updated_at": now, "updated_by": who},
            credential=draft.credential or None,
        )

    def changed(self, actor: Actor, before: StoredEntry, draft: EntryDraft) -> StoredEntry:
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

    async def write(self, actor: Actor, changes: Sequence[EntryChange]) -> None:
        """Write all changes with their audit entries, or none, and announce them to all processes.

        Raises :class:`InvalidRequest` if a name is taken or an entry has changed since it was
        read, and :class:`NotFound` for a missing one. A few statements write any number of changes,
        so that other writers do not wait long. Deletions go first, because their names become free.
        """
        gone = [each.before for each in changes if each.before and not each.after]
        kept = [each.after for each in changes if each.before and each.after]
        made = [each.after for each in changes if each.after and not each.before]
        async with self._begin_write(actor, Action.CONFIGURATION_CHANGE) as tx:
            for each in gone:
                if not await tx.entries.remove(each.id):
                    raise no_such("entry")
            if not await tx.entries.change(kept):
                raise meanwhile()
            try:
                await tx.entries.add(made)
            except Taken as failure:
                words = "There is an entry of one of these names already; read them again."
                if len(made) == 1:
                    words = f"There is an entry of {made[0].kind} {made[0].name} already."
                raise conflict("taken", words) from failure
            await tx.audit.add(*(_build_audit_entry(tx.now, actor, each) for each in changes))
            await tx.keys.announce(CHANGED)


def _build_audit_entry(now: datetime, actor: Actor, entry_change: EntryChange) -> AuditEntry:
    before, after = entry_change.before, entry_change.after
    if after is None:
        gone = "" if before is None else before.label
        return entry(now, actor, f"{CONFIGURATION}delete", gone)
    verb, details = "create", {"what": ", ".join(changed_settings(before, after))[:500] or "none"}
    if before is not None:
        verb = "change"
        if before.enabled != after.enabled and before.body == after.body:
            verb = "enable" if after.enabled else "disable"
        details |= _diff_numbers_and_flags(before.body, after.body)
    return replace(entry(now, actor, f"{CONFIGURATION}{verb}", after.label), details=details)


def meanwhile() -> InvalidRequest:
    """Return the error for a change to an entry that others have changed since it was read."""
    return conflict("changed_meanwhile", "It has been changed meanwhile; read it again.")


def _diff_numbers_and_flags(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    # Only numbers and switches: other values may be secret, in a header or an address.
    before, after = _flatten_numbers_and_flags(old), _flatten_numbers_and_flags(new)
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {
        name: difference(before.get(name, "default"), after.get(name, "default"))
        for name in changed[:20]
    }


def _flatten_numbers_and_flags(
    body: Mapping[str, Any], prefix: str = "", *, money: bool = False
) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in body.items():
        path = prefix + name
        if isinstance(value, bool):
            found[path] = "yes" if value else "no"
        elif isinstance(value, int | float) or (money and isinstance(value, str)):
            found[path] = str(value)
        elif isinstance(value, Mapping):
            found |= _flatten_numbers_and_flags(value, f"{path}.", money=name in ("price", "cost"))
        elif isinstance(value, Sequence):
            for number, each in enumerate(value, 1):
                if isinstance(each, Mapping):
                    part = each.get("provider") or each.get("id") or number
                    found |= _flatten_numbers_and_flags(each, f"{path}.{part}.")
    return found


def changed_settings(before: StoredEntry | None, after: StoredEntry) -> Sequence[str]:
    """Return the names of the settings that a change touches, never their values."""
    was = before.body if before is not None else {}
    names = {name for name in {*was, *after.body} if was.get(name) != after.body.get(name)}
    if after.credential != (before.credential if before is not None else None):
        names.add("key")
    return sorted(names)
