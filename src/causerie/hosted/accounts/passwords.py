"""Passwords, one-time codes, and the waits after wrong guesses."""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
import secrets
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeVar
from urllib.parse import quote, urlencode

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.hotp import HOTP
from zxcvbn import zxcvbn

from causerie.errors import InvalidRequest, Overloaded, RateLimited
from causerie.hosted.accounts.tokens import digest

_SHORTEST = 10
_LONGEST = 256
_LOOKED_AT = 72  # the estimate takes no more; what is longer is not weaker
_ENOUGH = 3  # of 4: some ten billion guesses
_AT_ONCE = 4
_IN_LINE = 64
_T = TypeVar("_T")

# The hash of 256 random bits that nobody knows, with the parameters of the hasher here.
NOBODY = (
    "$argon2id$v=19$m=65536,t=3,p=4$W+tVcvI2wl2klkpctaYKLQ"
    "$NEyy3lrrkgNKKGDQbCxZzG0XS6TIPH877AFMvuPCeXw"
)


class Passwords:
    """Hashes passwords with argon2id, and checks them.

    A hash takes tens of milliseconds and 64 MiB on purpose, so it runs in a thread, few at a time:
    a flood of attempts must not take the machine's memory.
    """

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()  # the second recommendation of RFC 9106
        self._hash_slots = asyncio.Semaphore(_AT_ONCE)
        self._pending_hash_count = 0
        self._dummy_hash = self._hasher.hash("nobody has this password") if hasher else NOBODY

    async def hash_new(self, password: str, about: Iterable[str]) -> str:
        """Return the hash of a new password.

        Raises :class:`InvalidRequest` for one that is short, common, or like ``about``: what others
        know of the user, such as name and address.
        """
        password = _normalize_password(password)
        if not _SHORTEST <= len(password) <= _LONGEST:
            raise InvalidRequest(
                f"A password has {_SHORTEST} to {_LONGEST} characters.", param="password"
            )
        return await self._run_hash_in_thread(self._hash_if_strong, password, tuple(about))

    async def matches(self, kept: str | None, password: str) -> bool:
        """Return whether the password matches; without a stored hash it takes as long."""
        given = _normalize_password(password[:_LONGEST])
        return await self._run_hash_in_thread(self._verify_password, kept, given)

    def _verify_password(self, stored_hash: str | None, password: str) -> bool:
        try:
            self._hasher.verify(stored_hash or self._dummy_hash, password)
        except (VerificationError, InvalidHashError):
            return False
        return stored_hash is not None

    def _hash_if_strong(self, password: str, user_words: tuple[str, ...]) -> str:
        known = [part for word in user_words for part in (word, *word.replace("@", ".").split("."))]
        found = zxcvbn(password[:_LOOKED_AT], user_inputs=[*known, "causerie"])
        if found["score"] < _ENOUGH:
            why = found["feedback"]["warning"] or "Others would guess it soon."
            raise InvalidRequest(
                f"This password is too easy to guess. {why} Several unrelated words are good.",
                param="password",
                code="weak_password",
            )
        return self._hasher.hash(password)

    async def _run_hash_in_thread(self, hash_function: Callable[..., _T], *given: object) -> _T:
        if self._pending_hash_count >= _IN_LINE:
            raise Overloaded("Too many people sign in at this moment. Try again in a second.")
        self._pending_hash_count += 1
        try:
            async with self._hash_slots:
                return await asyncio.to_thread(hash_function, *given)
        finally:
            self._pending_hash_count -= 1


def _normalize_password(password: str) -> str:
    return unicodedata.normalize("NFKC", password)


_STEP_SECONDS = 30
_SECRET_BYTES = 20  # RFC 4226, section 4: 160 bits
_DRIFT = (0, -1, 1)
RECOVERY_CODES = 10


@dataclass(frozen=True, slots=True)
class Authenticator:
    """A user's second factor, in force once confirmed: RFC 6238, SHA-1, 30 seconds, six digits."""

    user_id: str
    secret: str = field(repr=False)
    confirmed_at: datetime | None = None
    last_step: int = 0


def new_totp_secret() -> str:
    """Return a new secret in base 32."""
    return base64.b32encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def totp_code_at(secret: str, step: int) -> str:
    """Return the code of one step (RFC 4226, section 5.3)."""
    code = HOTP(base64.b32decode(secret), 6, SHA1(), enforce_key_length=False)
    return code.generate(step).decode()


def totp_step_of(secret: str, code: str, now: datetime) -> int | None:
    """Return the step of a code: the current one, the one before or after; else ``None``."""
    given = "".join(code.split()).encode("utf-8", "surrogatepass")
    current = int(now.timestamp()) // _STEP_SECONDS
    found = None
    for drift in _DRIFT:
        if hmac.compare_digest(totp_code_at(secret, current + drift).encode(), given):
            found = current + drift
    return found


def totp_address(secret: str, account: str, issuer: str) -> str:
    """Return the ``otpauth:`` address, which authenticator apps read from a QR code."""
    query = urlencode({"secret": secret, "issuer": issuer}, quote_via=quote)
    return f"otpauth://totp/{quote(f'{issuer}:{account}')}?{query}"


def new_recovery_codes() -> list[str]:
    """Return new recovery codes; each replaces a code of a lost app once."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return [
        "-".join("".join(secrets.choice(alphabet) for _ in range(5)) for _ in range(3))
        for _ in range(RECOVERY_CODES)
    ]


AttemptKind = Literal["link", "sign-up", "provider"]

_LONGEST_WAIT = timedelta(minutes=15)
FORGET_FAILURES_AFTER = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed attempts within one scope; some are free, then each doubles the wait."""

    scope: str
    failures: int
    last_at: datetime


def sign_in_scopes(account: str, address: str) -> Mapping[str, int]:
    """Return the scopes of an attempt to sign in, with the number of free failures of each.

    Guessing from one address is slowed down soon, without locking out the account's owner at
    another address.
    """
    who, where = digest(account).hex()[:32], network(address)
    return {f"both:{who}:{where}": 5, f"account:{who}": 50, f"address:{where}": 50}


def address_scopes(kind: AttemptKind, address: str) -> Mapping[str, int]:
    """Return the scope of attempts that belong to no account, with the number of free failures."""
    return {f"{kind}:{network(address)}": 20}


def sign_up_scopes(email: str, address: str) -> Mapping[str, int]:
    """Return the scopes of a sign-up: the client's address and that of the mail."""
    return {**address_scopes("sign-up", address), f"mail:{digest(email).hex()[:32]}": 3}


def invitation_scopes(user_id: str, email: str) -> Mapping[str, int]:
    """Return the scopes of an invitation by mail: who sends it, and the address that gets it."""
    return {f"letters:{user_id}": 20, f"mail:{digest(email).hex()[:32]}": 3}


def check_wait(found: Iterable[Failures], allowed: Mapping[str, int], now: datetime) -> None:
    """Raise :class:`RateLimited` if one of the scopes has to wait."""
    waits = [_compute_remaining_wait(each, allowed[each.scope], now) for each in found]
    longest = max(waits, default=timedelta(0))
    if longest > timedelta(0):
        seconds = max(int(longest.total_seconds() + 0.999), 1)
        raise RateLimited(
            f"Too many attempts failed. Try again in {_format_wait(seconds)}.",
            code="too_many_attempts",
            headers={"Retry-After": str(seconds)},
        )


def _compute_remaining_wait(failures: Failures, free_failures: int, now: datetime) -> timedelta:
    beyond, since = failures.failures - free_failures, now - failures.last_at
    put_back = since < -_LONGEST_WAIT  # the clock
    if beyond < 0 or put_back or since > FORGET_FAILURES_AFTER:
        return timedelta(0)
    return min(timedelta(seconds=2 ** min(beyond, 10)), _LONGEST_WAIT) - since


def network(address: str) -> str:
    """Return an address, or for IPv6 its network of 64 bits, the size of one subscriber's."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address  # as a proxy names it
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), 64), strict=False))


def _format_wait(seconds: int) -> str:
    if seconds == 1:
        return "a second"
    return f"{seconds} seconds" if seconds < 120 else f"{-(-seconds // 60)} minutes"
