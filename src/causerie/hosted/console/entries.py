"""Entries of the configuration: how pages show them and their problems, and the pages of all kinds
of them: one is added, changed, switched and deleted.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, Protocol, TypeVar, get_args

import msgspec

from causerie.errors import InvalidRequest, NotFound, ServiceError
from causerie.hosted.accounts.people import Actor
from causerie.hosted.accounts.ports import EntryKind
from causerie.hosted.console.fields import FormFields
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.operations.configuring import Configuring, EntryView, EntryWish, ListedModel
from causerie.protocol.numbers import money

_INDEX = re.compile(r"\[\d+\]")


async def entries_of(configuration: Configuring, actor: Actor) -> Sequence[EntryView]:
    """Return all entries; none while the service starts and cannot read them yet."""
    try:
        return await configuration.every(actor)
    except InvalidRequest as failure:
        if failure.code != "not_ready":
            raise
        return ()


def entry_named(
    entries: Sequence[EntryView], kind: EntryKind, name: str, *, locked: bool
) -> EntryView | None:
    """Return the entry of this name in the file (``locked``) or in the database."""
    for each in entries:
        if (each.kind, each.name, each.locked) == (kind, name, locked):
            return each
    return None


def lowest_price(entry: EntryView, part: str) -> Decimal | None:
    """Return the price of an entry, or the lowest of its endpoints, per 1M tokens.

    ``None`` if it has no endpoints, or a price that is none.
    """
    catalog = entry.kind == "catalog_model"
    priced = entry.settings.get("endpoints", ()) if catalog else (entry.settings,)
    try:
        return min((money(each.get("price", {}).get(part, "0")) for each in priced), default=None)
    except (AttributeError, TypeError, ValueError):  # what is left out may hold anything
        return None


def picked_model(text: str) -> ListedModel:
    """Return a model as the form has it; raise :class:`InvalidRequest`."""
    try:
        return msgspec.json.decode(text, type=ListedModel)
    except msgspec.MsgspecError as failure:
        raise InvalidRequest("What was picked cannot be read; pick again.", param="pick") from (
            failure
        )


def changeable_provider(entries: Sequence[EntryView], name: str) -> EntryView:
    """Return the entry of the database; raise :class:`NotFound`."""
    found = entry_named(entries, "provider", name, locked=False)
    if found is None:
        raise NotFound("No provider of this name is in the database.")
    return found


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """A problem as fields show it."""

    param: str
    message: str


class EntryProblems:
    """All problems of an entry: those of fields that the form has, and the rest.

    Of ``fields`` in rows the index is left out, as in ``targets[].model``.
    """

    def __init__(
        self, failure: ServiceError | None = None, origin: str = "", fields: Collection[str] = ()
    ) -> None:
        self._by_field: dict[str, FieldProblem] = {}
        self.rest: list[str] = []
        if failure is None:
            return
        told = f"{failure.param}: {failure.message}" if failure.param else failure.message
        for problem in msgspec.convert(failure.metadata.get("problems", [told]), list[str]):
            own = problem.removeprefix(f"{origin}: ")
            key, _, advice = own.partition(": ")
            if advice and _INDEX.sub("[]", key) in fields:
                self._by_field.setdefault(key, FieldProblem(key, _sentence(advice)))
            elif advice and own != problem:
                self.rest.append(f"`{key}` {advice}")
            else:
                self.rest.append(_sentence(own))

    def of(self, field: str) -> FieldProblem | None:
        return self._by_field.get(field)

    @property
    def named(self) -> Sequence[tuple[str, str]]:
        """Return the problems of fields, with the names of their settings."""
        return [(name, each.message) for name, each in self._by_field.items()]

    def any(self, *fields: str) -> bool:
        return any(field in self._by_field for field in fields)


def of_unknown_kinds(entries: Sequence[EntryView]) -> Sequence[EntryView]:
    """Return the entries that a newer version has made and this one skips."""
    return [each for each in entries if each.kind not in get_args(EntryKind)]


def origin_of(kind: EntryKind, name: str) -> str:
    """Return what problems call an entry."""
    return f'the entry of {kind} "{name}"'


def typed_number(text: str) -> int | float | str:
    """Return the number that was typed; another text stays one, which the settings refuse."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def rest_of(settings: Mapping[str, Any]) -> str:
    """Return settings that have no field as JSON; empty if there are none."""
    return json.dumps(settings, indent=2, ensure_ascii=False) if settings else ""


def read_rest(text: str) -> dict[str, Any]:
    """Return settings typed as JSON; raise :class:`InvalidRequest`."""
    try:
        found = json.loads(text or "{}")
    except ValueError as failure:
        words = f"is not valid JSON: {failure}"
        raise InvalidRequest(words, param="more") from failure
    if not isinstance(found, dict):
        raise InvalidRequest("is no JSON object, like `{}`", param="more")
    return found


def _sentence(words: str) -> str:
    if words.startswith(("is ", "are ")):
        words = f"{'It' if words.startswith('is ') else 'They'} {words}"
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith(('.', '?', '!')) else '.'}"


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
        entry = await self._configuration.see(context.actor, context.params["entry"])
        if entry.kind not in self._words.kinds:
            raise NotFound(f"There is no such {self._words.noun} in the database.")
        return entry

    def _leave(self, context: RequestContext, what: str) -> None:
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
