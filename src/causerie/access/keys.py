"""Authentication: match a sent credential against digests of keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256
from hmac import compare_digest
from typing import Protocol

from msgspec import Struct

from causerie.access.allowed import Permissions
from causerie.access.limits import Rates, RateScope, SpentProviders, Tokens
from causerie.access.networks import NetworkList
from causerie.errors import RateLimited, Unauthenticated
from causerie.protocol.model_entries import free_name
from causerie.protocol.targets import Candidate

KEY_HEADERS = ("authorization", "x-api-key", "api-key")
NO_SCHEME = "authorization without Bearer"
SEVERAL = "several"
_KEY = re.compile(r"ck_[A-Za-z0-9]{1,32}_[A-Za-z0-9]{43}", re.ASCII)


class Credential(Struct, frozen=True, gc=False):
    """A credential that was sent: its SHA-256 digest, form and header, not its secret."""

    digest: bytes
    """SHA-256 of all of it."""
    formed: bool = False
    """It has the form of a key of accounts."""
    header: str = "authorization"
    """Header that it came in, or why what came is no credential."""

    @staticmethod
    def of(text: str, header: str = "authorization") -> Credential:
        digest = sha256(text.encode("utf-8", "surrogatepass")).digest()
        return Credential(digest, _KEY.fullmatch(text) is not None, header)


def sent_credential(
    headers: MutableMapping[str, str], more: Sequence[str] = ()
) -> Credential | None:
    """Remove the credential from the headers of a request and return it.

    It is a bearer token (RFC 6750, 2.1) or the value of ``x-api-key`` or ``api-key``; ``more`` are
    further values of these headers. Two that differ are an invalid credential.
    """
    token = bearer(headers.pop("authorization", ""))
    if not more and "x-api-key" not in headers and "api-key" not in headers:
        return token
    found = [] if token is None else [token]
    for name in KEY_HEADERS[1:]:
        key = headers.pop(name, "").strip()
        if key:
            found.append(Credential.of(key, name))
    found += [Credential.of(value) for value in more]
    keys = [each for each in found if each.header != NO_SCHEME] or found
    if len({each.digest for each in keys}) > 1:
        return Credential(b"", header=SEVERAL)
    return keys[0] if keys else None


def bearer(authorization: str) -> Credential | None:
    """Return the credential of an Authorization header; without ``Bearer`` it is invalid."""
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if token and scheme.lower() == "bearer":
        return Credential.of(token)
    return Credential(b"", header=NO_SCHEME) if authorization.strip() else None


_LINE = re.compile(r"(?:([A-Za-z0-9_-]{1,64}):)?([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeyDigest:
    """A key as the configuration holds it: its public name and the SHA-256 of all of it."""

    id: str
    digest: bytes

    @staticmethod
    def parse(line: str) -> KeyDigest:
        """Parse ``ID:HEX``, or ``HEX`` alone, whose first 8 digits become the id."""
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError("a key digest is written ID:SHA256, the latter as 64 hex digits")
        return KeyDigest(match[1] or match[2][:8], bytes.fromhex(match[2]))

    @staticmethod
    def of(id: str, key: str) -> KeyDigest:
        return KeyDigest(id, Credential.of(key).digest)


def matching(keys: Iterable[KeyDigest], credential: Credential | None) -> KeyDigest | None:
    """Return the key that matches a credential; every key is compared in constant time."""
    sent = b"" if credential is None else credential.digest
    found = [key for key in keys if compare_digest(key.digest, sent)]
    return found[-1] if found else None


class Locked(Protocol):
    """The parts of a door that authentication reads: its name and its keys (``None``: open)."""

    @property
    def name(self) -> str: ...
    @property
    def keys(self) -> Sequence[KeyDigest] | None: ...


class Caller(Struct, frozen=True, kw_only=True):
    """An authenticated caller."""

    key: str
    """The key's public name; empty if the door needs no key."""
    name: str
    door: str
    """Name of the door that admitted the caller."""
    project: str = ""
    """Project that is charged; empty for keys of the configuration."""
    user: str = ""
    """User that is charged; empty for keys of the configuration."""
    models: frozenset[str] | None = None
    """Models that the caller may use, of those of the door; ``None`` for all."""
    access: Permissions | None = None
    """Rules for models beyond ``models``; ``None`` for none."""
    recorded: bool = False
    """The project logs the contents of requests."""
    networks: NetworkList | None = None
    """Networks from which the key may be used; ``None`` for all."""


_ADVICE = "send the header `Authorization: Bearer KEY`"


def no_key() -> Unauthenticated:
    """Return the error for a request without a key where one is required."""
    return Unauthenticated(f"No API key was sent; {_ADVICE}.", code="missing_api_key")


_REASONS = {
    "authorization": "The API key is not valid here; check it and its address.",
    SEVERAL: f"The request has several API keys that differ; send one: {_ADVICE}.",
    NO_SCHEME: "The `Authorization` header has no bearer token: `Bearer` and a space are missing "
    f"before the key; {_ADVICE}.",
}


def wrong_key(credential: Credential) -> Unauthenticated:
    """Return the error for an invalid credential."""
    header = credential.header
    message = _REASONS.get(header) or (
        f"The API key in the header `{header}` is not valid here; check it and its address. The "
        "usual place of a key is the header `Authorization: Bearer KEY`."
    )
    return Unauthenticated(message, code="missing_api_key" if header == NO_SCHEME else None)


class StaticKeys:
    """Authenticates callers by the keys that the configuration gives a door."""

    def authenticate(self, door: Locked, credential: Credential | None) -> Caller:
        """Return the caller with this credential, or raise :class:`Unauthenticated`.

        Every key of the door is compared in constant time, whichever matches.
        """
        if door.keys is None:
            return _build_caller("", door.name)
        if credential is None:
            raise no_key()
        found = ""
        for key in door.keys:
            if compare_digest(key.digest, credential.digest):
                found = key.id
        if not found:
            raise wrong_key(credential)
        return _build_caller(found, door.name)


@cache
def _build_caller(key_id: str, door_name: str) -> Caller:
    return Caller(key=key_id, name=key_id or "anonymous", door=door_name)


class KeyAuthenticator(Protocol):
    """Authentication by keys of accounts."""

    async def authenticate(self, door: str, credential: Credential | None) -> Caller:
        """Return the caller to whom an account key belongs, for a request at the door ``door``.

        Raises ``Unauthenticated``, ``Forbidden`` or ``StoreUnavailable``.
        """


class Allowances(Protocol):
    """Limits and budgets of callers that have accounts."""

    def scopes(self, caller: Caller, model: str) -> Sequence[RateScope]:
        """Return the caller's rate scopes, which apply in addition to those of door and model."""

    @property
    def spent_providers(self) -> SpentProviders:
        """Return the providers whose budget is spent, with the time when it begins anew."""

    async def reserve(
        self, caller: Caller, model: str, need: Callable[[], Tokens], named: str, tag: str = ""
    ) -> object:
        """Reserve the estimate in budgets until the use is recorded; raise ``OverBudget``.

        ``named`` is the model of a wildcard that was asked for, else the same.
        """

    def release(self, held: object) -> None:
        """Release the reservation of a request that goes to another model."""


class FreeReservation(AbstractContextManager[object], Protocol):
    """A free request of a day, reserved; a failure in its block releases it unless ``charged``."""

    charged: bool

    @property
    def headers(self) -> Mapping[str, str]: ...


class FreeAllowance(Protocol):
    """Daily allowance of requests to free models, by project."""

    async def take(self, project: str) -> FreeReservation:
        """Count one of a project's free requests of today, or raise ``RateLimited``."""


@dataclass(frozen=True, slots=True)
class AccountPorts:
    """What the pipeline needs for account keys: authentication, allowances, free requests."""

    keys: KeyAuthenticator
    allowances: Allowances
    free_days: FreeAllowance | None
    """``None`` if another process counts free requests."""


_BUSY_SECONDS = 2


class FreeScopes:
    """Rate scopes of free models, one for each account, all with the same rates.

    Free requests do not wait for a ``busy`` target, where they would delay paid ones.
    """

    def __init__(self, rates: Rates, is_busy: Callable[[str], bool]) -> None:
        def scope_of(account: str) -> RateScope:
            return RateScope("project", f"{free_name(account)} models", rates)

        self._get_free_rate_scope_of_account = lru_cache(maxsize=10_000)(scope_of)
        self._is_target_too_busy_for_free = is_busy

    def of(self, caller: Caller) -> RateScope:
        """Return the rate scope of the caller's project, or else of its key or door."""
        return self._get_free_rate_scope_of_account(caller.project or caller.key or caller.name)

    def spare(self, model: str, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates that are not busy; raise :class:`RateLimited` if all are."""
        found = [one for one in candidates if not self._is_target_too_busy_for_free(one.name)]
        if not found:
            raise RateLimited(
                f"There is no room for free requests of {model} now. Try again in "
                f"{_BUSY_SECONDS} s, or ask for the model without `:free`.",
                code="concurrency",
                headers={"Retry-After": str(_BUSY_SECONDS)},
            )
        return found
