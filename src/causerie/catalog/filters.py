"""Filters and order of the router's catalog, as a query asks for them.

The names are those that clients of the well-known aggregating router send. Unknown values are
rejected: a filter that is ignored shows entries that it should exclude.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from urllib.parse import parse_qsl, urlencode

from causerie.catalog.listing import Listing
from causerie.errors import InvalidRequest
from causerie.protocol.numbers import money, whole_number
from causerie.runtime.offload import Turns

MOST_ENTRIES = 1000
_NAMES = (
    "supported_parameters",
    "output_modalities",
    "model_authors",
    "providers",
    "q",
    "context",
    "min_price",
    "max_price",
    "sort",
    "offset",
    "limit",
)


SORTS: Mapping[str, Callable[[Listing], Decimal | float]] = {
    "pricing-low-to-high": lambda one: one.price,
    "pricing-high-to-low": lambda one: -one.price,
    "context-high-to-low": lambda one: -(one.context_length or 0),
    "throughput-high-to-low": lambda one: -(one.throughput or 0.0),
    "latency-low-to-high": lambda one: float("inf") if one.latency is None else one.latency,
    "newest": lambda one: -one.created,
}


@dataclass(frozen=True, slots=True)
class Filters:
    """``given`` is the query; ``limit`` ``None`` shows all. Prices are for a usual million."""

    given: Mapping[str, str] = field(default_factory=dict)
    offset: int = 0
    limit: int | None = None
    context: int = 0
    min_price: Decimal | None = None
    max_price: Decimal | None = None

    @staticmethod
    def parse(query: str) -> Filters:
        """From what follows the question mark. Raises :class:`InvalidRequest`."""
        try:
            given = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=64))
        except ValueError as error:
            raise InvalidRequest("The query has more than 64 parts; send fewer.") from error
        for name in given:
            if name not in _NAMES:
                known = ", ".join(_NAMES)
                raise _wrong(name, f"is no filter of this catalog; there are {known}.")
        sort = given.get("sort")
        if sort is not None and sort not in SORTS:
            raise _wrong("sort", f"must be one of {', '.join(SORTS)}.")
        return Filters(
            given,
            offset=_whole(given, "offset", 0, 2**31) or 0,
            limit=_whole(given, "limit", 1, MOST_ENTRIES),
            context=_whole(given, "context", 0, 2**31) or 0,
            min_price=_money(given, "min_price"),
            max_price=_money(given, "max_price"),
        )

    @property
    def end(self) -> int | None:
        """Return the end of the page, counted in entries; ``None``: after the last of all."""
        return None if self.limit is None else self.offset + self.limit

    def query(self, *, offset: int) -> str:
        return urlencode({**self.given, "offset": str(offset)})

    async def of(self, entries: Sequence[Listing]) -> Sequence[Listing]:
        """Return those that are asked for, of all pages. They may be many, so it takes turns."""
        if not self.given:
            return entries
        wanted = self._words("supported_parameters")
        authors, providers = self._words("model_authors"), self._words("providers")
        text = self.given.get("q", "").lower()
        if not _speaks(self._words("output_modalities"), {"text"}):
            return []

        def fits(one: Listing) -> bool:
            return (
                wanted <= one.parameters
                and (not authors or one.id.partition("/")[0] in authors)
                and (not providers or not providers.isdisjoint(one.providers))
                and text in one.id.lower()
                and self.context <= (one.context_length or 0)
                and self._affordable(one.price)
            )

        turns, found = Turns(), []
        for one in entries:
            if fits(one):
                found.append(one)
            await turns.pause()
        sort = self.given.get("sort")
        return found if sort is None else await _sorted(found, SORTS[sort], turns)

    def _affordable(self, price: Decimal) -> bool:
        low, high = self.min_price, self.max_price
        return (low is None or low <= price) and (high is None or price <= high)

    def _words(self, name: str) -> frozenset[str]:
        return frozenset(word for word in self.given.get(name, "").split(",") if word)


async def _sorted(
    entries: Sequence[Listing], key: Callable[[Listing], Decimal | float], turns: Turns
) -> Sequence[Listing]:
    """Return entries in the order of a key that takes time: it is what was measured of each."""
    keys = []
    for one in entries:
        keys.append(key(one))
        await turns.pause()
    return [entries[index] for index in sorted(range(len(keys)), key=keys.__getitem__)]


def _speaks(wanted: frozenset[str], spoken: set[str]) -> bool:
    return not wanted or "all" in wanted or bool(wanted & spoken)


def _whole(given: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    number = whole_number(text, most)
    if number is None or number < least:
        raise _wrong(name, f"must be a whole number from {least} to {most}.")
    return number


def _money(given: Mapping[str, str], name: str) -> Decimal | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        return money(text)
    except ValueError as failure:
        advice = f"must be an amount of money per 1M tokens: {failure}."
        raise _wrong(name, advice) from failure


def _wrong(name: str, advice: str) -> InvalidRequest:
    return InvalidRequest(f"`{name[:100]}` {advice}", code="invalid_value", param=name[:100])
