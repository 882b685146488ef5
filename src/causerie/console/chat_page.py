"""The chat page of a service without accounts: one page, whose script is a client of the API.

The page holds nothing of the service but the paths of its doors. Models come from `GET /models`
and replies from `POST /chat/completions`, with the key that the visitor types, if a door wants
one. Whoever opens the page can therefore do and see what the API lets them, and no more.
"""

from __future__ import annotations

from hashlib import blake2b

from causerie.catalog.page_cache import CachedPage
from causerie.console.branding import Branding
from causerie.console.playground_fields import SCHEMA, TOOLS, number_fields
from causerie.console.security import HEADERS
from causerie.console.statics import Statics
from causerie.console.templating import environment
from causerie.edge.cached import send_cached
from causerie.edge.exchange import Exchange

_HTML = "text/html; charset=utf-8"


class ChatPage:
    """The page, and the scripts and styles that it loads."""

    def __init__(self, static_prefix: str, brand: Branding) -> None:
        self._statics = Statics(static_prefix, brand.style())
        self._template = environment(self._statics, brand).get_template("chat.html")
        self._pages: dict[tuple[str, ...], CachedPage] = {}

    async def show(self, exchange: Exchange, base_urls: tuple[str, ...]) -> None:
        """Answer with the page; ``base_urls`` are the paths of the doors that it offers."""
        kept = self._pages.get(base_urls)
        if kept is None:
            kept = self._rendered(base_urls)
            self._pages = {base_urls: kept}  # a reload replaces what it was before
        headers = {**HEADERS, "cache-control": "no-cache", "vary": "accept, accept-encoding"}
        await send_cached(exchange, kept, headers, content_type=_HTML)

    def _rendered(self, base_urls: tuple[str, ...]) -> CachedPage:
        body = self._template.render(
            base_urls=base_urls,
            doors=(),  # the script knows by which address it came
            numbers=number_fields(),
            example_tools=TOOLS,
            example_schema=SCHEMA,
            keys_at="",
        ).encode()
        return CachedPage(body, f'W/"{blake2b(body, digest_size=12).hexdigest()}"')

    async def send_static(self, exchange: Exchange) -> None:
        """Send a script, style or picture; raises :class:`NotFound`."""
        await self._statics.answer(exchange)
