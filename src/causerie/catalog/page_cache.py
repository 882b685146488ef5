"""The router's catalog as bytes: pages that are made once and answered many times.

Each entry is written when it is first shown, and again when something of it has
changed; a page is kept for a few seconds. Knows nothing of prices or routing
beyond what entries tell of themselves.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from causerie.catalog.filters import Filters
from causerie.catalog.listing import Listing
from causerie.protocol.model_entries import PageLinks, PageTail
from causerie.runtime.offload import Turns, offload

_FRESH_SECONDS = 2.0
_MOST_PAGES = 256
_MOST_BYTES = 32 * 1024 * 1024
_GZIP_LEVEL = 1
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class CachedPage:
    """``etag`` is a digest of the body, the same however it is sent."""

    body: bytes
    etag: str
    _small: bytes = b""

    async def small(self) -> bytes:
        """Return the body as gzip, made when it is first asked for."""
        if not self._small:
            self._small = await offload(gzip.compress, self.body, _GZIP_LEVEL, mtime=0)
        return self._small

    @property
    def size(self) -> int:
        """Bytes that keeping it takes."""
        return len(self.body) + len(self._small)


class CatalogCache:
    """Pages by whose they are and which part of the catalog."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pages: dict[tuple[str, str, str], tuple[float, CachedPage]] = {}  # the oldest first
        self._written: dict[str, tuple[Listing, object, bytes]] = {}
        self._one = asyncio.Lock()  # page at a time is written: others of the same wait for it

    async def page(
        self, door: str, path: str, query: str, entries: Callable[[], Sequence[Listing]]
    ) -> CachedPage:
        """Return the part of the catalog that the query asks for; ``entries`` gives all of it.

        Raises :class:`InvalidRequest` for a query that nobody understands.
        """
        place = door, path, query
        if (kept := self._fresh(place)) is not None:
            return kept
        filters = Filters.parse(query)
        async with self._one:
            if (kept := self._fresh(place)) is not None:
                return kept
            page = await self.made(path, filters, entries())
            _, old = self._pages.pop(place, (0.0, page))
            if old.etag == page.etag:
                page = old
            self._pages[place] = self._clock(), page
            while self._too_many():
                del self._pages[next(iter(self._pages))]
        return page

    def _fresh(self, place: tuple[str, str, str]) -> CachedPage | None:
        at, page = self._pages.get(place, (float("-inf"), None))
        return page if self._clock() - at < _FRESH_SECONDS else None

    def _too_many(self) -> bool:
        size = sum(one.size for _, one in self._pages.values())
        return size > _MOST_BYTES or len(self._pages) > _MOST_PAGES

    async def made(self, path: str, filters: Filters, entries: Sequence[Listing]) -> CachedPage:
        found = await filters.of(entries)
        first, last = filters.offset, filters.end
        shown = found[first:last]
        following = None
        if last is not None and last < len(found):
            following = f"{path}?{filters.query(offset=last)}"
        tail = PageTail(total_count=len(found), links=PageLinks(next=following))
        written, turns = [], Turns()
        for one in shown:
            written.append(self._entry(one))
            await turns.pause()
        body = b'{"data":[' + b",".join(written) + b"]," + _encode(tail)[1:]
        digest = hashlib.blake2b(body, digest_size=12).hexdigest()
        return CachedPage(body, f'W/"{digest}"')

    def _entry(self, one: Listing) -> bytes:
        kept, profiles = self._written.get(one.id), one.profiles
        if kept is not None and kept[0] is one and kept[1] == profiles:
            return kept[2]
        written = _encode(one.entry())
        self._written[one.id] = one, profiles, written
        return written
