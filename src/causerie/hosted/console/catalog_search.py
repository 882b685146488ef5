"""Search of the catalog by the fields of its page's form, and estimates of a month's costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from operator import itemgetter
from typing import Any, TypeVar
from urllib.parse import urlencode

from causerie.catalog.listing import Listing
from causerie.errors import InvalidRequest
from causerie.hosted.console.catalog_view import Offer, gives, providers_of
from causerie.hosted.console.fields import ROWS, FormFields, rows_of, typed_money, typed_whole
from causerie.hosted.console.words import CHOICES
from causerie.http.event_loop import Turns
from causerie.protocol.events import Usage
from causerie.protocol.money import amount_of

_FAR = float("inf")
_LONGEST = 200
_MOST = 10**10 - 1


Row = TypeVar("Row")
Key = Callable[[Offer], tuple[Decimal | float | str, ...]]
SORTS: Mapping[str, tuple[str, Key]] = {
    "popular": ("Popular", lambda one: (-one.created,)),  # where the numbers of tokens are equal
    "newest": ("Newest", lambda one: (-one.created,)),
    "name": ("Name", lambda one: ()),
    "price": ("Price", lambda one: (one.price,)),
    "throughput": ("Throughput", lambda one: (-(one.throughput or 0.0),)),
    "latency": ("Latency", lambda one: (_FAR if one.latency is None else one.latency,)),
    "context": ("Context", lambda one: (-(one.context_length or 0),)),
}


_FIELDS = frozenset(
    ("q", "cost", "max", "context", "author", "parameter", "takes", "gives", "ending", "provider")
)


@dataclass(frozen=True, slots=True)
class CatalogQuery:
    """A search; ``most`` bounds the price of a million tokens, of which 3 in 4 are input."""

    text: str = ""
    cost: str = ""
    most: Decimal | None = None
    context: int = 0
    author: str = ""
    parameters: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    ending: str = ""
    provider: str = ""
    sort: str = "newest"
    page: int = 1
    rows: int = ROWS[0]
    usual: str = "newest"
    """The order where none is asked for."""
    _filters: Sequence[tuple[str, str]] = ()
    """Fields of the form that narrow the search, for addresses."""

    @staticmethod
    def parse(query: FormFields, usual: str = "newest") -> CatalogQuery:
        return CatalogQuery(
            text=query.get("q")[:_LONGEST],
            cost=query.one_of("cost", CHOICES["catalog"]["costs"]),
            most=typed_money(query.get("max"), "max") if query.get("max") else None,
            context=typed_whole(query.get("context") or "0", "context", "Context", _MOST),
            author=query.get("author")[:_LONGEST],
            parameters=tuple(filter(None, query.every("parameter"))),
            takes=tuple(filter(None, query.every("takes"))),
            gives=tuple(filter(None, query.every("gives"))),
            ending=query.one_of("ending", CHOICES["catalog"]["endings"]),
            provider=query.get("provider")[:_LONGEST],
            sort=query.one_of("sort", SORTS, usual),
            page=max(typed_whole(query.get("page") or "1", "page", "Page", _MOST), 1),
            rows=rows_of(query.get("rows")),
            usual=usual,
            _filters=[(name, text) for name, text in query if name in _FIELDS and text.strip()],
        )

    @property
    def narrows(self) -> bool:
        return bool(self._filters)

    async def of(
        self, entries: Sequence[Offer], tokens: Mapping[str, int] | None = None
    ) -> Sequence[Offer]:
        """Return the matching entries in order, without blocking the event loop for long.

        ``tokens`` by id decide which are popular.
        """
        used = (tokens or {}) if self.sort == "popular" else {}
        words, key = self.text.casefold().split(), SORTS[self.sort][1]
        turns, found = Turns(), list[tuple[Any, Offer]]()
        for one in entries:
            if self._matches_filters(one) and (not words or _contains_all_words(one, words)):
                place = (-used.get(one.id, 0), *key(one), one.card.name.casefold(), one.id)
                found.append((place, one))
            await turns.pause()
        return [one for _, one in sorted(found, key=itemgetter(0))]

    def on_page(self, found: Sequence[Row]) -> Sequence[Row]:
        start = (self.page - 1) * self.rows
        return found[start : start + self.rows]

    def address(self, page: int = 1) -> str:
        usual = ("sort", self.usual), ("rows", ROWS[0]), ("page", 1)
        asked = ("sort", self.sort), ("rows", self.rows), ("page", page)
        return "?" + urlencode([*self._filters, *(each for each in asked if each not in usual)])

    def with_rows(self, rows: int) -> str:
        return replace(self, rows=rows).address()

    def sorted_by(self, sort: str) -> str:
        return replace(self, sort=sort).address()

    def _matches_filters(self, offer: Offer) -> bool:
        return (
            (not self.cost or (offer.price == 0) == (self.cost == "free"))
            and (self.most is None or offer.price <= self.most)
            and (not self.author or offer.id.partition("/")[0] == self.author)
            and (not self.provider or self.provider in providers_of(offer))
            and (not self.ending or (offer.ends is not None) == (self.ending == "ending"))
            and (not self.parameters or offer.parameters.issuperset(self.parameters))
            and (not self.takes or offer.input_modalities.issuperset(self.takes))
            and (not self.gives or gives(offer).issuperset(self.gives))
            and (not self.context or self.context <= (offer.context_length or 0))
        )


def _contains_all_words(offer: Offer, folded_words: Sequence[str]) -> bool:
    text = f"{offer.id}\n{offer.card.name}\n{offer.card.description}".casefold()
    return all(word in text for word in folded_words)


_MOST_TOKENS = 1_000_000_000
_COUNTS: Mapping[str, tuple[str, int]] = {
    "in": ("input tokens", 1000),
    "cached": ("cached tokens", 0),
    "out": ("output tokens", 500),
    "thinking": ("thinking tokens", 0),
    "requests": ("requests", 10_000),
}
"""Fields of the form: what they count, and the usual number."""


@dataclass(frozen=True, slots=True)
class CostAssumptions:
    """Tokens of one request, and how many requests a month."""

    usage: Usage
    requests: int

    @staticmethod
    def parse(query: FormFields) -> CostAssumptions:
        counts = {name: _parse_count_or_default(query, name) for name in _COUNTS}
        for part, whole in (("cached", "in"), ("thinking", "out")):
            if counts[part] > counts[whole]:
                raise InvalidRequest(
                    f"{counts[part]:,} {_COUNTS[part][0]} are more than the {counts[whole]:,} "
                    f"{_COUNTS[whole][0]}.",
                    param=part,
                )
        usage = Usage(counts["in"], counts["out"], counts["cached"], counts["thinking"])
        return CostAssumptions(usage, counts["requests"])


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Costs at one endpoint; ``share`` is the percentage of the most expensive."""

    variant: str
    provider: str
    target: str
    request: Decimal
    month: Decimal
    share: int


def costs(variants: Sequence[Listing], load: CostAssumptions) -> Sequence[CostEstimate]:
    found = [
        (one.id, each, amount_of(each.tariff.cost(load.usage)))
        for one in variants
        for each in one.endpoints
    ]
    dearest, made = max((cost for *_, cost in found), default=Decimal(0)), []
    for variant, each, cost in found:
        share = int(cost * 100 / dearest) if dearest else 0
        month = cost * load.requests
        made.append(CostEstimate(variant, each.provider, each.name, cost, month, share))
    return sorted(made, key=lambda each: (each.month, each.variant, each.target))


def _parse_count_or_default(query: FormFields, field_name: str) -> int:
    title, usual = _COUNTS[field_name]
    if text := query.get(field_name):
        return typed_whole(text, field_name, title, _MOST_TOKENS)
    return usual if field_name not in query else 0


USUAL_LOAD = CostAssumptions.parse(FormFields())
