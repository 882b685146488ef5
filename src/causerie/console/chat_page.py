"""The chat page of a service without accounts: one page, whose script is a client of the API.

The page holds nothing of the service but the paths of its doors. Models come from `GET /models`
and replies from `POST /chat/completions`, with the key that the visitor types, if a door wants
one. Whoever opens the page can therefore do and see what the API lets them, and no more.
"""

from __future__ import annotations

from collections.abc import Sequence

from causerie.console.examples import SCHEMA, TOOLS
from causerie.console.playground_fields import number_fields
from causerie.console.security import HEADERS
from causerie.console.statics import Statics
from causerie.console.templating import environment
from causerie.edge.exchange import Exchange


class ChatPage:
    """The page, and the scripts and styles that it loads."""

    def __init__(self, static_prefix: str) -> None:
        self._statics = Statics(static_prefix)
        self._template = environment(self._statics).get_template("chat.html")

    def show(self, exchange: Exchange, base_urls: Sequence[str]) -> None:
        """Answer with the page; ``base_urls`` are the paths of the doors that it offers."""
        page = self._template.render(
            base_urls=base_urls,
            doors=(),  # the script knows by which address it came
            numbers=number_fields(),
            example_tools=TOOLS,
            example_schema=SCHEMA,
            keys_at="",
        )
        exchange.respond(
            200,
            page.encode(),
            content_type="text/html; charset=utf-8",
            headers={**HEADERS, "cache-control": "no-cache", "vary": "accept"},
        )

    async def send_static(self, exchange: Exchange) -> None:
        """Send a script, style or picture; raises :class:`NotFound`."""
        await self._statics.answer(exchange)
