"""Sign-in at a provider by authorization code with PKCE, and verification of its id token.

OpenID Connect Core 1.0, section 3.1; RFC 7636 (S256); RFC 9207. Only signatures by public keys are
accepted: with `none` there is no signature, and with a shared secret (HS256) anyone who knows the
value that is used as the secret, like the issuer's public key, could sign. Metadata and keys are
read by OpenID Connect Discovery 1.0 (sections 3 and 4) and RFC 7517: only the issuer's address,
from the configuration, and those in its document are requested, and redirects are not followed.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import ssl
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec
import structlog
from joserfc import jws
from joserfc.errors import ClaimError, JoseError
from joserfc.jwk import JWKRegistry, Key
from joserfc.jwt import JWTClaimsRegistry

from causerie.errors import Unauthenticated, UpstreamFailed
from causerie.hosted.accounts.people import NO_GROUPS, GroupClaims, GroupGrant, Vouched
from causerie.http.addresses import IpNetwork
from causerie.http.client import HttpClient, Reach
from causerie.http.client_connection import TransportFailed
from causerie.protocol import bounded_json

_LEEWAY = 60  # seconds by which clocks may differ
_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)

_CLAIM_FAULTS = {
    "iss": "it is of another issuer",
    "aud": "it is for somebody else",
    "azp": "it was given to somebody else",
    "nonce": "it is of another attempt",
    "sub": "it names nobody",
    "exp": "it has expired, or has no end",
    "iat": "it has no time, or is of the future",
    "nbf": "it is not valid yet, or is of the future",
}


class BadToken(Exception):
    """A token or callback is not valid; the message is for the log."""


class UnknownKey(BadToken):
    """None of the keys signed the token; there may be newer ones."""


def _verify_signature(token: str, keys: Sequence[Key], algorithms: Sequence[str]) -> bytes:
    try:
        signed = jws.extract_compact(token.encode())
    except (JoseError, ValueError, TypeError, RecursionError) as failure:
        raise BadToken("it is no signed token") from failure
    algorithm, kid = signed.headers().get("alg"), signed.headers().get("kid")
    if algorithm not in algorithms:
        raise BadToken(
            f"signed by {str(algorithm)[:20]!r}, which is no signature by a public key, or one "
            "that its issuer does not offer"
        )
    named = [key for key in keys if kid is None or key.get("kid") == kid]
    for key in named:
        with suppress(JoseError, ValueError, TypeError):
            if jws.validate_compact(signed, key, algorithms):
                return signed.payload or b""
    if kid is not None and named:
        raise BadToken("its signature is wrong")
    raise UnknownKey("no key of its issuer signed it")


def _decode_and_verify_claims(
    payload: bytes, issuer: str, client_id: str, nonce: str, now: float
) -> Mapping[str, Any]:
    try:
        found: dict[str, Any] = bounded_json.decode(payload, dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
        raise BadToken("its payload is no JSON object") from failure
    claims = {name: each for name, each in found.items() if each is not None}
    several = isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
    rules = JWTClaimsRegistry(
        now=int(now),
        leeway=_LEEWAY,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": client_id},
        azp={"essential": several, "value": client_id},
        nonce={"essential": True, "value": nonce},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
    )
    try:
        rules.validate(claims)
    except ClaimError as failure:
        fault = _CLAIM_FAULTS.get(failure.claim.partition(",")[0], str(failure))
        raise BadToken(fault) from failure
    if len(claims["sub"]) > _LONGEST_SUBJECT:
        raise BadToken(_CLAIM_FAULTS["sub"])
    return claims


ATTEMPT_SECONDS = 600
_LONGEST = 4096
_LONGEST_SUBJECT = 255  # OpenID Connect Core 1.0, section 2
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """A provider and our client there; ``name`` is part of addresses, ``title`` is for people.

    People with a verified address of one of the ``domains`` may sign up; ``*`` is all.
    """

    name: str
    title: str
    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    scopes: Sequence[str] = ("openid", "email", "profile")
    domains: frozenset[str] = frozenset()
    trusted_domains: frozenset[str] = frozenset()
    """Domains of addresses that count as verified where the provider does not say whether."""
    email_claim: str = "email"
    verified_claim: str = "email_verified"
    """Claim that says whether the address is verified; empty: none does."""
    name_claim: str = "name"
    groups_claim: str = "groups"
    groups: Sequence[GroupGrant] = ()
    provisioned: bool = False
    """The groups come from SCIM, and the claim means nothing."""
    join: str = "never"
    """Accounts that an equal verified address joins."""

    @property
    def directory(self) -> GroupClaims:
        """Return the grants of the groups that the provider's directory provisions."""
        return GroupClaims(self.name, grants=self.groups, provisioned=True)


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """State of a sign-in, bound to its browser; ``began`` is in seconds since 1970."""

    provider: str
    callback: str
    began: int
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Returned:
    """Parameters of the callback except the state."""

    code: str = field(default="", repr=False)
    error: str = ""
    issuer: str = ""


@dataclass(eq=False)
class OidcProvider:
    """Sign-in at one provider; ``now`` returns seconds since 1970."""

    options: ProviderOptions
    _http: IdentityHttp
    now: Callable[[], float]
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._provider_document = ProviderDocument(self.options.issuer, self._http, self.monotonic)

    async def begin(self, callback: str, state: Callable[[SignInAttempt], str]) -> str:
        """Return the authorization URL for a browser, which then returns to ``callback``.

        ``state`` stores an attempt and returns the state parameter for this browser only. Raises
        :class:`UpstreamFailed`.
        """
        try:
            metadata = await self._provider_document.metadata()
        except IdentityProviderFailed as failure:
            raise self._build_unreachable_error(failure) from failure
        attempt = SignInAttempt(
            provider=self.options.name,
            callback=callback,
            began=int(self.now()),
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

    async def finish(self, attempt: SignInAttempt | None, returned: Returned) -> Vouched:
        """Return the verified identity of a sign-in; ``attempt`` is the one of the state.

        Raises :class:`Unauthenticated` if the identity is not proved, and :class:`UpstreamFailed`
        if the provider is unavailable.
        """
        if attempt is None or attempt.provider != self.options.name:
            raise self._build_refusal_error(BadToken("the state is not of this browser"))
        if not 0 <= self.now() - attempt.began + 5 <= ATTEMPT_SECONDS:
            raise self._build_refusal_error(BadToken("the attempt took too long"))
        try:
            metadata = await self._provider_document.metadata()
            if returned.issuer != self.options.issuer and (
                returned.issuer or metadata.names_itself
            ):
                raise BadToken("the answer is of another issuer")
            if returned.error or not 0 < len(returned.code) <= _LONGEST:
                raise BadToken("the provider did not let them in")
            reply = await self._exchange_code(metadata, attempt, returned.code)
            claims = await self._verify_id_token(metadata, attempt, reply)
            return await self._build_vouched_identity(metadata, claims, reply)
        except IdentityProviderFailed as failure:
            raise self._build_unreachable_error(failure) from failure
        except BadToken as failure:
            raise self._build_refusal_error(failure) from failure

    async def _exchange_code(
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
        return await self._http.ask(metadata.token, headers, fields)

    async def _verify_id_token(
        self, metadata: ProviderMetadata, attempt: SignInAttempt, token_reply: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        token = token_reply.get("id_token")
        if not isinstance(token, str):
            raise BadToken("there is no id token")
        offered = metadata.algorithms or _ALGORITHMS
        algorithms = [each for each in _ALGORITHMS if each in offered]
        try:
            payload = _verify_signature(token, await self._provider_document.keys(), algorithms)
        except UnknownKey:
            payload = _verify_signature(
                token, await self._provider_document.keys(anew=True), algorithms
            )
        issuer, client_id = self.options.issuer, self.options.client_id
        return _decode_and_verify_claims(payload, issuer, client_id, attempt.nonce, self.now())

    async def _build_vouched_identity(
        self, metadata: ProviderMetadata, claims: Mapping[str, Any], token_reply: Mapping[str, Any]
    ) -> Vouched:
        # OpenID Connect Core 1.0, section 5.3.2.
        options, access = self.options, token_reply.get("access_token")
        lacks_groups = options.groups and options.groups_claim not in claims
        lacks = lacks_groups or not claims.get(options.email_claim)
        if lacks and metadata.userinfo and isinstance(access, str):
            more = await self._http.ask(metadata.userinfo, [("authorization", f"Bearer {access}")])
            if more.get("sub") != claims["sub"]:
                raise BadToken("the provider tells of somebody else")
            claims = {**more, **claims}
        email, name = claims.get(options.email_claim), claims.get(options.name_claim)
        address = email.strip().lower() if isinstance(email, str) else ""
        verified = claims.get(options.verified_claim)
        trusted = verified is None and address.rpartition("@")[2] in options.trusted_domains
        return Vouched(
            issuer=options.issuer,
            subject=claims["sub"],
            email=address,
            email_verified=trusted or verified in (True, "true", "1"),  # 1 is equal to True
            name=name.strip() if isinstance(name, str) else "",
            groups=self._build_group_claims(claims),
        )

    def _build_group_claims(self, claims: Mapping[str, Any]) -> GroupClaims:
        # A list of names, or one; or (section 5.6.2) in another place.
        options, name = self.options, self.options.groups_claim
        if options.provisioned:
            return options.directory
        elsewhere = claims.get("_claim_names")
        if name not in claims and isinstance(elsewhere, dict) and name in elsewhere:
            _log.warning("identity.groups_elsewhere", provider=self.options.name, claim=name)
            return NO_GROUPS
        claim = claims.get(name)
        listed = claim if isinstance(claim, list) else [claim]
        names = frozenset(each for each in listed if isinstance(each, str) and each)
        return GroupClaims(options.name, names, options.groups)

    def _build_unreachable_error(self, failure: IdentityProviderFailed) -> UpstreamFailed:
        _log.warning("identity.provider_failed", provider=self.options.name, why=str(failure))
        return UpstreamFailed(
            f"{self.options.title} cannot be asked now who you are. Try again in a while, or sign "
            "in another way.",
            code="identity_provider",
        )

    def _build_refusal_error(self, failure: BadToken) -> Unauthenticated:
        _log.warning("identity.refused", provider=self.options.name, why=str(failure))
        return Unauthenticated(
            f"Signing in with {self.options.title} was not completed. Begin anew from the page "
            "to sign in.",
            code="identity_refused",
        )


class IdentityProviderFailed(Exception):
    """A provider did not answer correctly; the message is for the log and contains no secret."""


@dataclass(slots=True, kw_only=True)
class IdentityHttp:
    """Requests JSON from providers, with limits of time and size.

    ``ca_file`` has the trusted certificates; unset: those of the system. ``networks`` are allowed
    besides public addresses; ``None``: any address.
    """

    seconds: float = 10.0
    max_bytes: int = 512 * 1024
    ca_file: str | None = None
    networks: Sequence[IpNetwork] | None = None
    _tls: ssl.SSLContext | None = None

    async def ask(
        self,
        url: str,
        headers: Sequence[tuple[str, str]] = (),
        form: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        """Get a JSON object, or post a form for one; raise :class:`IdentityProviderFailed`."""
        method, body = ("GET", b"") if form is None else ("POST", urlencode(form).encode())
        sent = [("accept", "application/json"), *headers]
        if form is not None:
            sent.append(("content-type", "application/x-www-form-urlencoded"))
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        reach = Reach(
            tls=await self._get_tls_context(),
            connect_seconds=self.seconds,
            idle_seconds=0,
            networks=self.networks,
        )
        try:
            client = HttpClient(f"{parts.scheme}://{parts.netloc}", reach)
        except ValueError as failure:
            raise IdentityProviderFailed(f"an address that is none: {failure}") from failure
        try:
            async with asyncio.timeout(self.seconds):
                response = await client.send(method, path, sent, body)
                content = await response.read(self.max_bytes)
        except TransportFailed as failure:
            words = str(failure) if failure.kind == "tls" else f"{parts.netloc}: {failure.kind}"
            raise IdentityProviderFailed(words) from failure
        except TimeoutError as failure:
            raise IdentityProviderFailed(
                f"{parts.netloc}: no answer in {self.seconds:g} s"
            ) from failure
        except ValueError as failure:
            raise IdentityProviderFailed(f"{parts.netloc}: cannot be asked") from failure
        finally:
            await client.close()
        return _parse_json_response(parts.netloc, response.status, content)

    async def _get_tls_context(self) -> ssl.SSLContext:
        # Reads many certificates: not in the loop, and not before it is used.
        if self._tls is None:
            try:
                self._tls = await asyncio.to_thread(ssl.create_default_context, cafile=self.ca_file)
            except OSError as failure:
                raise IdentityProviderFailed("the file of certificates cannot be read") from failure
        return self._tls


def _parse_json_response(host: str, status: int, body: bytes) -> Mapping[str, Any]:
    try:
        found: Any = bounded_json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if status != 200:
        error = found.get("error") if isinstance(found, dict) else None
        word = error if isinstance(error, str) and error.isascii() and error.isprintable() else ""
        raise IdentityProviderFailed(f"{host}: status {status} {word[:40]}".rstrip())
    if not isinstance(found, dict):
        raise IdentityProviderFailed(f"{host}: no JSON object")
    return found


_PATH = "/.well-known/openid-configuration"
_KEPT = 3600.0  # seconds
_ANEW = 60.0  # seconds between two looks for keys that were not there
_FAILED = 5.0  # seconds for which a failure is not tried again


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    """The used part of a provider's metadata document."""

    authorization: str
    token: str
    keys: str
    userinfo: str | None
    algorithms: frozenset[str]
    secret_in_form: bool
    names_itself: bool

    @staticmethod
    def parse(found: Mapping[str, Any], issuer: str) -> ProviderMetadata:
        """Parse a metadata document; raise :class:`IdentityProviderFailed` for a wrong one."""
        if found.get("issuer") != issuer:
            raise IdentityProviderFailed("its document names another issuer")
        address = partial(_read_endpoint_address, found, issuer)
        auth = _get_texts(found, "token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        return ProviderMetadata(
            authorization=address("authorization_endpoint"),
            token=address("token_endpoint"),
            keys=address("jwks_uri"),
            userinfo=address("userinfo_endpoint") if "userinfo_endpoint" in found else None,
            algorithms=frozenset(_get_texts(found, "id_token_signing_alg_values_supported")),
            secret_in_form="client_secret_basic" not in auth,
            names_itself=found.get("authorization_response_iss_parameter_supported") is True,
        )


@dataclass(slots=True)
class ProviderDocument:
    """Metadata and keys of one issuer, cached."""

    issuer: str
    _http: IdentityHttp
    _monotonic: Callable[[], float]
    _fetch_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _metadata: ProviderMetadata | None = None
    _metadata_read_at: float = 0.0
    _signing_key_list: Sequence[Key] = ()
    _keys_read_at: float | None = None
    _last_failure: IdentityProviderFailed | None = None
    _failed_at: float = 0.0

    async def metadata(self) -> ProviderMetadata:
        """Return metadata read at most an hour ago; raise :class:`IdentityProviderFailed`."""
        async with self._fetch_lock:
            return await self._get_current_metadata()

    async def keys(self, *, anew: bool = False) -> Sequence[Key]:
        """Return the signing keys read at most an hour ago, or a minute ago if ``anew``."""
        async with self._fetch_lock:
            metadata = await self._get_current_metadata()
            age = (
                self._monotonic() - self._keys_read_at if self._keys_read_at is not None else _KEPT
            )
            if age >= (_ANEW if anew else _KEPT):
                self._signing_key_list = _parse_list_of_public_keys(
                    await self._fetch_unless_just_failed(metadata.keys)
                )
                self._keys_read_at = self._monotonic()
            return self._signing_key_list

    async def _get_current_metadata(self) -> ProviderMetadata:
        now = self._monotonic()
        if self._metadata is None or now - self._metadata_read_at >= _KEPT:
            found = await self._fetch_unless_just_failed(self.issuer.rstrip("/") + _PATH)
            self._metadata = ProviderMetadata.parse(found, self.issuer)
            self._metadata_read_at = now
        return self._metadata

    async def _fetch_unless_just_failed(self, url: str) -> Mapping[str, Any]:
        # After a failure it waits, because many may want to sign in meanwhile.
        if self._last_failure is not None and self._monotonic() - self._failed_at < _FAILED:
            raise IdentityProviderFailed(str(self._last_failure))
        try:
            found = await self._http.ask(url)
        except IdentityProviderFailed as failure:
            self._last_failure, self._failed_at = failure, self._monotonic()
            raise
        self._last_failure = None
        return found


def _parse_list_of_public_keys(key_set: Mapping[str, Any]) -> Sequence[Key]:
    listed = key_set.get("keys")
    keys: list[Key] = []
    for each in listed if isinstance(listed, list) else []:
        with suppress(JoseError, ValueError, TypeError, KeyError):  # one that is not known here
            if each["kty"] != "oct":
                keys.append(JWKRegistry.import_key(each))
    return keys


def _read_endpoint_address(metadata: Mapping[str, Any], issuer: str, endpoint_name: str) -> str:
    value = metadata.get(endpoint_name)
    schemes = ("https://",) if issuer.startswith("https://") else ("https://", "http://")
    if not isinstance(value, str) or not value.startswith(schemes) or "#" in value:
        raise IdentityProviderFailed(f"its document has no good {endpoint_name}")
    return value


def _get_texts(metadata: Mapping[str, Any], field_name: str) -> Sequence[str]:
    value = metadata.get(field_name)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
