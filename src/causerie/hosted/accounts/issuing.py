"""Making keys and changing them. Its changes work in every process within a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from msgspec import UNSET, UnsetType

from causerie.errors import Forbidden, InvalidRequest, NotFound
from causerie.hosted.accounts.audit import difference, entry
from causerie.hosted.accounts.authorization import (
    Clock,
    handed_over,
    no_such,
    require,
    visible_project,
)
from causerie.hosted.accounts.bounds import UNBOUNDED, LimitsAndBudgets
from causerie.hosted.accounts.keys import ApiKey, KeySecret, Purpose, new_key_id, new_secret
from causerie.hosted.accounts.people import Action, Actor, Extent
from causerie.hosted.accounts.ports import AccountStore, Repositories
from causerie.hosted.accounts.tokens import digest, tidy_name

BY_OPERATOR = "operator"
GRACE = timedelta(hours=24)
_LAST_YEAR = 9000  # what dates can hold, in every time zone, with room
_LONGEST_GRACE = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class KeyDraft:
    """A key to be made."""

    name: str
    purpose: Purpose = Purpose.INFERENCE
    expires_at: datetime | None = None
    doors: frozenset[str] | None = None
    models: frozenset[str] | None = None
    bounds: LimitsAndBudgets = UNBOUNDED


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEdit:
    """Changes to a key; unset fields keep their values."""

    name: str | UnsetType = UNSET
    expires_at: datetime | UnsetType | None = UNSET
    doors: frozenset[str] | UnsetType | None = UNSET
    models: frozenset[str] | UnsetType | None = UNSET
    bounds: LimitsAndBudgets | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key with its secret, which is shown once."""

    key: ApiKey
    credential: str = field(repr=False)


class KeyIssuing:
    """The keys of projects."""

    def __init__(self, store: AccountStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, actor: Actor, project_id: str, draft: KeyDraft) -> NewKey:
        """A new key; raises :class:`InvalidRequest` for an end that is past."""
        now = self._clock()
        draft.bounds.check()
        _check_end(draft.expires_at, now)
        key = ApiKey(
            id=new_key_id(),
            project_id=project_id,
            created_by=actor.id,
            name=tidy_name(draft.name),
            purpose=draft.purpose,
            doors=draft.doors,
            models=draft.models,
            created_at=now,
            expires_at=draft.expires_at,
            bounds=draft.bounds,
            person=actor.person,
        )
        credential = new_secret(key.id)
        async with self._store.writing() as repositories:
            project = await visible_project(repositories, actor, project_id, Action.KEYS_CREATE)
            await self._management_only(repositories, actor, key)
            if project.archived_at is not None:
                raise InvalidRequest(
                    "The project is archived; bring it back first.", code="archived", status=409
                )
            await repositories.keys.add(key, KeySecret(digest(credential), key.id))
            await repositories.keys.set_bounds(f"key:{key.id}", key.bounds)
            await self._note(
                repositories, actor, "key.create", key, name=key.name, purpose=key.purpose
            )
        return NewKey(key, credential)

    async def of(self, actor: Actor, project_id: str) -> Sequence[ApiKey]:
        """The keys of a project, newest first; deleted ones are gone."""
        async with self._store.reading() as repositories:
            await visible_project(repositories, actor, project_id, Action.KEYS_SEE)
            return await repositories.keys.of(project_id)

    async def see(self, actor: Actor, key_id: str) -> ApiKey:
        """One key; raises :class:`NotFound`."""
        async with self._store.reading() as repositories:
            return await self._key(repositories, actor, key_id, Action.KEYS_SEE)

    async def edit(self, actor: Actor, key_id: str, edit: KeyEdit) -> ApiKey:
        """Change a key; raises :class:`InvalidRequest`."""
        now = self._clock()
        async with self._store.writing() as repositories:
            key = await self._key(repositories, actor, key_id, Action.KEYS_EDIT)
            changed = _edited(key, edit, now)
            await repositories.keys.change(changed)
            if edit.bounds is not UNSET:
                await repositories.keys.set_bounds(f"key:{key.id}", changed.bounds)
            await self._changed(
                repositories, actor, "key.edit", changed, **_differences(key, changed)
            )
        return changed

    async def disable(self, actor: Actor, key_id: str) -> ApiKey:
        async with self._store.writing() as repositories:
            key = await self._key(repositories, actor, key_id, Action.KEYS_DISABLE)
            by = BY_OPERATOR if actor.operator else actor.id
            changed = replace(key, disabled_at=self._clock(), disabled_by=by)
            await repositories.keys.change(changed)
            await self._changed(repositories, actor, "key.disable", changed)
        return changed

    async def enable(self, actor: Actor, key_id: str) -> ApiKey:
        """Let a key work again.

        A key disabled by an operator is enabled by an operator; with rights over one's own keys
        only, one enables what one has stopped oneself.
        """
        async with self._store.writing() as repositories:
            key = await self._key(repositories, actor, key_id, Action.KEYS_DISABLE)
            reach = await require(
                repositories, actor, Action.KEYS_DISABLE, key.project_id, made_by=key.person
            )
            others = reach is Extent.OWN and key.disabled_by not in (None, actor.id)
            if others or (key.disabled_by == BY_OPERATOR and not actor.operator):
                raise Forbidden(
                    "Somebody with more rights has disabled this key; ask them to enable it.",
                    code="scope_not_allowed",
                )
            changed = replace(key, disabled_at=None, disabled_by=None)
            await repositories.keys.change(changed)
            await self._changed(repositories, actor, "key.enable", changed)
        return changed

    async def rotate(self, actor: Actor, key_id: str, grace: timedelta = GRACE) -> NewKey:
        """A new secret for the same key; older ones work for ``grace`` longer, at most 30 days."""
        if not timedelta(0) <= grace <= _LONGEST_GRACE:
            raise InvalidRequest("The old secret may go on for 0 to 30 days.", param="grace")
        async with self._store.writing() as repositories:
            key = await self._key(repositories, actor, key_id, Action.KEYS_ROTATE)
            credential = new_secret(key.id)
            await repositories.keys.rotate(
                KeySecret(digest(credential), key.id), self._clock() + grace
            )
            await self._changed(
                repositories,
                actor,
                "key.rotate",
                key,
                grace_seconds=str(int(grace.total_seconds())),
            )
        return NewKey(key, credential)

    async def delete(self, actor: Actor, key_id: str) -> None:
        """End a key for good; its usage and its name in the log stay."""
        async with self._store.writing() as repositories:
            key = await self._key(repositories, actor, key_id, Action.KEYS_DELETE)
            changed = replace(key, deleted_at=self._clock())
            await repositories.keys.change(changed)
            await repositories.keys.set_bounds(f"key:{key.id}", UNBOUNDED)
            await self._changed(repositories, actor, "key.delete", changed)

    async def transfer(self, actor: Actor, key_id: str, to: str) -> ApiKey:
        """Let a key derive from this member from now on; one that was withdrawn works again.

        Raises :class:`InvalidRequest` where that member may not have it.
        """
        async with self._store.writing() as repositories:
            key = await self._key(repositories, actor, key_id, Action.KEYS_TRANSFER)
            changed = await handed_over(repositories, key, to)
            await repositories.keys.change(changed)
            await self._changed(repositories, actor, "key.transfer", changed, to=to)
        return changed

    async def derived(self, actor: Actor, user_id: str) -> Sequence[ApiKey]:
        """The keys of all projects that derive from a user, newest first; for operators."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.USERS_SEE)
            return await repositories.keys.derived(user_id)

    async def _key(
        self, repositories: Repositories, actor: Actor, key_id: str, action: Action
    ) -> ApiKey:
        key = await repositories.keys.find(key_id)
        if key is None or key.deleted_at is not None:
            raise no_such("key")
        try:
            await require(repositories, actor, action, key.project_id, made_by=key.person)
        except NotFound as failure:
            raise no_such("key") from failure  # the words would tell that it is there
        if action is not Action.KEYS_SEE:
            await self._management_only(repositories, actor, key)
        return key

    async def _management_only(self, repositories: Repositories, actor: Actor, key: ApiKey) -> None:
        if key.purpose is Purpose.MANAGEMENT:
            await require(repositories, actor, Action.MANAGEMENT_KEYS, key.project_id)

    async def _changed(
        self, repositories: Repositories, actor: Actor, what: str, key: ApiKey, **details: str
    ) -> None:
        await repositories.keys.announce(f"key:{key.id}", self._clock())
        await self._note(repositories, actor, what, key, **details)

    async def _note(
        self, repositories: Repositories, actor: Actor, what: str, key: ApiKey, **details: str
    ) -> None:
        await repositories.audit.add(
            entry(self._clock(), actor, what, key.id, key.project_id, **details)
        )


def _check_end(end: datetime | None, now: datetime) -> None:
    if end is not None and end.tzinfo is None:
        raise InvalidRequest("The end needs a time zone.", param="expires_at")
    if end is not None and end.year > _LAST_YEAR:
        raise InvalidRequest(
            "The end is too far away; leave it out for a key without one.", param="expires_at"
        )
    if end is not None and end <= now:
        raise InvalidRequest("The end has to be in the future.", param="expires_at")


def _edited(key: ApiKey, edit: KeyEdit, now: datetime) -> ApiKey:
    changed = key
    if edit.name is not UNSET:
        changed = replace(changed, name=tidy_name(edit.name))
    if edit.expires_at is not UNSET:
        _check_end(edit.expires_at, now)
        changed = replace(changed, expires_at=edit.expires_at)
    if edit.doors is not UNSET:
        changed = replace(changed, doors=edit.doors)
    if edit.models is not UNSET:
        changed = replace(changed, models=edit.models)
    if edit.bounds is not UNSET:
        edit.bounds.check()
        changed = replace(changed, bounds=edit.bounds)
    return changed


def _differences(before: ApiKey, after: ApiKey) -> dict[str, str]:
    words = {
        "name": (before.name, after.name),
        "expires_at": (str(before.expires_at), str(after.expires_at)),
        "doors": (_set(before.doors), _set(after.doors)),
        "models": (_set(before.models), _set(after.models)),
        "bounds": (before.bounds.words(), after.bounds.words()),
    }
    return {name: difference(old, new) for name, (old, new) in words.items() if old != new}


def _set(names: frozenset[str] | None) -> str:
    return "inherited" if names is None else ", ".join(sorted(names)) or "none"
