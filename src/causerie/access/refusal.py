"""Errors for requests that are not admitted: the limit, its owner, and when to retry."""

from __future__ import annotations

import math

from causerie.access.lease import tell
from causerie.access.quota import ExceededLimit, QuotaRefusal, RateScope
from causerie.errors import InvalidRequest, RateLimited, counted

_CODES = {"requests": "requests", "concurrent": "concurrency"}  # all others: tokens
_WORDS = {
    "requests": ("request", "per minute"),
    "tokens": ("token", "per minute"),
    "input_tokens": ("input token", "per minute"),
    "output_tokens": ("output token", "per minute"),
    "concurrent": ("request", "at the same time"),
}


def limited(refused: QuotaRefusal) -> RateLimited:
    """The refusal that lasts longest, in words; after its time no other stands in the way."""
    refusal = max(refused.refusals, key=lambda each: each.wait)
    wait = max(math.ceil(refusal.wait), 1)
    headers = {"Retry-After": str(wait)}
    tell(refused.limit_statuses, headers)
    noun, when = _WORDS[refusal.measure]
    return RateLimited(
        f"{_may(refusal.scope)} {counted(refusal.limit, noun)} {when}; "
        f"{_limit_status(refusal)}. Try again in {wait} s.",
        code=_CODES.get(refusal.measure, "tokens"),
        metadata={
            "limit": refusal.measure,
            "scope": {"kind": refusal.scope.kind, "name": refusal.scope.name},
            "allowed": refusal.limit,
            "used": refusal.used,
            "needed": refusal.needed,
        },
        headers=headers,
    )


def _may(scope: RateScope) -> str:
    return f"The {scope.kind} {scope.name} may have"


def _limit_status(refusal: ExceededLimit) -> str:
    if refusal.measure == "concurrent":
        return f"{_are(refusal.used)} under way"
    if refusal.measure == "requests":
        return "none is left"
    return f"{_are(refusal.used)} used or reserved, and this request may need {refusal.needed}"


def _are(number: int) -> str:
    return "1 is" if number == 1 else f"{number} are"


def too_large(scope: RateScope, needed: int) -> InvalidRequest:
    """The refusal of a prompt that alone is more than a scope may have in a minute."""
    most = scope.most_input
    return InvalidRequest(
        f"{_may(scope)} {most} tokens of input per minute; the messages are estimated at {needed}, "
        "so this request can never be let in. Shorten it, or have the limit raised.",
        param="messages",
        metadata={
            "limit": "input_tokens" if scope.input == most else "tokens",
            "scope": {"kind": scope.kind, "name": scope.name},
            "allowed": most,
            "needed": needed,
        },
    )
