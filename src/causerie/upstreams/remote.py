"""A model of somebody's chat endpoint, as a target of routing."""

from __future__ import annotations

from causerie.protocol.partial import Partial
from causerie.protocol.request import ChatRequest
from causerie.upstreams.endpoint import Endpoint
from causerie.upstreams.reply import Reply
from causerie.upstreams.separator import Separators


class RemoteChat:
    """Answers by asking ``endpoint`` for its model ``model``.

    ``separators`` make what tells apart reasoning that is left inside the
    content. ``continues`` is what a probe has found about continuing a reply;
    ``None`` trusts the dialect.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        *,
        separators: Separators | None = None,
        continues: bool | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.model = model
        self.separators = separators if endpoint.dialect.tags else None
        self._continues = continues

    @property
    def name(self) -> str:
        """``ENDPOINT/MODEL``, as the configuration names it."""
        return f"{self.endpoint.name}/{self.model}"

    def generate(self, request: ChatRequest, partial: Partial | None = None) -> Reply:
        """The reply; entering raises :class:`ServiceError` where there is none."""
        return Reply(self, request, partial)

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        """Whether the reply can go on here.

        Not inside a call, nor inside a shape: servers begin those anew.
        """
        if not (partial.text or partial.reasoning or partial.calls):
            return True
        way = self.endpoint.dialect.continuing
        known = way.way not in ("none", "as_sent") or (
            way.way == "as_sent" and self._continues is True
        )
        if not known or self._continues is False:
            return False
        if partial.calls or request.n > 1 or request.output is not None:
            return False
        if request.tools and request.tool_choice.mode == "required":
            return False
        if not partial.text:
            return way.in_reasoning
        return way.after_reasoning or not partial.reasoning

    async def check(self) -> None:
        """Whether the endpoint answers; raises :class:`ServiceError`."""
        await self.endpoint.check()
