"""Operations on keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from msgspec import UNSET

from causerie.accounts.accounts import Accounts
from causerie.accounts.bounds import Bounds
from causerie.accounts.guard import Clock
from causerie.accounts.issuing import Draft, Edit
from causerie.accounts.keys import ApiKey
from causerie.errors import InvalidRequest
from causerie.management.bodies import (
    BoundsBody,
    EditKey,
    MakeKey,
    NoBody,
    RotateKey,
    TransferKey,
)
from causerie.management.lists import KeyList, page_of
from causerie.management.queries import NoQuery, Page
from causerie.management.route import Call
from causerie.management.views import KeyView, NewKeyView


@dataclass(frozen=True, slots=True)
class KeyDesk:
    """The keys of projects."""

    accounts: Accounts
    clock: Clock

    async def list(self, call: Call[Page, NoBody]) -> KeyList:
        """Those of a project."""
        return self._page(call.query, await self.accounts.keys.of(call.actor, call.ids["project"]))

    async def of_user(self, call: Call[Page, NoBody]) -> KeyList:
        """Those of all projects that derive from a user."""
        return self._page(
            call.query, await self.accounts.keys.derived(call.actor, call.ids["user"])
        )

    def _page(self, query: Page, keys: Sequence[ApiKey]) -> KeyList:
        found, following = page_of(
            keys,
            query.limit,
            query.cursor,
            lambda key: (f"{key.created_at:%Y-%m-%dT%H:%M:%S.%f}", key.id),
            falling=True,
        )
        now = self.clock()
        return KeyList(data=[KeyView.of(each, now) for each in found], next=following)

    async def create(self, call: Call[NoQuery, MakeKey]) -> NewKeyView:
        """A new one; its secret is in the answer, and nowhere else."""
        body = call.body
        draft = Draft(
            name=body.name,
            purpose=body.purpose,
            expires_at=body.expires_at,
            doors=body.doors,
            models=body.models,
            bounds=_bounds(body.bounds),
        )
        made = await self.accounts.keys.create(call.actor, call.ids["project"], draft)
        return NewKeyView.made(made, self.clock())

    async def see(self, call: Call[NoQuery, NoBody]) -> KeyView:
        """One key."""
        return KeyView.of(await self.accounts.keys.see(call.actor, call.ids["key"]), self.clock())

    async def edit(self, call: Call[NoQuery, EditKey]) -> KeyView:
        """Change what is named."""
        body = call.body
        edit = Edit(
            name=body.name,
            expires_at=body.expires_at,
            doors=body.doors,
            models=body.models,
            bounds=UNSET if body.bounds is UNSET else _bounds(body.bounds),
        )
        return KeyView.of(
            await self.accounts.keys.edit(call.actor, call.ids["key"], edit), self.clock()
        )

    async def rotate(self, call: Call[NoQuery, RotateKey]) -> NewKeyView:
        """A new secret for the same key."""
        grace = timedelta(seconds=call.body.grace_seconds)
        made = await self.accounts.keys.rotate(call.actor, call.ids["key"], grace)
        return NewKeyView.made(made, self.clock())

    async def transfer(self, call: Call[NoQuery, TransferKey]) -> KeyView:
        """Let it derive from a member."""
        key = await self.accounts.keys.transfer(call.actor, call.ids["key"], call.body.to)
        return KeyView.of(key, self.clock())

    async def disable(self, call: Call[NoQuery, NoBody]) -> KeyView:
        """Stop it."""
        return KeyView.of(
            await self.accounts.keys.disable(call.actor, call.ids["key"]), self.clock()
        )

    async def enable(self, call: Call[NoQuery, NoBody]) -> KeyView:
        """Let it work again."""
        return KeyView.of(
            await self.accounts.keys.enable(call.actor, call.ids["key"]), self.clock()
        )

    async def delete(self, call: Call[NoQuery, NoBody]) -> None:
        """End it for good."""
        await self.accounts.keys.delete(call.actor, call.ids["key"])


def _bounds(body: BoundsBody) -> Bounds:
    """Checked here already, so that an error names the place in this body."""
    bounds = body.bounds()
    try:
        bounds.check()
    except InvalidRequest as failure:
        raise InvalidRequest(failure.message, param=f"bounds.{failure.param}") from failure
    return bounds
