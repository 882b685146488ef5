"""The page at `/docs`: the interface for people, with examples that run from the page.

The page holds nothing of the service but the OpenAPI document and paths of doors. Its script asks
this service alone, as any client of the API, with the key that the visitor types; the key stays in
the field.
"""

from __future__ import annotations

from hashlib import blake2b

from causerie.catalog.page_cache import CachedPage
from causerie.console.api_reference import ROUTER, reference
from causerie.console.branding import Branding
from causerie.console.security import HEADERS
from causerie.console.statics import Statics
from causerie.console.templating import environment
from causerie.edge.cached import send_cached
from causerie.edge.exchange import Exchange
from causerie.edge.openapi import document

_HTML = "text/html; charset=utf-8"


class DocsPage:
    """The page for a document, and the scripts and styles that it loads."""

    def __init__(self, static_prefix: str, brand: Branding, max_messages: int) -> None:
        self._statics = Statics(static_prefix, brand.style())
        self._template = environment(self._statics, brand).get_template("docs.html")
        self._reference = reference(document(max_messages))
        self._pages: dict[tuple[tuple[str, ...], str], CachedPage] = {}

    async def show(self, exchange: Exchange, base_urls: tuple[str, ...], router: str) -> None:
        """Answer with the page.

        ``base_urls`` are the paths of the doors that it offers; ``router`` is that of a door of a
        router, or empty: the page then leaves the operations of routers out.
        """
        kept = self._pages.get((base_urls, router))
        if kept is None:
            kept = self._rendered(base_urls, router)
            self._pages = {(base_urls, router): kept}  # a reload replaces what it was before
        headers = {**HEADERS, "cache-control": "no-cache"}
        await send_cached(exchange, kept, headers, content_type=_HTML)

    def _rendered(self, base_urls: tuple[str, ...], router: str) -> CachedPage:
        shown = self._reference
        groups = [each for each in shown.groups if router or each.operations[0].base != ROUTER]
        operations = [each for group in groups for each in group.operations]
        bases = {each.base for each in operations}
        bodies = {each.body.name for each in operations if each.body}
        body = self._template.render(
            reference=shown,
            groups=groups,
            objects=[
                each for each in shown.objects if each.bases & bases and each.name not in bodies
            ],
            summaries={each.id: each.summary for each in operations},
            base_urls=base_urls,
            router=router,
        ).encode()
        return CachedPage(body, f'W/"{blake2b(body, digest_size=12).hexdigest()}"')

    async def send_static(self, exchange: Exchange) -> None:
        """Send a script, style or picture; raises :class:`NotFound`."""
        await self._statics.answer(exchange)
