"""Pages that a service has without accounts: the chat page at `/`, and `/docs`.

Each is made when it is first asked for, so that a gateway whose pages nobody opens keeps its
memory. With accounts `/` leads to the console.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from causerie.http.application import Edge
from causerie.http.doors import nothing_at
from causerie.http.exchange import Exchange
from causerie.http.routing import method_not_allowed
from causerie.settings.console import BrandingSettings
from causerie.settings.doors import chat_base_urls, door_addresses, has_chat_page
from causerie.settings.tree import Settings

if TYPE_CHECKING:
    from causerie.http.pages.branding import Branding
    from causerie.http.pages.chat import ChatPage
    from causerie.http.pages.docs import DocsPage


def branding(settings: BrandingSettings) -> Branding:
    from causerie.http.pages.branding import Branding  # noqa: PLC0415 - memory, for visitors only

    return Branding(settings.name, settings.accent, settings.terms, settings.contact)


_CHAT_STATIC = "/console/static"
_DOCS = "/docs"
_DOCS_STATIC = f"{_DOCS}/static"
P = TypeVar("P")


def _made_once(make: Callable[[], P]) -> Callable[[], Awaitable[P]]:
    made, lock = list[P](), asyncio.Lock()

    async def page() -> P:
        async with lock:
            if not made:
                made.append(await asyncio.to_thread(make))
            return made[0]

    return page


class FrontPage:
    """The chat page, while the settings in force want it."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._page = _made_once(lambda: _chat_page(settings().branding))

    def mount(self, edge: Edge) -> None:
        edge.mount("/", self.answer)
        edge.mount("/console", self.answer_static)

    async def answer(self, exchange: Exchange) -> None:
        if not (has_chat_page(self._settings()) and _browser_at_root(exchange)):
            raise nothing_at(exchange.path)
        await (await self._page()).show(exchange, chat_base_urls(self._settings()))

    async def answer_static(self, exchange: Exchange) -> None:
        below = exchange.path.startswith(f"{_CHAT_STATIC}/")
        if not (has_chat_page(self._settings()) and below and exchange.method in ("GET", "HEAD")):
            raise nothing_at(exchange.path)
        await (await self._page()).statics.answer(exchange)


def _chat_page(settings: BrandingSettings) -> ChatPage:
    from causerie.http.pages.chat import ChatPage  # noqa: PLC0415 - memory, for visitors only

    return ChatPage(_CHAT_STATIC, branding(settings))


def leading_to(location: str) -> Callable[[Exchange], Awaitable[None]]:

    async def answer(exchange: Exchange) -> None:
        if not _browser_at_root(exchange):
            raise nothing_at(exchange.path)
        headers = {"location": location, "vary": "accept", "cache-control": "no-store"}
        exchange.respond(302, b"", headers=headers)

    return answer


def _browser_at_root(exchange: Exchange) -> bool:
    wants_page = "text/html" in exchange.headers.get("accept", "").lower()
    return exchange.path == "/" and exchange.method in ("GET", "HEAD") and wants_page


class DocsMount:
    """The page at `/docs`, while the settings in force want it."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._page = _made_once(lambda: _docs_page(settings()))

    def mount(self, edge: Edge) -> None:
        edge.mount(_DOCS, self.answer, at_doors=True)

    async def answer(self, exchange: Exchange) -> None:
        settings, path = self._settings(), exchange.path
        is_file = path.startswith(f"{_DOCS_STATIC}/")
        if not settings.server.docs or not (is_file or path == _DOCS):
            raise nothing_at(path)
        if exchange.method not in ("GET", "HEAD"):
            raise method_not_allowed(exchange.method, ["GET"])
        page = await self._page()
        if is_file:
            await page.statics.answer(exchange)
            return
        doors = door_addresses(settings)
        router = next((each.prefix for each in doors if each.door.kind == "router"), "")
        await page.show(exchange, chat_base_urls(settings), router)


def _docs_page(settings: Settings) -> DocsPage:
    from causerie.http.pages.docs import DocsPage  # noqa: PLC0415 - memory, for visitors only

    return DocsPage(_DOCS_STATIC, branding(settings.branding), settings.server.max_messages)
