"""Answers that are compressed where that is accepted; of those that clients cache, one a change."""

from __future__ import annotations

import gzip
from collections.abc import Mapping

from causerie.catalog.page_cache import CachedPage
from causerie.edge.exchange import Exchange
from causerie.runtime.offload import offload

_GZIP_LEVEL = 6


async def send_cached(
    exchange: Exchange,
    page: CachedPage,
    headers: Mapping[str, str],
    *,
    content_type: str = "application/json",
    status: int = 200,
) -> None:
    """Answer with the page, or instead of 200 with 304 if the client has it already."""
    headers = {"vary": "accept-encoding", **headers, "etag": page.etag}
    body = page.body
    if exchange.headers.take_gzip:
        body, headers["content-encoding"] = await page.small(), "gzip"
    known = exchange.headers.get("if-none-match", "") if status == 200 else ""
    if known and (known.strip() == "*" or page.etag.removeprefix("W/") in known):
        exchange.start(304, content_type, headers, len(body))  # the length of the whole answer
        exchange.end()
    else:
        exchange.respond(status, body, content_type=content_type, headers=headers)


async def send_compressed(
    exchange: Exchange,
    body: bytes,
    headers: Mapping[str, str],
    *,
    content_type: str = "application/json",
) -> None:
    """Answer with status 200 and a body of this moment, which nobody caches."""
    headers = {"vary": "accept-encoding", **headers}
    if exchange.headers.take_gzip:
        body = await offload(gzip.compress, body, _GZIP_LEVEL, mtime=0)
        headers["content-encoding"] = "gzip"
    exchange.respond(200, body, content_type=content_type, headers=headers)
