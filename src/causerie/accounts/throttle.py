"""Rate limit of password guesses: a few failures are free, then each doubles the wait.

Failures are counted by account and address together, by account, and by address, each with its own
allowance. Guessing from one address is slowed down soon, without locking out the owner of the
account at another. Attempts that belong to no account (links, new accounts, the return from another
provider) are counted by address alone. An IPv6 address stands for its network of 64 bits, which is
the size of one subscriber's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Literal

from causerie.accounts.names import digest
from causerie.errors import RateLimited

Kind = Literal["link", "sign-up", "provider"]

_LONGEST = timedelta(minutes=15)
_FREE: Mapping[Kind, int] = MappingProxyType({"link": 20, "sign-up": 20, "provider": 20})
_IN_SECONDS = 120
FORGET_AFTER = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed attempts within one scope."""

    scope: str
    failures: int
    last_at: datetime


def scopes(account: str, address: str) -> Mapping[str, int]:
    """The scopes that an attempt counts in, and how many failures each allows for free."""
    who, where = digest(account).hex()[:32], network(address)
    return {f"both:{who}:{where}": 5, f"account:{who}": 50, f"address:{where}": 50}


def codes_of(user_id: str) -> str:
    """Return the scope of two-factor codes, which are counted apart from the password."""
    return f"code:{user_id}"


def of_address(kind: Kind, address: str) -> Mapping[str, int]:
    """The one scope of what belongs to no account."""
    return {f"{kind}:{network(address)}": _FREE[kind]}


def of_sign_up(email: str, address: str) -> Mapping[str, int]:
    """The scopes of a sign-up: the client's address, and whom mail would go to."""
    return {**of_address("sign-up", address), f"mail:{digest(email).hex()[:32]}": 3}


def is_of_account(scope: str) -> bool:
    """Return true if a success clears the scope: nobody else shares it."""
    return scope.startswith(("both:", "account:"))


def check(found: Iterable[Failures], allowed: Mapping[str, int], now: datetime) -> None:
    """Raises :class:`RateLimited` where one of the scopes has to wait."""
    waits = [_wait(each, allowed[each.scope], now) for each in found]
    longest = max(waits, default=timedelta(0))
    if longest > timedelta(0):
        seconds = max(int(longest.total_seconds() + 0.999), 1)
        raise RateLimited(
            f"Too many attempts failed. Try again in {_words(seconds)}.",
            code="too_many_attempts",
            headers={"Retry-After": str(seconds)},
        )


def _wait(each: Failures, free: int, now: datetime) -> timedelta:
    beyond, since = each.failures - free, now - each.last_at
    if beyond < 0 or not -_LONGEST <= since <= FORGET_AFTER:  # before then: a clock was put back
        return timedelta(0)
    return min(timedelta(seconds=2 ** min(beyond, 10)), _LONGEST) - since


def network(address: str) -> str:
    """Return what an address is counted by: an IPv6 address stands for its network of 64 bits."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address  # as a proxy names it
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), 64), strict=False))


def _words(seconds: int) -> str:
    if seconds == 1:
        return "a second"
    return f"{seconds} seconds" if seconds < _IN_SECONDS else f"{-(-seconds // 60)} minutes"
