"""Answers `/docs`, and the files of that page below it, while the settings want documentation.

The page is made when it is first asked for, so that a service whose documentation nobody reads
keeps its memory. It brings its own files: the console may have an address of its own, or be off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from causerie.edge.application import Edge
from causerie.edge.doors import nothing_at
from causerie.edge.errors import method_not_allowed
from causerie.edge.exchange import Exchange
from causerie.settings import Settings
from causerie.settings.addresses import door_addresses
from causerie.settings.front_page import chat_base_urls

if TYPE_CHECKING:
    from causerie.console.docs_page import DocsPage

_PATH = "/docs"
_STATIC = f"{_PATH}/static"


class DocsMount:
    """The page, by the settings in force."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._page: DocsPage | None = None
        self._making = asyncio.Lock()

    def mount(self, edge: Edge) -> None:
        """Answer at `/docs`, also at the host names of doors."""
        edge.mount(_PATH, self.answer, at_doors=True)

    async def answer(self, exchange: Exchange) -> None:
        """Send the page or one of its files; raises :class:`ServiceError`."""
        settings, path = self._settings(), exchange.path
        is_file = path.startswith(f"{_STATIC}/")
        if not settings.server.docs or not (is_file or path == _PATH):
            raise nothing_at(path)
        if exchange.method not in ("GET", "HEAD"):
            raise method_not_allowed(exchange.method, ["GET"])
        async with self._making:
            if self._page is None:
                self._page = await asyncio.to_thread(_page, settings)
        if is_file:
            await self._page.send_static(exchange)
            return
        doors = door_addresses(settings)
        router = next((each.prefix for each in doors if each.door.kind == "router"), "")
        await self._page.show(exchange, chat_base_urls(settings), router)


def _page(settings: Settings) -> DocsPage:
    from causerie.composition.branding import branding  # noqa: PLC0415 - memory, for readers only
    from causerie.console.docs_page import DocsPage  # noqa: PLC0415

    return DocsPage(_STATIC, branding(settings.branding), settings.server.max_messages)
