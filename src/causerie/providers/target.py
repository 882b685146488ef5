"""A model of somebody's provider, as a target of routing."""

from __future__ import annotations

from causerie.protocol.partial import Partial
from causerie.protocol.request import ChatRequest
from causerie.providers.provider import Provider
from causerie.providers.reply import ProviderReply
from causerie.providers.separator import Separators


class ProviderTarget:
    """Answers by asking ``provider`` for its model ``model``.

    A ``*`` in it stands for the model that the request names.
    ``separators`` make what tells apart reasoning that is left inside the
    content. ``continues`` is what a probe has found about continuing a reply;
    ``None`` trusts the dialect.
    """

    def __init__(
        self,
        provider: Provider,
        model: str,
        *,
        separators: Separators | None = None,
        continues: bool | None = None,
    ) -> None:
        self.provider = provider
        self.model = model
        self.separators = separators if provider.dialect.tags else None
        self._continues = continues

    @property
    def name(self) -> str:
        """``PROVIDER/MODEL``, as the configuration names it."""
        return f"{self.provider.name}/{self.model}"

    def model_for(self, request: ChatRequest) -> str:
        """Return the provider's name of the model that answers the request."""
        return self.model.replace("*", request.model, 1) if "*" in self.model else self.model

    def generate(self, request: ChatRequest, partial: Partial | None = None) -> ProviderReply:
        """The reply; entering raises :class:`ServiceError` where there is none."""
        return ProviderReply(self, request, partial)

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        """Return true if this target can continue the reply.

        It cannot inside a call, nor inside structured output: servers begin those anew.
        """
        if not (partial.text or partial.reasoning or partial.calls):
            return True
        way = self.provider.dialect.continuing
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
        """Check that the provider answers; raise :class:`ServiceError` if not."""
        await self.provider.check()
