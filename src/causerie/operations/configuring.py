"""Interface of the configuration for pages and the management API: its entries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

from msgspec import Meta, Struct

from causerie.accounts.entry import EntryKind
from causerie.accounts.people import Actor
from causerie.operations.trial import Trial

Settings = Annotated[
    dict[str, Any], Meta(description="In the form of the configuration file, without `key`.")
]


class EntryView(Struct, frozen=True, kw_only=True):
    """An entry of the configuration. One of the file is locked, and has no `id`."""

    id: str
    kind: EntryKind
    name: str
    origin: Literal["file", "database"]
    locked: bool
    where: Annotated[str, Meta(description="File and line, where a line sets it.")] = ""
    enabled: bool
    in_force: bool
    problems: Annotated[
        tuple[str, ...], Meta(description="Why it is switched on and yet not in force.")
    ] = ()
    settings: Settings
    has_key: bool
    version: int = 1
    created_at: datetime | None = None
    created_by: str = ""
    updated_at: datetime | None = None
    updated_by: str = ""


class EntryWish(Struct, frozen=True, kw_only=True):
    """Wanted state of an entry. ``key``: unset keeps the one that is there, empty removes it."""

    settings: dict[str, Any]
    key: str | None = None
    enabled: bool = True
    version: int | None = None
    """Of the entry that was read before; unset: whatever is there is changed."""


class EntryStep(Struct, frozen=True, kw_only=True):
    """One of several changes. Without an ``id`` the entry is new, without a ``wish`` deleted."""

    kind: EntryKind
    id: str = ""
    wish: EntryWish | None = None


class Configuring(Protocol):
    """Changes to the configuration. Everything raises ``Forbidden`` for those who are no
    operators, and ``InvalidRequest`` with all problems for what does not hold."""

    async def every(self, actor: Actor) -> Sequence[EntryView]:
        """Providers first; of each kind those of the file, then the others, oldest first."""

    async def see(self, actor: Actor, id: str) -> EntryView:
        """One of the database; raises ``NotFound``."""

    async def create(self, actor: Actor, kind: EntryKind, wish: EntryWish) -> EntryView:
        """A new one, in force when this returns."""

    async def change(self, actor: Actor, id: str, wish: EntryWish) -> EntryView:
        """Change one as a whole; in force when this returns."""

    async def switch(self, actor: Actor, id: str, *, enabled: bool) -> EntryView:
        """Switch one on or off."""

    async def delete(self, actor: Actor, id: str) -> None:
        """Forget one, with its key."""

    async def apply(self, actor: Actor, steps: Sequence[EntryStep]) -> None:
        """Several changes, checked together: all are in force when this returns, or none."""

    async def listed(self, actor: Actor, provider: str) -> Trial:
        """Return what a provider that is in force lists now; raises ``NotFound``."""

    async def test(
        self, actor: Actor, settings: dict[str, Any], key: str, model: str, entry: str
    ) -> Trial:
        """Try a provider that is not kept, or with an ``entry`` that one as it is."""

    async def test_filed(self, actor: Actor, provider: str, model: str) -> Trial:
        """Try a provider of the file, with its key; raises ``NotFound``."""
