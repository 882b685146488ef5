"""The configuration as a whole: what the file says, and the entries that operators have made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import structlog

from causerie.composition.validated import checked
from causerie.settings import Loaded, Problem, SettingsError
from causerie.settings.credentials import Credentials
from causerie.settings.entries import OFF, Entry, EntryKey, ReadWith, Section, merged

if TYPE_CHECKING:
    from causerie.accounts.entry import EntryKind, StoredEntry

log = structlog.get_logger(__name__)

SECTIONS: Mapping[EntryKind, Section] = MappingProxyType(
    {
        "provider": "providers",
        "alias": "aliases",
        "catalog_model": "catalog",
        "model": "models",
        "door": "doors",
        "webhook": "webhooks",
        "email": "emails",
    }
)

KINDS: Mapping[Section, EntryKind] = MappingProxyType({two: one for one, two in SECTIONS.items()})
_WHERE_SENT = ("base_url", "known", "proxy", "tls")  # what says to whom a key is sent
_UNKNOWN = "this version does not know entries of this kind; a newer one has made it"
_UNREADABLE = "its key was encrypted with a key that is not in `store.secret_keys`; give it anew"


def known(stored: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
    """Return the entries of kinds that this version knows; a newer one may have made others."""
    return [each for each in stored if each.kind in SECTIONS]


def warn_of_unknown(stored: Sequence[StoredEntry]) -> None:
    """Log each entry that is skipped because its kind is not known."""
    for each in stored:
        if each.kind not in SECTIONS:
            log.warning("entry of an unknown kind skipped", kind=each.kind, name=each.name)


def refuse_unreadable(stored: Sequence[StoredEntry]) -> None:
    """Raise :class:`SettingsError` if the key of an entry in use cannot be decrypted here."""
    problems = [
        Problem("the database", origin_of(each), _UNREADABLE)
        for each in stored
        if each.unreadable and each.enabled
    ]
    if problems:
        raise SettingsError(problems)


def entry_of(stored: StoredEntry) -> Entry:
    """Return the entry as the settings take it."""
    return Entry(SECTIONS[stored.kind], stored.name, stored.body, stored.enabled)


def origin_of(stored: StoredEntry) -> str:
    """Return what messages call an entry, also of a kind that is not known."""
    if stored.kind in SECTIONS:
        return entry_of(stored).origin
    return f'the entry of {stored.kind} "{stored.name}"'


def checked_with(
    read: ReadWith, stored: Sequence[StoredEntry] = (), text: str | None = None
) -> tuple[Loaded, Credentials]:
    """Return the settings with the entries that hold, and all secrets. Blocks.

    ``text`` is what the file says, if that is known. Raises :class:`SettingsError` if the file
    does not hold.
    """
    loaded, credentials = checked(lambda: _with_chosen(merged_with(read, stored, text)))
    keys, alerts = _given(stored, loaded, "provider"), _given(stored, loaded, "webhook")
    return loaded, replace(
        credentials, keys={**credentials.keys, **keys}, alerts={**credentials.alerts, **alerts}
    )


def _with_chosen(loaded: Loaded) -> Loaded:
    """Return the settings; raise :class:`SettingsError` if a model is wanted that they lack."""
    ids = [one.id for one in loaded.settings.models]
    if missing := sorted(loaded.chosen - set(ids)):
        words = f"no model has the id {missing[0]}; there are: {', '.join(ids) or 'none'}"
        if reasons := loaded.left_out.get(("models", missing[0])):
            words = f"the entry of model {missing[0]} does not hold: {'; '.join(reasons)}"
        raise SettingsError([Problem("--model", "", words)])
    return loaded


def _given(stored: Sequence[StoredEntry], loaded: Loaded, kind: EntryKind) -> Mapping[str, str]:
    """Return the keys of entries of a kind that are in force, by their names."""
    return {
        each.name: each.credential
        for each in stored
        if each.kind == kind and each.credential is not None and in_force(each, loaded)
    }


def merged_with(read: ReadWith, stored: Sequence[StoredEntry], text: str | None = None) -> Loaded:
    """Return the settings with the entries that hold, without a look at secrets.

    Raises :class:`SettingsError` if the file does not hold.
    """
    return merged(read, [entry_of(each) for each in known(stored) if not each.unreadable], text)


def reasons(stored: StoredEntry, loaded: Loaded) -> tuple[str, ...]:
    """Return why an entry that is switched on is not in force."""
    if not stored.enabled:
        return ()
    if stored.kind not in SECTIONS:
        return (_UNKNOWN,)
    return (_UNREADABLE,) if stored.unreadable else loaded.left_out.get(entry_of(stored).key, ())


def in_force(stored: StoredEntry, loaded: Loaded) -> bool:
    """Return true if the entry is a part of these settings."""
    usable = stored.enabled and not stored.unreadable and stored.kind in SECTIONS
    return usable and entry_of(stored).key not in loaded.left_out


def moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return true if a key would be sent elsewhere than where it was given for."""
    return any(before.get(name) != after.get(name) for name in _WHERE_SENT)


def new_problems(
    entries: Sequence[Entry], loaded: Loaded, before: Loaded, touched: Collection[EntryKey]
) -> list[tuple[Entry, str]]:
    """Return why entries would not hold in these settings.

    Entries that did not hold ``before`` may stay so, other than those that are ``touched``.
    """
    return [
        (entry, reason)
        for entry in entries
        for reason in loaded.left_out.get(entry.key, ())
        if reason != OFF
        and (entry.key in touched or (entry.enabled and entry.key not in before.left_out))
    ]
