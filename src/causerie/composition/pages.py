"""Pages that a service has without accounts: the chat page at `/`, and `/docs`.

Each is made when it is first asked for, so that a gateway whose pages nobody opens keeps its
memory. With accounts `/` leads to the console.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from causerie.http.application import Edge
from causerie.http.doors import nothing_at
from causerie.http.errors import method_not_allowed
from causerie.http.exchange import Exchange
from causerie.settings.console import BrandingSettings, read_logo
from causerie.settings.doors import chat_base_urls, door_addresses, has_chat_page
from causerie.settings.tree import Settings

if TYPE_CHECKING:
    from causerie.http.pages.branding import Branding, Logo
    from causerie.http.pages.chat import ChatPage
    from causerie.http.pages.docs import DocsPage


# The look of the pages, from the settings.


def branding(settings: BrandingSettings) -> Branding:
    """Return name, colour and links of the pages."""
    from causerie.http.pages.branding import Branding  # noqa: PLC0415 - memory, for visitors only

    return Branding(settings.name, settings.accent, settings.terms, settings.contact)


def logos(settings: BrandingSettings) -> Mapping[str, Logo]:
    """Return the logos by their names; raise :class:`ValueError` for one that cannot be read."""
    from causerie.http.pages.branding import Logo  # noqa: PLC0415 - memory, for visitors only

    found = {name: read_logo(text) for name, text in settings.logos.items()}
    return {name: Logo(one.content_type, one.content) for name, one in found.items()}


# Answers `/` to browsers; every other client gets the answer of a path with nothing behind it.
#
# Without accounts that is the chat page, which is made when it is first asked for, so that a
# gateway whose page nobody opens keeps its memory. With accounts `/` leads to the console.

_CONSOLE = "/console"
_CHAT_STATIC = f"{_CONSOLE}/static"


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
        below = exchange.path.startswith(f"{_CHAT_STATIC}/")
        if not (has_chat_page(self._settings()) and below and exchange.method in ("GET", "HEAD")):
            raise nothing_at(exchange.path)
        page = await self._made()
        await page.send_static(exchange)

    async def _made(self) -> ChatPage:
        async with self._making:
            if self._page is None:
                self._page = await asyncio.to_thread(_chat_page, self._settings().branding)
            return self._page


def _chat_page(settings: BrandingSettings) -> ChatPage:
    # 
    from causerie.http.pages.chat import ChatPage  # noqa: PLC0415 - memory, for visitors only

    return ChatPage(_CHAT_STATIC, branding(settings))


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


# Answers `/docs`, and the files of that page below it, while the settings want documentation.
#
# The page is made when it is first asked for, so that a service whose documentation nobody reads
# keeps its memory. It brings its own files: the console may have an address of its own, or be off.

_DOCS = "/docs"
_DOCS_STATIC = f"{_DOCS}/static"


class DocsMount:
    """The page, by the settings in force."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._page: DocsPage | None = None
        self._making = asyncio.Lock()

    def mount(self, edge: Edge) -> None:
        """Answer at `/docs`, also at the host names of doors."""
        edge.mount(_DOCS, self.answer, at_doors=True)

    async def answer(self, exchange: Exchange) -> None:
        """Send the page or one of its files; raises :class:`ServiceError`."""
        settings, path = self._settings(), exchange.path
        is_file = path.startswith(f"{_DOCS_STATIC}/")
        if not settings.server.docs or not (is_file or path == _DOCS):
            raise nothing_at(path)
        if exchange.method not in ("GET", "HEAD"):
            raise method_not_allowed(exchange.method, ["GET"])
        async with self._making:
            if self._page is None:
                self._page = await asyncio.to_thread(_docs_page, settings)
        if is_file:
            await self._page.send_static(exchange)
            return
        doors = door_addresses(settings)
        router = next((each.prefix for each in doors if each.door.kind == "router"), "")
        await self._page.show(exchange, chat_base_urls(settings), router)


def _docs_page(settings: Settings) -> DocsPage:
    # 
    from causerie.http.pages.docs import DocsPage  # noqa: PLC0415

    return DocsPage(_DOCS_STATIC, branding(settings.branding), settings.server.max_messages)
