"""Doors, limits and bounds of the server from the settings; the pages at `/` and `/docs`.

A page is made when it is first asked for, so that a gateway whose pages nobody opens keeps its
memory. With accounts `/` leads to the console.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from causerie.access.keys import FreeScopes, KeyDigest
from causerie.access.limits import Rates, RateScope, ScopeKind
from causerie.access.networks import Network, NetworkList
from causerie.http import doors
from causerie.http.api import RequestLimits
from causerie.http.application import Edge
from causerie.http.doors import DoorTable, Origins, nothing_at
from causerie.http.exchange import BodyLimits, Exchange
from causerie.http.routing import method_not_allowed
from causerie.pipeline import Scopes
from causerie.protocol.alike import alike
from causerie.protocol.bounded_json import Bounds
from causerie.protocol.model_entries import free_name
from causerie.settings import values as configured
from causerie.settings.console import BrandingSettings
from causerie.settings.doors import (
    DoorAddress,
    chat_base_urls,
    default_address,
    door_addresses,
    has_accounts,
    has_chat_page,
    is_private,
)
from causerie.settings.provider import is_loopback
from causerie.settings.tree import ServerSettings, Settings

if TYPE_CHECKING:
    from causerie.http.pages.branding import Branding
    from causerie.http.pages.chat import ChatPage
    from causerie.http.pages.docs import DocsPage


_BYTES_A_VALUE = 14  # of a request outside its texts, on average


def door_table(settings: Settings, proxies: tuple[Network, ...] = ()) -> DoorTable:
    names = list(settings.server.hosts)  # that are neither the service's domain nor a door's
    if settings.console.address is not None:
        names.append(urlsplit(settings.console.address).hostname or "")
    return DoorTable(
        [_build_mounted_door(way, settings.server, proxies) for way in door_addresses(settings)],
        default=default_address(settings).door.name,
        domains=[settings.server.public_host],
        names=names,
        private=is_private(settings.server.host),
    )


def limits(server: ServerSettings) -> RequestLimits:
    return alike(
        RequestLimits,
        server,
        body=BodyLimits(max_bytes=server.max_body_bytes, seconds=server.body_seconds),
        work=Bounds(
            nesting=server.max_nesting,
            values=server.max_values,
            escapes=server.max_escapes,
            bare=max(Bounds().bare, _BYTES_A_VALUE * server.max_values),
        ),
    )


def scopes(settings: Settings, busy: Callable[[str], bool]) -> Scopes:
    """Return the rate scopes of models, doors and free use; free use avoids ``busy`` targets."""
    models = {one.id: one.limits for one in settings.models}
    models |= {one.id: one.limits for one in settings.aliases}
    models |= {one.id: one.limits for one in settings.catalog}
    doors = {way.door.name: way.door.limits for way in door_addresses(settings)}
    doors |= {free_name(name): each for name, each in doors.items()}
    rates = Rates(
        requests_per_minute=settings.free.requests_per_minute, concurrent=settings.free.concurrent
    )
    free = FreeScopes(rates, busy)
    return Scopes(_build_rate_scopes("model", models), _build_rate_scopes("door", doors), free)


def _build_rate_scopes(
    kind: ScopeKind, limits_by_name: Mapping[str, configured.LimitSettings]
) -> Mapping[str, RateScope]:
    rates = {name: alike(Rates, each) for name, each in limits_by_name.items()}
    return {name: RateScope(kind, name, each) for name, each in rates.items() if each != Rates()}


def _build_mounted_door(
    address: DoorAddress, server_settings: ServerSettings, trusted_proxies: tuple[Network, ...]
) -> doors.MountedDoor:
    keys = address.door.keys
    origins = server_settings.origins if address.door.origins is None else address.door.origins
    local = origins is None and not isinstance(keys, tuple) and keys != "accounts"
    usual_scope = "project" if keys == "accounts" else "service"
    return doors.MountedDoor(
        name=address.door.name,
        prefix=address.prefix,
        kind=address.door.kind,
        hosts=frozenset(address.hosts),
        keys=tuple(map(KeyDigest.parse, keys)) if isinstance(keys, tuple) else None,
        models=frozenset(address.models),
        accounts=keys == "accounts",
        reasoning_object=address.door.reasoning or address.door.kind == "router",
        reject_unknown=address.door.unknown_params == "reject",
        reject_long_output=address.door.long_output == "reject",
        open_catalog=address.door.kind == "router",
        origins=Origins.of(origins or (), local=local and is_loopback(server_settings.host)),
        separate_caches=(address.door.cache_scope or usual_scope) == "project",
        networks=NetworkList.of(address.door.networks),
        proxies=trusted_proxies,
    )


# Pages of services without accounts.


def branding(settings: BrandingSettings) -> Branding:
    from causerie.http.pages.branding import Branding  # noqa: PLC0415 - memory, for visitors only

    return Branding(settings.name, settings.accent, settings.terms, settings.contact)


_CHAT_STATIC = "/console/static"
_DOCS = "/docs"
_DOCS_STATIC = f"{_DOCS}/static"
_READING = ("GET", "HEAD")


def mount_chat_page(edge: Edge, settings: Callable[[], Settings]) -> None:
    """Serve the chat page at `/`, while the settings in force want it."""

    @cache
    def page() -> ChatPage:
        from causerie.http.pages.chat import ChatPage  # noqa: PLC0415 - memory, for visitors only

        return ChatPage(_CHAT_STATIC, branding(settings().branding))

    async def answer(exchange: Exchange) -> None:
        shown = has_chat_page(settings())
        if shown and exchange.path.startswith(f"{_CHAT_STATIC}/") and exchange.method in _READING:
            await (await asyncio.to_thread(page)).statics.answer(exchange)
            return
        if _answer_non_browser(exchange, settings().server):
            return
        if not shown:
            raise nothing_at(exchange.path)
        await (await asyncio.to_thread(page)).show(exchange, chat_base_urls(settings()))

    edge.mount("/", answer)
    edge.mount("/console", answer)


def leading_to(location: str, server: ServerSettings) -> Callable[[Exchange], Awaitable[None]]:

    async def answer(exchange: Exchange) -> None:
        if _answer_non_browser(exchange, server):
            return
        headers = {"location": location, "vary": "accept", "cache-control": "no-store"}
        exchange.respond(302, b"", headers=headers)

    return answer


_AT_ROOT = """This is the address of a chat-completions service. A browser gets a page here.

GET  /v1/models             the models
POST /v1/chat/completions   ask one; also /v1/responses and /v1/messages
GET  /health                whether it can answer
"""


def _answer_non_browser(exchange: Exchange, server: ServerSettings) -> bool:
    """Answer a client that is no browser with a text on `/`; return whether that was done.

    Raises :class:`NotFound` for another path or method.
    """
    if exchange.path != "/" or exchange.method not in _READING:
        raise nothing_at(exchange.path)
    if "text/html" in exchange.headers.get("accept", "").lower():
        return False
    text = _AT_ROOT + (f"GET  {_DOCS}                  how clients use it\n" if server.docs else "")
    exchange.respond(200, text.encode(), content_type="text/plain; charset=utf-8")
    return True


def mount_docs(edge: Edge, settings: Callable[[], Settings]) -> None:
    """Serve the page at `/docs`, while the settings in force want it."""

    @cache
    def page() -> DocsPage:
        from causerie.http.pages.docs import DocsPage  # noqa: PLC0415 - memory, for visitors only

        now = settings()
        return DocsPage(_DOCS_STATIC, branding(now.branding), now.server.max_messages)

    async def answer(exchange: Exchange) -> None:
        now, path = settings(), exchange.path
        is_file = path.startswith(f"{_DOCS_STATIC}/")
        if not now.server.docs or not (is_file or path == _DOCS):
            raise nothing_at(path)
        if exchange.method not in _READING:
            raise method_not_allowed(exchange.method, ["GET"])
        if is_file:
            await (await asyncio.to_thread(page)).statics.answer(exchange)
            return
        routers = (one.prefix for one in door_addresses(now) if one.door.kind == "router")
        base_urls, router = chat_base_urls(now), next(routers, "")
        home = "Console" if has_accounts(now) else "Chat" if has_chat_page(now) else ""
        await (await asyncio.to_thread(page)).show(exchange, base_urls, router, home)

    edge.mount(_DOCS, answer, at_doors=True)
