"""Operations on keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from msgspec import UNSET

from causerie.accounts.accounts import Accounts
from causerie.accounts.authorization import Clock
from causerie.accounts.bounds import LimitsAndBudgets
from causerie.accounts.issuing import KeyDraft, KeyEdit
from causerie.accounts.keys import ApiKey
from causerie.errors import InvalidRequest
from causerie.management.bodies import (
    BoundsBody,
    CreateKey,
    EditKey,
    NoBody,
    RotateKey,
    TransferKey,
)
from causerie.management.lists import KeyList, by_creation, page_of
from causerie.management.queries import NoQuery, PageQuery
from causerie.management.route import ApiCall
from causerie.management.views import KeyView, NewKeyView


@dataclass(frozen=True, slots=True)
class KeyOperations:
    """The keys of projects."""

    accounts: Accounts
    clock: Clock

    async def list(self, call: ApiCall[PageQuery, NoBody]) -> KeyList:
        return self._page(call.query, await self.accounts.keys.of(call.actor, call.ids["project"]))

    async def of_user(self, call: ApiCall[PageQuery, NoBody]) -> KeyList:
        """Those of all projects that derive from a user."""
        return self._page(
            call.query, await self.accounts.keys.derived(call.actor, call.ids["user"])
        )

    def _page(self, query: PageQuery, keys: Sequence[ApiKey]) -> KeyList:
        view = partial(KeyView.of, now=self.clock())
        return page_of(KeyList, view, keys, query, by_creation, falling=True)

    async def create(self, call: ApiCall[NoQuery, CreateKey]) -> NewKeyView:
        """A new one; its secret is in the answer, and nowhere else."""
        body = call.body
        draft = KeyDraft(
            name=body.name,
            purpose=body.purpose,
            expires_at=body.expires_at,
            doors=body.doors,
            models=body.models,
            bounds=_bounds(body.bounds),
        )
        made = await self.accounts.keys.create(call.actor, call.ids["project"], draft)
        return NewKeyView.made(made, self.clock())

    async def see(self, call: ApiCall[NoQuery, NoBody]) -> KeyView:
        return KeyView.of(await self.accounts.keys.see(call.actor, call.ids["key"]), self.clock())

    async def edit(self, call: ApiCall[NoQuery, EditKey]) -> KeyView:
        body = call.body
        edit = KeyEdit(
            name=body.name,
            expires_at=body.expires_at,
            doors=body.doors,
            models=body.models,
            bounds=UNSET if body.bounds is UNSET else _bounds(body.bounds),
        )
        return KeyView.of(
            await self.accounts.keys.edit(call.actor, call.ids["key"], edit), self.clock()
        )

    async def rotate(self, call: ApiCall[NoQuery, RotateKey]) -> NewKeyView:
        """A new secret for the same key."""
        grace = timedelta(seconds=call.body.grace_seconds)
        made = await self.accounts.keys.rotate(call.actor, call.ids["key"], grace)
        return NewKeyView.made(made, self.clock())

    async def transfer(self, call: ApiCall[NoQuery, TransferKey]) -> KeyView:
        """Let it derive from a member."""
        key = await self.accounts.keys.transfer(call.actor, call.ids["key"], call.body.to)
        return KeyView.of(key, self.clock())

    async def disable(self, call: ApiCall[NoQuery, NoBody]) -> KeyView:
        return KeyView.of(
            await self.accounts.keys.disable(call.actor, call.ids["key"]), self.clock()
        )

    async def enable(self, call: ApiCall[NoQuery, NoBody]) -> KeyView:
        """Let it work again."""
        return KeyView.of(
            await self.accounts.keys.enable(call.actor, call.ids["key"]), self.clock()
        )

    async def delete(self, call: ApiCall[NoQuery, NoBody]) -> None:
        await self.accounts.keys.delete(call.actor, call.ids["key"])


def _bounds(body: BoundsBody) -> LimitsAndBudgets:
    """Checked here already, so that an error names the place in this body."""
    bounds = body.bounds()
    try:
        bounds.check()
    except InvalidRequest as failure:
        raise InvalidRequest(failure.message, param=f"bounds.{failure.param}") from failure
    return bounds
