"""Verification of API keys on the request path, from memory.

Changes in the database are read twice a second, so a revoked key stops everywhere within a second.
While the database is unavailable, known keys work for a configured time and others get 503, never
401. Keys are looked up by the digest of the whole key, so the time of a lookup reveals nothing
about a secret.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from msgspec import Struct, field

from causerie.access.allowed import Permissions
from causerie.access.keys import Caller, Credential, no_key, wrong_key
from causerie.errors import Forbidden, StoreUnavailable
from causerie.hosted.accounts.bounds import SCOPES
from causerie.hosted.accounts.keys import Grant, Purpose
from causerie.hosted.accounts.people import Actor
from causerie.hosted.accounts.records import CHANGED
from causerie.hosted.store.accounts import SqlStore

_SECOND = 1_000_000_000
_LOOKUPS_AT_ONCE = 256
_ABSENT_SECONDS = 5
_ABSENT_KEPT = 10_000
_FOR_EVER = 2**63
_SCOPES = tuple(f"{kind}:" for kind in SCOPES)


class AccountCaller(Caller, frozen=True):
    """A caller with a key of accounts; ``grant`` is that of the time of admission."""

    grant: Grant


class _CachedKey(Struct):
    grant: Grant
    until: int  # nanoseconds since 1970; 0 if revoked
    callers: dict[str, AccountCaller]


def _new_event_already_set() -> asyncio.Event:
    # By whoever was faster than the cache began to follow.
    changed = asyncio.Event()
    changed.set()
    return changed


class KeyCache(Struct):
    """A cache of the keys in the database, entered in the loop that uses it."""

    _store: SqlStore
    poll_seconds: float = 0.5
    offline_seconds: float = 600.0
    """Time for which known keys keep working without a database."""
    answer_seconds: float = 2.0
    capacity: int = 100_000
    now: Callable[[], int] = time.time_ns  # since 1970
    _cached_keys: dict[bytes, _CachedKey] = {}
    _digests_by_subject: dict[str, set[bytes]] = {}  # by key, project and person
    _absent_until: dict[bytes, int] = {}
    _running_lookups: dict[bytes, asyncio.Task[_CachedKey | None]] = {}
    _last_change_number: int = 0
    _is_cache_fresh: bool = True
    _background_tasks: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _exit_stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _polling_task: asyncio.Task[None] | None = None
    configuration_changed: asyncio.Event = field(default_factory=_new_event_already_set)
    scopes_changed: asyncio.Event = field(default_factory=_new_event_already_set)

    async def __aenter__(self) -> KeyCache:
        """Start to follow changes; raise :class:`StoreUnavailable`."""
        self._last_change_number, _ = await self._fetch_unapplied_changes()
        await self._exit_stack.enter_async_context(self._background_tasks)
        self._polling_task = self._background_tasks.create_task(self._poll_changes())
        return self

    async def __aexit__(self, *failure: object) -> None:
        if self._polling_task is not None:
            self._polling_task.cancel()
        await asyncio.gather(*self._running_lookups.values(), return_exceptions=True)
        await self._exit_stack.aclose()

    async def authenticate(self, door: str, credential: Credential | None) -> AccountCaller:
        """Return the caller with this key; unknown, expired and revoked ones get the same error."""
        known = await self._get_verified_cached_key(credential)
        caller = known.callers.get(door)
        if caller is None:
            caller = known.callers[door] = admitted(known.grant, door)
        return caller

    async def manager(self, credential: Credential | None) -> Actor:
        """Return the actor with this management key; raise as :meth:`authenticate`."""
        grant = (await self._get_verified_cached_key(credential)).grant
        key = grant.key
        if key.purpose is not Purpose.MANAGEMENT:
            raise Forbidden(
                "This key cannot manage; make a management key.", code="scope_not_allowed"
            )
        return Actor(
            *("key", key.id, key.name),
            project=key.project_id,
            holder=key.person,
            networks=grant.networks,
        )

    async def _get_verified_cached_key(self, credential: Credential | None) -> _CachedKey:
        if credential is None:
            raise no_key()
        known = self._cached_keys.get(credential.digest) or await self._join_key_lookup(credential)
        if self.now() >= known.until:
            raise wrong_key(credential)
        if not self._is_cache_fresh:
            raise StoreUnavailable("The API key cannot be verified now. Try again.")
        return known

    async def _join_key_lookup(self, credential: Credential) -> _CachedKey:
        # One query for all callers that ask for the same key at the same time.
        digest = credential.digest
        if not credential.formed or self._absent_until.get(digest, 0) > self.now():
            raise wrong_key(credential)
        lookup = self._running_lookups.get(digest)
        if lookup is None:
            if len(self._running_lookups) >= _LOOKUPS_AT_ONCE:
                raise StoreUnavailable("Too many unknown API keys at this moment. Try again.")
            lookup = asyncio.get_running_loop().create_task(self._load_and_cache_key(digest))
            self._running_lookups[digest] = lookup
        known = await asyncio.shield(lookup)
        if known is None:
            raise wrong_key(credential)
        return known

    async def _load_and_cache_key(self, key_digest: bytes) -> _CachedKey | None:
        try:
            found = await self._read_grant(key_digest)
        finally:
            del self._running_lookups[key_digest]
        if found is not None:
            return self._cache_key(key_digest, found)
        if len(self._absent_until) >= _ABSENT_KEPT:
            del self._absent_until[next(iter(self._absent_until))]
        self._absent_until[key_digest] = self.now() + _ABSENT_SECONDS * _SECOND
        return None

    async def _read_grant(self, key_digest: bytes) -> Grant | None:
        # Asked again until the grant is as new as the changes that were read when it is kept.
        try:
            async with asyncio.timeout(self.answer_seconds):
                while True:
                    async with self._store.reading() as tx:
                        number, _ = await tx.keys.changes(self._last_change_number)
                        found = await tx.keys.grant(key_digest)
                    if number >= self._last_change_number:
                        return found
        except TimeoutError as failure:
            raise StoreUnavailable("The API key cannot be verified now. Try again.") from failure

    def _cache_key(self, key_digest: bytes, grant: Grant) -> _CachedKey:
        if len(self._cached_keys) >= self.capacity:
            self._drop_cached_key(next(iter(self._cached_keys)))
        until = _FOR_EVER if grant.until is None else int(grant.until.timestamp() * _SECOND)
        known = _CachedKey(grant, until if grant.works else 0, {})
        self._cached_keys[key_digest] = known
        for subject in _list_change_subjects(grant):
            self._digests_by_subject.setdefault(subject, set()).add(key_digest)
        return known

    def _drop_cached_key(self, key_digest: bytes) -> None:
        known = self._cached_keys.pop(key_digest)
        for subject in _list_change_subjects(known.grant):
            left = self._digests_by_subject[subject]
            left.discard(key_digest)
            if not left:
                del self._digests_by_subject[subject]

    async def _poll_changes(self) -> None:
        clock = asyncio.get_running_loop().time
        heard = clock()
        while True:
            await asyncio.sleep(self.poll_seconds)
            try:
                number, subjects = await self._fetch_unapplied_changes()
            except StoreUnavailable:  # of which the log has a line each minute
                self._is_cache_fresh = clock() - heard < self.offline_seconds
                continue
            self._apply_changes(number, subjects)
            heard, self._is_cache_fresh = clock(), True

    async def _fetch_unapplied_changes(self) -> tuple[int, Sequence[str] | None]:
        try:
            async with asyncio.timeout(self.answer_seconds), self._store.reading() as tx:
                return await tx.keys.changes(self._last_change_number)
        except TimeoutError as failure:
            raise StoreUnavailable() from failure

    def _apply_changes(self, change_number: int, changed_subjects: Sequence[str] | None) -> None:
        self._last_change_number = change_number
        if changed_subjects is None or CHANGED in changed_subjects:
            self.configuration_changed.set()
        if changed_subjects is None or any(each.startswith(_SCOPES) for each in changed_subjects):
            self.scopes_changed.set()
        if changed_subjects is None:  # more than is remembered, or another database
            for digest in list(self._cached_keys):
                self._drop_cached_key(digest)
            return
        for subject in changed_subjects:
            for digest in list(self._digests_by_subject.get(subject, ())):
                self._drop_cached_key(digest)


def admitted(grant: Grant, door: str) -> AccountCaller:
    """Return the caller with this grant; raise :class:`Forbidden` if it excludes the door."""
    key = grant.key
    if key.purpose is not Purpose.INFERENCE:
        raise Forbidden(
            "This is a management key; make an inference key for requests.",
            code="scope_not_allowed",
        )
    if key.doors is not None and door not in key.doors:
        raise Forbidden(f"This key may not use the door `{door}`.", code="scope_not_allowed")
    for rule in grant.access:
        if not rule.access.opens(door):
            raise Forbidden(
                f"The {rule.whose} of this key may not use the door `{door}`.",
                code="scope_not_allowed",
            )
    return AccountCaller(
        key=key.id,
        name=key.name,
        door=door,
        project=key.project_id,
        user=key.person or key.created_by,
        models=key.models,
        access=Permissions(grant.access) if grant.access else None,
        recorded=grant.recorded,
        networks=grant.networks,
        grant=grant,
    )


def _list_change_subjects(grant: Grant) -> tuple[str, ...]:
    key = grant.key
    found = f"key:{key.id}", f"project:{key.project_id}"
    return (*found, f"user:{key.person}") if key.person else found
