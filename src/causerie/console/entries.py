"""Entries of the configuration as pages show them, and their problems, each at its field."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, get_args

import msgspec

from causerie.accounts.entry import EntryKind
from causerie.accounts.people import Actor
from causerie.errors import InvalidRequest, NotFound, ServiceError
from causerie.operations.configuring import Configuring, EntryView
from causerie.operations.trial import ListedModel
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


def named(
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
    found = named(entries, "provider", name, locked=False)
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


def number(text: str) -> int | float | str:
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
    """Return an advice as a sentence: those of settings go on from the name of the setting."""
    if words.startswith(("is ", "are ")):
        words = f"{'It' if words.startswith('is ') else 'They'} {words}"
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith(('.', '?', '!')) else '.'}"
