"""Items that a list may hold, and the grammar of lists. Knows no notation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from causerie.chat.call_syntax.base import Schema
from causerie.chat.call_syntax.choices import choices, definitions, part_of


@dataclass(frozen=True, slots=True)
class Items:
    """The ``first`` items each by its own schema, all others by ``rest`` (``None``: no others)."""

    first: tuple[Schema, ...]
    rest: Schema | None
    least: int
    most: int | None

    def grammar(self, write: Callable[[Schema], str], separator: str) -> str | None:
        """Items as ``write`` has them, ``separator`` between; ``None`` where none are enough."""
        first = self.first if self.most is None else self.first[: self.most]
        rest = self.rest if self.most is None or self.most > len(first) else None
        if not first and rest is not None:
            return self._alike(write(rest), separator)
        if self.least > len(first) and rest is None:
            return None
        out = ""
        if rest is not None:
            most = "" if self.most is None else self.most - len(first)
            fewest = max(self.least - len(first), 0)
            out = f"({separator} {write(rest)}){{{fewest},{most}}}"
        for at, schema in reversed(list(enumerate(first))):
            one = f"{separator if at else ''} {write(schema)} {out}"
            out = one if at < self.least else f"({one})?"
        return out.strip() or '""'

    def _alike(self, item: str, separator: str) -> str:
        most = "" if self.most is None else self.most - 1
        more = f"({separator} {item}){{{max(self.least - 1, 0)},{most}}}" if most != 0 else ""
        filled = f"{item} {more}"
        return filled if self.least else f"({filled})?"


def items_of(choice: Schema) -> Items:
    """Return the items that an array schema admits; the list ends at an item that cannot exist."""
    items, first = choice.get("items", True), choice.get("prefixItems", [])
    if isinstance(items, list):
        first, items = items, choice.get("additionalItems", True)
    possible: list[Schema] = []
    for schema in first if isinstance(first, list) else ():
        of = part_of(choice, schema)
        if of is None or not choices(of):
            items = False
            break
        possible.append(of)
    rest = part_of(choice, items)
    low, high = choice.get("minItems", 0), choice.get("maxItems")
    return Items(
        tuple(possible),
        rest if rest is not None and choices(rest) else None,
        low if isinstance(low, int) else 0,
        high if isinstance(high, int) else None,
    )


def item_in(schema: Schema, at: int) -> Schema:
    """Return the schema of the item ``at``; alternatives of ``schema`` are combined."""
    found = []
    for choice in choices(schema):
        items = items_of(choice)
        of = items.first[at] if at < len(items.first) else items.rest
        if of is not None and of not in found:
            found.append(of)
    if len(found) > 1:
        return {"anyOf": found, **definitions(schema)}
    return found[0] if found else {}
