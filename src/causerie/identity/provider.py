"""One way to sign in: to the provider and back, by authorization code with PKCE.

OpenID Connect Core 1.0, section 3.1; RFC 7636 (PKCE, S256); RFC 9207 (the issuer names itself in
its answer). The state of an attempt is given to the caller, who keeps it with the browser that
began it, and binds the state to that browser.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, urlencode

import structlog

from causerie.errors import Unauthenticated, UpstreamFailed
from causerie.identity.metadata import ProviderDocument, ProviderMetadata
from causerie.identity.tokens import BadToken, Expected, UnknownKey, verified
from causerie.identity.web import IdentityHttp, IdentityProviderFailed

ATTEMPT_SECONDS = 600
_LONGEST = 4096
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class GroupRule:
    """Grant to the members of a group: a role in a project, or that of an operator."""

    group: str
    project: str = ""
    role: str = "member"
    operator: bool = False


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """A provider, and what it knows us as. ``name`` is part of addresses, ``title`` for people.

    People with a verified address of one of the ``domains`` may sign up; ``*`` is all.
    """

    name: str
    title: str
    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    scopes: Sequence[str] = ("openid", "email", "profile")
    domains: frozenset[str] = frozenset()
    groups_claim: str = "groups"
    groups: Sequence[GroupRule] = ()


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """State of a sign-in that the same browser must bring back.

    ``began`` is in seconds since 1970.
    """

    provider: str
    callback: str
    began: int
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Returned:
    """Parameters of the callback address, except the state."""

    code: str = field(default="", repr=False)
    error: str = ""
    issuer: str = ""


@dataclass(frozen=True, slots=True)
class Claims:
    """Identity as asserted by the provider. ``email`` is in lower case, or empty."""

    issuer: str
    subject: str
    email: str
    email_verified: bool
    name: str
    groups: frozenset[str] | None = frozenset()
    """``None``: the provider names another place that knows them."""


class OidcProvider:
    """Sends people to a provider and takes them back. ``now`` is in seconds since 1970."""

    def __init__(
        self,
        options: ProviderOptions,
        web: IdentityHttp,
        *,
        now: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self._web = web
        self._now = now
        self._provider = ProviderDocument(options.issuer, web, monotonic)

    async def begin(self, callback: str, state: Callable[[SignInAttempt], str]) -> str:
        """Return the address to which to redirect a browser; it comes back to ``callback``.

        ``state`` stores an attempt and returns the state parameter, which only this
        browser can bring back. Raises :class:`UpstreamFailed`.
        """
        try:
            metadata = await self._provider.metadata()
        except IdentityProviderFailed as failure:
            raise self._unreachable(failure) from failure
        attempt = SignInAttempt(
            provider=self.options.name,
            callback=callback,
            began=int(self._now()),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
        )
        challenge = urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest())
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self.options.client_id,
                "redirect_uri": callback,
                "scope": " ".join(self.options.scopes),
                "state": state(attempt),
                "nonce": attempt.nonce,
                "code_challenge": challenge.rstrip(b"=").decode(),
                "code_challenge_method": "S256",
            }
        )
        joint = "&" if "?" in metadata.authorization else "?"
        return f"{metadata.authorization}{joint}{query}"

    async def finish(self, attempt: SignInAttempt | None, returned: Returned) -> Claims:
        """Return the verified claims of a sign-in; ``attempt`` is the one that the state stores.

        Raises :class:`Unauthenticated` if the identity is not proved, and
        :class:`UpstreamFailed` if the provider cannot be reached.
        """
        attempt = self._of_this_browser(attempt)
        try:
            metadata = await self._provider.metadata()
            if returned.issuer != self.options.issuer and (
                returned.issuer or metadata.names_itself
            ):
                raise BadToken("the answer is of another issuer")
            if returned.error or not 0 < len(returned.code) <= _LONGEST:
                raise BadToken("the provider did not let them in")
            reply = await self._redeem(metadata, attempt, returned.code)
            claims = await self._verified(metadata, attempt, reply)
            return await self._told(metadata, claims, reply)
        except IdentityProviderFailed as failure:
            raise self._unreachable(failure) from failure
        except BadToken as failure:
            raise self._refused(failure) from failure

    def _of_this_browser(self, attempt: SignInAttempt | None) -> SignInAttempt:
        if attempt is None or attempt.provider != self.options.name:
            raise self._refused(BadToken("the state is not of this browser"))
        if not 0 <= self._now() - attempt.began + 5 <= ATTEMPT_SECONDS:
            raise self._refused(BadToken("the attempt took too long"))
        return attempt

    async def _redeem(
        self, metadata: ProviderMetadata, attempt: SignInAttempt, code: str
    ) -> Mapping[str, Any]:
        options = self.options
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.callback,
            "code_verifier": attempt.verifier,
        }
        headers = []
        if options.client_secret is None or metadata.secret_in_form:
            fields["client_id"] = options.client_id
            if options.client_secret is not None:
                fields["client_secret"] = options.client_secret
        else:  # RFC 6749, section 2.3.1: both are encoded as in a form, then joined
            pair = f"{quote_plus(options.client_id)}:{quote_plus(options.client_secret)}"
            headers.append(("authorization", "Basic " + b64encode(pair.encode()).decode()))
        return await self._web.post(metadata.token, fields, headers)

    async def _verified(
        self, metadata: ProviderMetadata, attempt: SignInAttempt, reply: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        token = reply.get("id_token")
        if not isinstance(token, str):
            raise BadToken("there is no id token")
        expected = Expected(
            issuer=self.options.issuer,
            client_id=self.options.client_id,
            nonce=attempt.nonce,
            algorithms=metadata.algorithms,
            now=self._now(),
        )
        try:
            return verified(token, await self._provider.keys(), expected)
        except UnknownKey:
            return verified(token, await self._provider.keys(anew=True), expected)

    async def _told(
        self, metadata: ProviderMetadata, claims: Mapping[str, Any], reply: Mapping[str, Any]
    ) -> Claims:
        """With what the provider tells alongside the token, where that lacks something (5.3.2)."""
        access, groups = reply.get("access_token"), self.options.groups_claim
        lacks = not claims.get("email") or (self.options.groups and groups not in claims)
        if lacks and metadata.userinfo and isinstance(access, str):
            more = await self._web.get(metadata.userinfo, [("authorization", f"Bearer {access}")])
            if more.get("sub") != claims["sub"]:
                raise BadToken("the provider tells of somebody else")
            claims = {**more, **claims}
        email, name = claims.get("email"), claims.get("name")
        return Claims(
            issuer=self.options.issuer,
            subject=claims["sub"],
            email=email.strip().lower() if isinstance(email, str) else "",
            email_verified=claims.get("email_verified") in (True, "true"),
            name=name.strip() if isinstance(name, str) else "",
            groups=self._groups(claims),
        )

    def _groups(self, claims: Mapping[str, Any]) -> frozenset[str] | None:
        """Return the groups in the claim: a list of names, or one (5.6.2: or a place elsewhere)."""
        name = self.options.groups_claim
        elsewhere = claims.get("_claim_names")
        if name not in claims and isinstance(elsewhere, dict) and name in elsewhere:
            _log.warning("identity.groups_elsewhere", provider=self.options.name, claim=name)
            return None
        claim = claims.get(name)
        listed = claim if isinstance(claim, list) else [claim]
        return frozenset(each for each in listed if isinstance(each, str) and each)

    def _unreachable(self, failure: IdentityProviderFailed) -> UpstreamFailed:
        _log.warning("identity.provider_failed", provider=self.options.name, why=str(failure))
        return UpstreamFailed(
            f"{self.options.title} cannot be asked now who you are. Try again in a while, or sign "
            "in another way.",
            code="identity_provider",
        )

    def _refused(self, failure: BadToken) -> Unauthenticated:
        _log.warning("identity.refused", provider=self.options.name, why=str(failure))
        return Unauthenticated(
            f"Signing in with {self.options.title} was not completed. Begin anew from the page "
            "to sign in.",
            code="identity_refused",
        )
