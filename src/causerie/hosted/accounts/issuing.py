"""Creating and changing API keys, and keys by which programs of operators use the management API.

Changes apply in every process within a second. Keys of operators derive from nobody; those of the
settings are known by their digests and have all rights, these have an end and the rights that they
need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from causerie.access.networks import tidy_networks
from causerie.errors import Forbidden, InvalidRequest, NotFound
from causerie.hosted.accounts.authorization import (
    AccountService,
    conflict,
    handed_over,
    no_such,
    require,
    visible_project,
)
from causerie.hosted.accounts.bounds import UNBOUNDED, LimitsAndBudgets
from causerie.hosted.accounts.keys import (
    ApiKey,
    KeySecret,
    OperatorKey,
    Purpose,
    new_key_id,
    new_secret,
)
from causerie.hosted.accounts.people import Action, Actor, Extent
from causerie.hosted.accounts.records import differences
from causerie.hosted.accounts.tokens import digest, tidy_name
from causerie.hosted.accounts.users import checked_rights
from causerie.hosted.store.accounts import Transaction

BY_OPERATOR = "operator"
GRACE = timedelta(hours=24)
_LAST_YEAR = 9000  # what dates can hold, in every time zone, with room


Name = Annotated[str, Meta(min_length=1, max_length=100)]
Word = Annotated[str, Meta(min_length=1, max_length=200)]
Moment = Annotated[datetime, Meta(tz=True)]
Names = Annotated[frozenset[Word], Meta(max_length=500)]
Networks = Annotated[tuple[Word, ...], Meta(max_length=200)]


class KeyDraft(Struct, frozen=True, forbid_unknown_fields=True):
    """A key to create. ``null`` for doors and models: all that the project has; empty: none."""

    name: Name
    purpose: Purpose = Purpose.INFERENCE
    expires_at: Moment | None = None
    doors: Names | None = None
    models: Names | None = None
    bounds: LimitsAndBudgets = UNBOUNDED
    networks: Networks | None = None


class KeyEdit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a key; omitted fields keep their values."""

    name: Name | UnsetType = UNSET
    expires_at: Moment | UnsetType | None = UNSET
    doors: Names | UnsetType | None = UNSET
    models: Names | UnsetType | None = UNSET
    networks: Networks | UnsetType | None = UNSET
    bounds: LimitsAndBudgets | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new API key with its secret, which is shown once."""

    key: ApiKey
    credential: str = field(repr=False)


class KeyIssuing(AccountService):
    """Creates, shows, changes and deletes the API keys of projects."""

    async def create(self, actor: Actor, project_id: str, draft: KeyDraft) -> NewKey:
        """Create a key; raise :class:`InvalidRequest` for a wrong draft."""
        draft.bounds.check()
        check_end(draft.expires_at, self._clock())
        tidied = {"name": tidy_name(draft.name), "networks": tidy_networks(draft.networks)}
        id = new_key_id()
        credential = new_secret(id)
        async with self._store.writing() as tx:
            key = ApiKey(
                id=id,
                project_id=project_id,
                created_by=actor.id,
                created_at=tx.now,
                person=actor.person,
                **asdict(draft) | tidied,
            )
            project = await visible_project(tx, actor, project_id, Action.KEYS_CREATE)
            await self._guard_management_key(tx, actor, key)
            if project.archived_at is not None:
                raise conflict("archived", "The project is archived; bring it back first.")
            await tx.keys.add(key, KeySecret(digest(credential), key.id))
            await tx.keys.set_bounds({f"key:{key.id}": key.bounds})
            details = {"name": key.name, "purpose": key.purpose}
            await tx.audit.record(actor, "key.create", key.id, project_id, **details)
        return NewKey(key, credential)

    async def of(self, actor: Actor, project_id: str) -> Sequence[ApiKey]:
        """Return the keys of a project that are not deleted, newest first."""
        async with self._begin_read(actor, Action.KEYS_SEE, project_id) as tx:
            return await tx.keys.of(project_id)

    async def see(self, actor: Actor, key_id: str) -> ApiKey:
        async with self._store.reading() as tx:
            return await self._find_permitted_key(tx, actor, key_id, Action.KEYS_SEE)

    async def edit(self, actor: Actor, key_id: str, edit: KeyEdit) -> ApiKey:
        """Change a key; raises :class:`InvalidRequest`."""
        async with self._store.writing() as tx:
            key = await self._find_permitted_key(tx, actor, key_id, Action.KEYS_EDIT)
            values = {name: each for name, each in asdict(edit).items() if each is not UNSET}
            if edit.name is not UNSET:
                values["name"] = tidy_name(edit.name)
            if edit.expires_at is not UNSET:
                check_end(edit.expires_at, tx.now)
            if edit.networks is not UNSET:
                values["networks"] = tidy_networks(edit.networks)
            if edit.bounds is not UNSET:
                edit.bounds.check()
                await tx.keys.set_bounds({f"key:{key.id}": edit.bounds})
            changed = replace(key, **values)
            details = differences(_format_audit_fields(key), _format_audit_fields(changed))
            return await self._save_changed_key(tx, actor, "key.edit", changed, **details)

    async def disable(self, actor: Actor, key_id: str) -> ApiKey:
        async with self._store.writing() as tx:
            key = await self._find_permitted_key(tx, actor, key_id, Action.KEYS_DISABLE)
            by = BY_OPERATOR if actor.oversees else actor.id
            changed = replace(key, disabled_at=tx.now, disabled_by=by)
            return await self._save_changed_key(tx, actor, "key.disable", changed)

    async def enable(self, actor: Actor, key_id: str) -> ApiKey:
        """Enable a disabled key.

        Only operators enable a key that an operator has disabled. Who has rights only over own keys
        enables only keys that they disabled themselves.
        """
        async with self._store.writing() as tx:
            key = await self._find_permitted_key(tx, actor, key_id, Action.KEYS_DISABLE)
            reach = await require(
                tx, actor, Action.KEYS_DISABLE, key.project_id, made_by=key.person
            )
            others = reach is Extent.OWN and key.disabled_by not in (None, actor.id)
            if others or (key.disabled_by == BY_OPERATOR and not actor.oversees):
                raise Forbidden(
                    "Somebody with more rights has disabled this key; ask them to enable it.",
                    code="scope_not_allowed",
                )
            changed = replace(key, disabled_at=None, disabled_by=None)
            return await self._save_changed_key(tx, actor, "key.enable", changed)

    async def rotate(self, actor: Actor, key_id: str, grace: timedelta = GRACE) -> NewKey:
        """Create a new secret for a key; older ones work for ``grace``, at most 30 days."""
        if not timedelta(0) <= grace <= timedelta(days=30):
            raise InvalidRequest("The old secret may go on for 0 to 30 days.", param="grace")
        async with self._store.writing() as tx:
            key = await self._find_permitted_key(tx, actor, key_id, Action.KEYS_ROTATE)
            credential = new_secret(key.id)
            await tx.keys.rotate(KeySecret(digest(credential), key.id), tx.now + grace)
            seconds = str(int(grace.total_seconds()))
            await self._save_changed_key(tx, actor, "key.rotate", key, grace_seconds=seconds)
        return NewKey(key, credential)

    async def delete(self, actor: Actor, key_id: str) -> None:
        """Delete a key; its usage and its name in the audit log stay."""
        async with self._store.writing() as tx:
            key = await self._find_permitted_key(tx, actor, key_id, Action.KEYS_DELETE)
            await tx.keys.set_bounds({f"key:{key.id}": UNBOUNDED})
            await self._save_changed_key(tx, actor, "key.delete", replace(key, deleted_at=tx.now))

    async def transfer(self, actor: Actor, key_id: str, to: str) -> ApiKey:
        """Let a key derive from a member who may have it; a withdrawn key works again."""
        async with self._store.writing() as tx:
            key = await self._find_permitted_key(tx, actor, key_id, Action.KEYS_TRANSFER)
            changed = await handed_over(tx, key, to)
            return await self._save_changed_key(tx, actor, "key.transfer", changed, to=to)

    async def derived(self, actor: Actor, user_id: str) -> Sequence[ApiKey]:
        """Return the keys of all projects that derive from a user, newest first."""
        async with self._begin_read(actor, Action.USERS_SEE) as tx:
            return await tx.keys.derived(user_id)

    async def _find_permitted_key(
        self, tx: Transaction, actor: Actor, key_id: str, action: Action
    ) -> ApiKey:
        key = await tx.keys.find(key_id)
        if key is None or key.deleted_at is not None:
            raise no_such("key")
        try:
            await require(tx, actor, action, key.project_id, made_by=key.person)
        except NotFound as failure:
            raise no_such("key") from failure  # the words would tell that it is there
        if action is not Action.KEYS_SEE:
            await self._guard_management_key(tx, actor, key)
        return key

    async def _guard_management_key(self, tx: Transaction, actor: Actor, key: ApiKey) -> None:
        if key.purpose is Purpose.MANAGEMENT:
            await require(tx, actor, Action.MANAGEMENT_KEYS, key.project_id)

    async def _save_changed_key(
        self, tx: Transaction, actor: Actor, audit_action: str, key: ApiKey, **details: str
    ) -> ApiKey:
        await tx.keys.change(key)
        await tx.keys.announce(f"key:{key.id}")
        await tx.audit.record(actor, audit_action, key.id, key.project_id, **details)
        return key


def check_end(end: datetime | None, now: datetime) -> None:
    """Raise :class:`InvalidRequest` for a key's end that is past, too far or has no time zone."""
    if end is not None and end.tzinfo is None:
        raise InvalidRequest("The end needs a time zone.", param="expires_at")
    if end is not None and end.year > _LAST_YEAR:
        raise InvalidRequest(
            "The end is too far away; leave it out for a key without one.", param="expires_at"
        )
    if end is not None and end <= now:
        raise InvalidRequest("The end has to be in the future.", param="expires_at")


def _format_audit_fields(key: ApiKey) -> dict[str, str]:
    words = {"name": key.name, "expires_at": str(key.expires_at), "bounds": key.bounds.words()}
    for name in ("doors", "models", "networks"):
        of = getattr(key, name)
        words[name] = "inherited" if of is None else ", ".join(sorted(of)) or "none"
    return words


@dataclass(frozen=True, slots=True)
class NewOperatorKey:
    """A new operator key with its secret, which is shown once."""

    key: OperatorKey
    credential: str = field(repr=False)


class OperatorKeyIssuing(AccountService):
    async def create(
        self,
        actor: Actor,
        name: str,
        rights: frozenset[str] = frozenset(),
        expires_at: datetime | None = None,
    ) -> NewOperatorKey:
        """Create an operator key; raise :class:`InvalidRequest` for a wrong name, right or end."""
        now, id = self._clock(), new_key_id()
        check_end(expires_at, now)
        credential, rights = new_secret(id), checked_rights(rights)
        made = OperatorKey(
            id, digest(credential), tidy_name(name), rights, actor.label, now, expires_at
        )
        async with self._begin_write(actor, Action.OPERATORS_CHANGE) as tx:
            await tx.operator_keys.add(made)
            words = ", ".join(sorted(rights)) or "all"
            await tx.audit.record(actor, "operator_key.create", id, name=made.name, rights=words)
        return NewOperatorKey(made, credential)

    async def every(self, actor: Actor) -> Sequence[OperatorKey]:
        """Return the operator keys that are not deleted, newest first."""
        async with self._begin_read(actor, Action.USERS_SEE) as tx:
            return await tx.operator_keys.every()

    async def delete(self, actor: Actor, id: str) -> None:
        """Delete an operator key, which stops at once; raise :class:`NotFound`."""
        async with self._begin_write(actor, Action.OPERATORS_CHANGE) as tx:
            found = await tx.operator_keys.one(id=id, deleted_at=None)
            if found is None:
                raise no_such("operator key")
            await tx.operator_keys.change(replace(found, deleted_at=tx.now))
            await tx.audit.record(actor, "operator_key.delete", id, name=found.name)

    async def actor(self, secret_digest: bytes) -> Actor | None:
        """Return the actor of the working operator key with this digest; ``None`` without one."""
        async with self._store.reading() as tx:
            key = await tx.operator_keys.one(digest=secret_digest)
        if key is None or not key.good(tx.now):
            return None
        return Actor("key", key.id, key.name, operator=not key.rights, rights=key.rights)
