"""Keys by which programs of operators use the management API; they derive from nobody.

Those of the settings are known by their digests and have all rights. These have a name, an end and
the rights that they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from causerie.hosted.accounts.authorization import no_such
from causerie.hosted.accounts.issuing import check_end
from causerie.hosted.accounts.keys import OperatorKey, new_key_id, new_secret
from causerie.hosted.accounts.people import Action, Actor
from causerie.hosted.accounts.service import AccountService
from causerie.hosted.accounts.tokens import digest, tidy_name
from causerie.hosted.accounts.users import checked_rights


@dataclass(frozen=True, slots=True)
class NewOperatorKey:
    """A key with its secret, which is shown once."""

    key: OperatorKey
    credential: str = field(repr=False)


class OperatorKeyIssuing(AccountService):
    """Operator keys; methods with an actor raise :class:`Forbidden` without the right."""

    async def create(
        self,
        actor: Actor,
        name: str,
        rights: frozenset[str] = frozenset(),
        expires_at: datetime | None = None,
    ) -> NewOperatorKey:
        """Create a key; raise :class:`InvalidRequest` for a wrong name, right or end."""
        now, id = self._clock(), new_key_id()
        check_end(expires_at, now)
        credential, rights = new_secret(id), checked_rights(rights)
        made = OperatorKey(
            id, digest(credential), tidy_name(name), rights, actor.label, now, expires_at
        )
        async with self._writing(actor, Action.OPERATORS_CHANGE) as tx:
            await tx.operator_keys.add(made)
            words = ", ".join(sorted(rights)) or "all"
            await self._record(tx, actor, "operator_key.create", id, name=made.name, rights=words)
        return NewOperatorKey(made, credential)

    async def every(self, actor: Actor) -> Sequence[OperatorKey]:
        """Return the keys that are not deleted, newest first."""
        async with self._reading(actor, Action.USERS_SEE) as tx:
            return await tx.operator_keys.every()

    async def delete(self, actor: Actor, id: str) -> None:
        """Delete a key, which stops at once; raise :class:`NotFound`."""
        async with self._writing(actor, Action.OPERATORS_CHANGE) as tx:
            found = next((each for each in await tx.operator_keys.every() if each.id == id), None)
            if found is None:
                raise no_such("operator key")
            await tx.operator_keys.change(replace(found, deleted_at=self._clock()))
            await self._record(tx, actor, "operator_key.delete", id, name=found.name)

    async def actor(self, secret_digest: bytes) -> Actor | None:
        """Return the actor of a working key by the digest of all of it."""
        async with self._store.reading() as tx:
            key = await tx.operator_keys.by_digest(secret_digest)
        if key is None or not key.good(self._clock()):
            return None
        return Actor("key", key.id, key.name, operator=not key.rights, rights=key.rights)
