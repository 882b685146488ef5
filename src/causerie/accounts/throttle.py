"""How fast passwords may be guessed: a few failures are free, then each doubles the wait.

Counted by account and address together, by account, and by address, each with
its own allowance: whoever guesses from one place is slowed down soon, without
locking out the owner of the account who comes from another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from causerie.accounts.names import digest
from causerie.errors import RateLimited

_LONGEST = timedelta(minutes=15)
FORGET_AFTER = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed attempts within one scope."""

    scope: str
    failures: int
    last_at: datetime


def scopes(account: str, address: str) -> Mapping[str, int]:
    """The scopes that an attempt counts in, and how many failures each allows for free."""
    who = digest(account).hex()[:32]
    return {f"both:{who}:{address}": 5, f"account:{who}": 50, f"address:{address}": 50}


def check(found: Iterable[Failures], allowed: Mapping[str, int], now: datetime) -> None:
    """Raises :class:`RateLimited` where one of the scopes has to wait."""
    waits = [_wait(each, allowed[each.scope], now) for each in found]
    longest = max(waits, default=timedelta(0))
    if longest > timedelta(0):
        seconds = max(int(longest.total_seconds() + 0.999), 1)
        raise RateLimited(
            f"Too many attempts to sign in failed. Try again in {seconds} s.",
            code="too_many_attempts",
            headers={"Retry-After": str(seconds)},
        )


def _wait(each: Failures, free: int, now: datetime) -> timedelta:
    beyond = each.failures - free
    if beyond < 0 or now - each.last_at > FORGET_AFTER:
        return timedelta(0)
    return each.last_at + min(timedelta(seconds=2 ** min(beyond, 10)), _LONGEST) - now
