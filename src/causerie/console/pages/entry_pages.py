"""Pages of all kinds of entries: one is added, changed, switched and deleted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from causerie.accounts.entry import EntryKind
from causerie.console.fields import FormFields
from causerie.console.request_context import RequestContext
from causerie.errors import InvalidRequest, NotFound
from causerie.operations.configuring import Configuring, EntryView, EntryWish

_DELETE = "operator/delete_entry.html"


@dataclass(frozen=True, slots=True)
class EntryKindWords:
    """Kinds of entries that have one list, and the words that pages have for them."""

    kinds: frozenset[EntryKind]
    noun: str
    """As in "There is no such alias"."""
    notice: str
    """Beginning of the names of its notices, as in ``alias-deleted``."""
    list_path: str
    """Of the list, below the console's prefix."""
    path: str
    """Entries are below it, by their ids."""
    delete_button: str
    deletion: str
    """What deletion does, as a sentence."""


class EntryPages:
    """Changes are in force at once; entries of the file are shown only."""

    def __init__(self, configuration: Configuring, words: EntryKindWords) -> None:
        self._configuration = configuration
        self._words = words

    async def enable(self, context: RequestContext) -> None:
        await self._switch(context, enabled=True)

    async def disable(self, context: RequestContext) -> None:
        await self._switch(context, enabled=False)

    async def ask_deletion(self, context: RequestContext) -> None:
        await context.show(_DELETE, entry=await self._entry(context), words=self._words)

    async def delete(self, context: RequestContext) -> None:
        entry = await self._entry(context)
        try:
            await self._configuration.delete(context.actor, entry.id)
        except InvalidRequest as problem:
            await context.show_problem(_DELETE, problem, entry=entry, words=self._words)
            return
        self._leave(context, "deleted")

    async def _switch(self, context: RequestContext, *, enabled: bool) -> None:
        entry = await self._entry(context)
        await self._configuration.switch(context.actor, entry.id, enabled=enabled)
        self._leave(context, "enabled" if enabled else "disabled")

    async def _entry(self, context: RequestContext) -> EntryView:
        """Return the entry of the path; raise :class:`NotFound`."""
        entry = await self._configuration.see(context.actor, context.params["entry"])
        if entry.kind not in self._words.kinds:
            raise NotFound(f"There is no such {self._words.noun} in the database.")
        return entry

    def _leave(self, context: RequestContext, what: str) -> None:
        """Lead to the list, with a notice of what was done."""
        context.go(self._words.list_path, done=f"{self._words.notice}-{what}")


class EntryForm(Protocol):
    """A form that says what an entry is to be."""

    def wish(self, *, enabled: bool = True) -> EntryWish:
        """Return the wanted state; raise :class:`InvalidRequest`."""


F = TypeVar("F", bound=EntryForm)


class EntryFormPages(EntryPages, ABC, Generic[F]):
    """Entries of one kind, each with a form of type ``F``."""

    async def new(self, context: RequestContext) -> None:
        await self._show(context, None, self._empty())

    async def create(self, context: RequestContext) -> None:
        form = self._typed(context.form)
        (kind,) = self._words.kinds
        try:
            context.check_form()
            await self._configuration.create(context.actor, kind, form.wish())
        except InvalidRequest as failure:
            await self._show(context, None, form, failure)
            return
        self._leave(context, "added")

    async def see(self, context: RequestContext) -> None:
        entry = await self._entry(context)
        await self._show(context, entry, self._kept(entry))

    async def change(self, context: RequestContext) -> None:
        entry, form = await self._entry(context), self._typed(context.form)
        try:
            context.check_form()
            wish = form.wish(enabled=entry.enabled)
            await self._configuration.change(context.actor, entry.id, wish)
        except InvalidRequest as failure:
            await self._show(context, entry, form, failure)
            return
        self._leave(context, "saved")

    @abstractmethod
    async def list(self, context: RequestContext) -> None:
        """``GET`` of the list."""

    @abstractmethod
    def _empty(self) -> F:
        """Return the form of a new entry."""

    @abstractmethod
    def _typed(self, form: FormFields) -> F:
        """Return the form as it was sent."""

    @abstractmethod
    def _kept(self, entry: EntryView) -> F:
        """Return the form of an entry that there is."""

    @abstractmethod
    async def _show(
        self,
        context: RequestContext,
        entry: EntryView | None,
        form: F,
        failure: InvalidRequest | None = None,
    ) -> None:
        """Show the form, of ``entry`` or of a new one, with what was wrong."""
