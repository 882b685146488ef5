"""Switching and deletion of entries, alike for all kinds of them."""

from __future__ import annotations

from dataclasses import dataclass

from causerie.accounts.entry import EntryKind
from causerie.console.request_context import RequestContext
from causerie.errors import InvalidRequest, NotFound
from causerie.operations.configuring import Configuring, EntryView

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
        """``POST …/{entry}/enable``."""
        await self._switch(context, enabled=True)

    async def disable(self, context: RequestContext) -> None:
        """``POST …/{entry}/disable``."""
        await self._switch(context, enabled=False)

    async def ask_deletion(self, context: RequestContext) -> None:
        """``GET …/{entry}/delete``."""
        await context.show(_DELETE, entry=await self._entry(context), words=self._words)

    async def delete(self, context: RequestContext) -> None:
        """``POST …/{entry}/delete``."""
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
