"""Price of a request by its tokens. Which requests are charged is decided by their records."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal

from msgspec import Struct

_SMALLEST = Decimal("0.000000001")
NOTHING = Decimal(0)


class TokenPrice(Struct, frozen=True, kw_only=True):
    """Price of one token of each kind, and of a request as such."""

    prompt: Decimal = NOTHING
    completion: Decimal = NOTHING
    cached: Decimal | None = None
    """Tokens from the prompt cache; unset: like others of the prompt."""
    reasoning: Decimal | None = None
    """Tokens of reasoning, a part of the completion; unset: like others of the completion."""
    request: Decimal = NOTHING

    @property
    def dearest_output(self) -> Decimal:
        """The most that one token of output can cost."""
        return self.completion if self.reasoning is None else max(self.completion, self.reasoning)

    def cost(self, *, prompt: int, cached: int, completion: int, reasoning: int = 0) -> Decimal:
        """The money for so many tokens, to a billionth, rounded half to even.

        ``cached`` are some of ``prompt``, ``reasoning`` some of ``completion``.
        """
        from_cache = self.prompt if self.cached is None else self.cached
        thought = self.completion if self.reasoning is None else self.reasoning
        cost = (
            self.prompt * (prompt - cached)
            + from_cache * cached
            + self.completion * (completion - reasoning)
            + thought * reasoning
            + self.request
        )
        return cost.quantize(_SMALLEST, ROUND_HALF_EVEN)

    def most(self, *, prompt: int, completion: int) -> Decimal:
        """The most that so many tokens can cost, whatever part of them is reasoning."""
        cost = self.prompt * prompt + self.dearest_output * completion + self.request
        return cost.quantize(_SMALLEST, ROUND_HALF_EVEN)


FREE = TokenPrice()


class ModelPrices(Struct, frozen=True):
    """Prices of models."""

    models: Mapping[str, TokenPrice] = {}
    """By model id; the highest price of its endpoints if these differ."""
    endpoints: Mapping[tuple[str, str], TokenPrice] = {}
    """By model id and endpoint that answers, if the endpoint makes a difference."""

    def of(self, model: str, served_by: str) -> TokenPrice:
        """Return the price of a model's tokens, by the endpoint that answers."""
        return self.endpoints.get((model, served_by)) or self.models.get(model, FREE)
