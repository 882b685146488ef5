"""Answers `/` to browsers; every other client gets the answer of a path with nothing behind it.

Without accounts that is the chat page, which is made when it is first asked for, so that a gateway
whose page nobody opens keeps its memory. With accounts `/` leads to the console.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from causerie.edge.application import Edge
from causerie.edge.doors import nothing_at
from causerie.edge.exchange import Exchange
from causerie.settings import Settings
from causerie.settings.branding import BrandingSettings
from causerie.settings.front_page import chat_base_urls, has_chat_page

if TYPE_CHECKING:
    from causerie.console.chat_page import ChatPage

_CONSOLE = "/console"
_STATIC = f"{_CONSOLE}/static"


class FrontPage:
    """The chat page, while the settings in force want it."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._page: ChatPage | None = None
        self._making = asyncio.Lock()

    def mount(self, edge: Edge) -> None:
        """Answer at `/`, and below `/console` where its scripts and styles are."""
        edge.mount("/", self.answer)
        edge.mount(_CONSOLE, self.answer_static)

    async def answer(self, exchange: Exchange) -> None:
        """Send the page; raises :class:`NotFound` where the client or the settings want none."""
        if not (has_chat_page(self._settings()) and _browser_at_root(exchange)):
            raise nothing_at(exchange.path)
        page = await self._made()
        await page.show(exchange, chat_base_urls(self._settings()))

    async def answer_static(self, exchange: Exchange) -> None:
        """Send what the page loads; raises :class:`NotFound`."""
        below = exchange.path.startswith(f"{_STATIC}/")
        if not (has_chat_page(self._settings()) and below and exchange.method in ("GET", "HEAD")):
            raise nothing_at(exchange.path)
        page = await self._made()
        await page.send_static(exchange)

    async def _made(self) -> ChatPage:
        async with self._making:
            if self._page is None:
                self._page = await asyncio.to_thread(_make, self._settings().branding)
            return self._page


def _make(settings: BrandingSettings) -> ChatPage:
    from causerie.composition.branding import branding  # noqa: PLC0415 - as below
    from causerie.console.chat_page import ChatPage  # noqa: PLC0415 - memory, for visitors only

    return ChatPage(_STATIC, branding(settings))


def leading_to(location: str) -> Callable[[Exchange], Awaitable[None]]:
    """Return the handler of `/` that sends browsers to a page."""

    async def answer(exchange: Exchange) -> None:
        if not _browser_at_root(exchange):
            raise nothing_at(exchange.path)
        headers = {"location": location, "vary": "accept", "cache-control": "no-store"}
        exchange.respond(302, b"", headers=headers)

    return answer


def _browser_at_root(exchange: Exchange) -> bool:
    wants_page = "text/html" in exchange.headers.get("accept", "").lower()
    return exchange.path == "/" and exchange.method in ("GET", "HEAD") and wants_page
