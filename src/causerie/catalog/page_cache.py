"""The router's catalog as bytes: filtered, sorted, and made once for many answers."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from operator import itemgetter
from urllib.parse import parse_qsl, urlencode

import brotli
import msgspec

from causerie.catalog.listing import Listing
from causerie.errors import InvalidRequest
from causerie.http.event_loop import Turns, offload
from causerie.protocol.model_entries import PageLinks, PageTail
from causerie.protocol.numbers import money, whole_number

# Names are those that clients of the well-known aggregating router send. Unknown values are
# rejected: an ignored filter would show entries that it should exclude.

MOST_ENTRIES = 1000
_NAMES = (
    *("supported_parameters", "output_modalities", "model_authors", "providers", "q", "context"),
    *("min_price", "max_price", "sort", "offset", "limit"),
)


SortKey = Callable[[Listing], Decimal | float]
SORTS: Mapping[str, SortKey] = {
    "pricing-low-to-high": lambda one: one.price,
    "pricing-high-to-low": lambda one: -one.price,
    "context-high-to-low": lambda one: -(one.context_length or 0),
    "throughput-high-to-low": lambda one: -(one.throughput or 0.0),
    "latency-low-to-high": lambda one: float("inf") if one.latency is None else one.latency,
    "newest": lambda one: -one.created,
}


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of ``GET /models``; ``limit`` ``None`` shows all. Prices: see ``Tariff.usual``."""

    given: Mapping[str, str] = field(default_factory=dict)
    offset: int = 0
    limit: int | None = None
    context: int = 0
    min_price: Decimal | None = None
    max_price: Decimal | None = None

    @staticmethod
    def parse(query: str) -> Filters:
        try:
            given = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=64))
        except ValueError as error:
            raise InvalidRequest("The query has more than 64 parts; send fewer.") from error
        for name in given:
            if name not in _NAMES:
                known = ", ".join(_NAMES)
                raise _build_filter_error(name, f"is no filter of this catalog; there are {known}.")
        sort = given.get("sort")
        if sort is not None and sort not in SORTS:
            raise _build_filter_error("sort", f"must be one of {', '.join(SORTS)}.")
        return Filters(
            given,
            offset=_parse_number_filter(given, "offset", 0, 2**31) or 0,
            limit=_parse_number_filter(given, "limit", 1, MOST_ENTRIES),
            context=_parse_number_filter(given, "context", 0, 2**31) or 0,
            min_price=_parse_money_filter(given, "min_price"),
            max_price=_parse_money_filter(given, "max_price"),
        )

    async def of(self, entries: Sequence[Listing]) -> Sequence[Listing]:
        wanted = self._split_filter_values("supported_parameters")
        returned = self._split_filter_values("output_modalities") or frozenset({"text"})
        authors = self._split_filter_values("model_authors")
        providers = self._split_filter_values("providers")
        text = self.given.get("q", "").lower()
        low, high = self.min_price, self.max_price

        def fits(one: Listing) -> bool:
            return (
                wanted <= one.supported
                and ("all" in returned or not returned.isdisjoint(one.output_modalities))
                and (not authors or one.id.partition("/")[0] in authors)
                and (not providers or not providers.isdisjoint(one.providers))
                and text in one.id.lower()
                and self.context <= (one.context_length or 0)
                and (low is None or low <= one.price)
                and (high is None or one.price <= high)
            )

        key: SortKey = SORTS.get(self.given.get("sort", ""), lambda _: 0)
        turns, found = Turns(), []
        for one in entries:
            if fits(one):
                found.append((key(one), one))
            await turns.pause()
        return [one for _, one in sorted(found, key=itemgetter(0))]

    def _split_filter_values(self, filter_name: str) -> frozenset[str]:
        return frozenset(word for word in self.given.get(filter_name, "").split(",") if word)


def _parse_number_filter(
    query_fields: Mapping[str, str], filter_name: str, least: int, most: int
) -> int | None:
    text = query_fields.get(filter_name)
    if text is None:
        return None
    number = whole_number(text, most)
    if number is None or number < least:
        raise _build_filter_error(filter_name, f"must be a whole number from {least} to {most}.")
    return number


def _parse_money_filter(query_fields: Mapping[str, str], filter_name: str) -> Decimal | None:
    text = query_fields.get(filter_name)
    if text is None:
        return None
    try:
        return money(text)
    except ValueError as failure:
        advice = f"must be an amount of money per 1M tokens: {failure}."
        raise _build_filter_error(filter_name, advice) from failure


def _build_filter_error(name: str, advice: str) -> InvalidRequest:
    return InvalidRequest(f"`{name[:100]}` {advice}", code="invalid_value", param=name[:100])


_FRESH_SECONDS = 2.0
_MOST_PAGES = 256
_MOST_BYTES = 32 * 1024 * 1024
_GZIP_LEVEL = 1
_GZIP_BEST = 9
_BROTLI_BEST, _BROTLI_FAST = 11, 5
_BROTLI_LARGE = 256 * 1024  # bytes
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class CachedPage:
    """A page; ``etag`` is a digest of the body before compression."""

    body: bytes
    etag: str
    _gzip_body: bytes = b""
    lasting: bool = False  # the same for as long as the service runs: worth the smallest form
    _brotli_body: bytes = b""

    async def small(self) -> bytes:
        if not self._gzip_body:
            level = _GZIP_BEST if self.lasting else _GZIP_LEVEL
            self._gzip_body = await offload(gzip.compress, self.body, level, mtime=0)
        return self._gzip_body

    async def smallest(self) -> bytes:
        """Return the body in Brotli, compressed once; above 256 KB less tightly, to be faster."""
        if not self._brotli_body:
            level = _BROTLI_BEST if len(self.body) <= _BROTLI_LARGE else _BROTLI_FAST
            self._brotli_body = await offload(partial(brotli.compress, self.body, quality=level))
        return self._brotli_body

    @property
    def size(self) -> int:
        return len(self.body) + len(self._gzip_body)


class CatalogCache:
    """Pages of the catalog, kept for seconds; entries are encoded again only after a change."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The oldest page comes first.
        self._dated_page_by_request: dict[tuple[str, str, str], tuple[float, CachedPage]] = {}
        self._json_with_sources_by_id: dict[str, tuple[Listing, object, bytes]] = {}
        self._page_build_lock = asyncio.Lock()  # one page is written at a time

    async def page(
        self, door: str, path: str, query: str, entries: Callable[[], Sequence[Listing]]
    ) -> CachedPage:
        place = door, path, query
        if (kept := self._find_fresh_page(place)) is not None:
            return kept
        filters = Filters.parse(query)
        async with self._page_build_lock:
            if (kept := self._find_fresh_page(place)) is not None:
                return kept
            page = await self.made(path, filters, entries())
            _, old = self._dated_page_by_request.pop(place, (0.0, page))
            if old.etag == page.etag:
                page = old
            self._dated_page_by_request[place] = self._clock(), page
            while (
                len(self._dated_page_by_request) > _MOST_PAGES
                or sum(one.size for _, one in self._dated_page_by_request.values()) > _MOST_BYTES
            ):
                del self._dated_page_by_request[next(iter(self._dated_page_by_request))]
        return page

    def _find_fresh_page(self, door_path_query: tuple[str, str, str]) -> CachedPage | None:
        at, page = self._dated_page_by_request.get(door_path_query, (float("-inf"), None))
        return page if self._clock() - at < _FRESH_SECONDS else None

    async def made(self, path: str, filters: Filters, entries: Sequence[Listing]) -> CachedPage:
        found = await filters.of(entries)
        last = None if filters.limit is None else filters.offset + filters.limit
        shown = found[filters.offset : last]
        following = None
        if last is not None and last < len(found):
            following = f"{path}?{urlencode({**filters.given, 'offset': str(last)})}"
        tail = PageTail(total_count=len(found), links=PageLinks(next=following))
        written, turns = [], Turns()
        for one in shown:
            written.append(self._encode_model(one))
            await turns.pause()
        body = b'{"data":[' + b",".join(written) + b"]," + _encode(tail)[1:]
        digest = hashlib.blake2b(body, digest_size=12).hexdigest()
        return CachedPage(body, f'W/"{digest}"')

    def _encode_model(self, listing: Listing) -> bytes:
        kept, profiles = self._json_with_sources_by_id.get(listing.id), listing.profiles
        if kept is not None and kept[0] is listing and kept[1] == profiles:
            return kept[2]
        written = _encode(listing.entry())
        self._json_with_sources_by_id[listing.id] = listing, profiles, written
        return written
