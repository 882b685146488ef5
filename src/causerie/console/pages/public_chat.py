"""Chat with a free model of the catalog, for visitors without an account."""

from __future__ import annotations

from causerie.catalog.listing import Listing
from causerie.console.market.row import row
from causerie.console.ports import ServiceView
from causerie.console.request_context import RequestContext
from causerie.edge.body import BodyLimits, read_json
from causerie.errors import NotFound

_LIMITS = BodyLimits(max_bytes=256 * 1024, seconds=10.0)


class PublicChatPages:
    """Nothing but the models that the settings name can be asked."""

    def __init__(self, service_view: ServiceView) -> None:
        self._service_view = service_view

    async def show(self, context: RequestContext) -> None:
        one = self._model(context)
        chat = context.services.public_chat
        await context.show("catalog/chat.html", row=row(one), one=one, options=chat.options)

    async def complete(self, context: RequestContext) -> None:
        """``POST /catalog/{author}/{slug}/chat``: the next reply, streamed."""
        one, chat = self._model(context), context.services.public_chat
        body = chat.request(await read_json(context.exchange, _LIMITS), one.id)
        async with chat.message(context.client.address):
            await self._service_view.talk(context.exchange, body, one.id)

    def _model(self, context: RequestContext) -> Listing:
        market = self._service_view.market()
        name = f"{context.params['author']}/{context.params['slug']}"
        if market is not None and name in context.services.public_chat.options.models:
            one = market.entry(name)
            if context.services.public_chat.offers(one):
                return one
        raise NotFound("Without an account there is no chat with this model.")
