"""What a request costs: prices by the token, and which requests are charged at all.

The rule is in ``docs/billing.md``: who got nothing, or was failed by us, pays
nothing; who left pays for what was made until then.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

from msgspec import Struct

CLIENT_GONE = 499
_SMALLEST = Decimal("0.000000001")
NOTHING = Decimal(0)


class Price(Struct, frozen=True, kw_only=True):
    """Money for one token of each kind, and for a request as such.

    Tokens that came from the prompt cache cost ``cached``, or like the others
    where that is unset. Reasoning is part of the completion.
    """

    prompt: Decimal = NOTHING
    completion: Decimal = NOTHING
    cached: Decimal | None = None
    request: Decimal = NOTHING

    def cost(self, *, prompt: int, cached: int, completion: int) -> Decimal:
        """The money for so many tokens, to a billionth, rounded half to even."""
        from_cache = self.prompt if self.cached is None else self.cached
        cost = (
            self.prompt * (prompt - cached)
            + from_cache * cached
            + self.completion * completion
            + self.request
        )
        return cost.quantize(_SMALLEST, ROUND_HALF_EVEN)

    def charge(self, *, status: int, prompt: int, cached: int, completion: int) -> Decimal:
        """What a request costs that ended with this status."""
        if is_charged(status, prompt, completion):
            return self.cost(prompt=prompt, cached=cached, completion=completion)
        return NOTHING


def is_charged(status: int, prompt: int, completion: int) -> bool:
    """Whether a request that ended with this status is charged, in money and in tokens."""
    left = status == CLIENT_GONE and prompt + completion > 0
    return left or (status == 200 and completion > 0)
