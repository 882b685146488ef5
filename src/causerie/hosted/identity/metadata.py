"""Metadata and keys of a provider (OpenID Connect Discovery 1.0, sections 3 and 4; RFC 7517).

Only the issuer's address, from the configuration, and those in its document are requested.
Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key

from causerie.http.addresses import IpNetwork
from causerie.http.client import HttpClient, Reach
from causerie.http.client_connection import TransportFailed
from causerie.protocol import bounded_json


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
            tls=await self._trusted(),
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
        return _object(parts.netloc, response.status, content)

    async def _trusted(self) -> ssl.SSLContext:
        # Reads many certificates: not in the loop, and not before it is used.
        if self._tls is None:
            try:
                self._tls = await asyncio.to_thread(ssl.create_default_context, cafile=self.ca_file)
            except OSError as failure:
                raise IdentityProviderFailed("the file of certificates cannot be read") from failure
        return self._tls


def _object(place: str, status: int, content: bytes) -> Mapping[str, Any]:
    try:
        found: Any = bounded_json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if status != 200:
        error = found.get("error") if isinstance(found, dict) else None
        word = error if isinstance(error, str) and error.isascii() and error.isprintable() else ""
        raise IdentityProviderFailed(f"{place}: status {status} {word[:40]}".rstrip())
    if not isinstance(found, dict):
        raise IdentityProviderFailed(f"{place}: no JSON object")
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
        """Raise :class:`IdentityProviderFailed` for a document that is not this issuer's."""
        if found.get("issuer") != issuer:
            raise IdentityProviderFailed("its document names another issuer")
        address = partial(_address, found, issuer)
        methods = _words(found, "token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        return ProviderMetadata(
            authorization=address("authorization_endpoint"),
            token=address("token_endpoint"),
            keys=address("jwks_uri"),
            userinfo=address("userinfo_endpoint") if "userinfo_endpoint" in found else None,
            algorithms=frozenset(_words(found, "id_token_signing_alg_values_supported")),
            secret_in_form="client_secret_basic" not in methods,
            names_itself=found.get("authorization_response_iss_parameter_supported") is True,
        )


@dataclass(slots=True)
class ProviderDocument:
    """Metadata and keys of one issuer, cached."""

    issuer: str
    _web: IdentityHttp
    _monotonic: Callable[[], float]
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _metadata: ProviderMetadata | None = None
    _metadata_at: float = 0.0
    _keys: Sequence[Key] = ()
    _keys_at: float | None = None
    _failure: IdentityProviderFailed | None = None
    _failed_at: float = 0.0

    async def metadata(self) -> ProviderMetadata:
        """Return the metadata; raise :class:`IdentityProviderFailed`."""
        async with self._turn:
            return await self._document()

    async def keys(self, *, anew: bool = False) -> Sequence[Key]:
        """Return the keys, read again if ``anew``; raise :class:`IdentityProviderFailed`."""
        async with self._turn:
            metadata = await self._document()
            age = self._monotonic() - self._keys_at if self._keys_at is not None else _KEPT
            if age >= (_ANEW if anew else _KEPT):
                self._keys = _imported(await self._once(metadata.keys))
                self._keys_at = self._monotonic()
            return self._keys

    async def _document(self) -> ProviderMetadata:
        now = self._monotonic()
        if self._metadata is None or now - self._metadata_at >= _KEPT:
            found = await self._once(self.issuer.rstrip("/") + _PATH)
            self._metadata = ProviderMetadata.parse(found, self.issuer)
            self._metadata_at = now
        return self._metadata

    async def _once(self, url: str) -> Mapping[str, Any]:
        # After a failure it waits, because many may want to sign in meanwhile.
        if self._failure is not None and self._monotonic() - self._failed_at < _FAILED:
            raise IdentityProviderFailed(str(self._failure))
        try:
            found = await self._web.ask(url)
        except IdentityProviderFailed as failure:
            self._failure, self._failed_at = failure, self._monotonic()
            raise
        self._failure = None
        return found


def _imported(found: Mapping[str, Any]) -> Sequence[Key]:
    listed = found.get("keys")
    keys: list[Key] = []
    for each in listed if isinstance(listed, list) else []:
        if not isinstance(each, dict) or each.get("kty") not in ("RSA", "EC", "OKP"):
            continue
        if each.get("use", "sig") != "sig":
            continue
        try:
            keys.append(JWKRegistry.import_key(each))
        except (JoseError, ValueError, TypeError, KeyError):
            continue
    return keys


def _address(found: Mapping[str, Any], issuer: str, name: str) -> str:
    value = found.get(name)
    schemes = ("https://",) if issuer.startswith("https://") else ("https://", "http://")
    if not isinstance(value, str) or not value.startswith(schemes) or "#" in value:
        raise IdentityProviderFailed(f"its document has no good {name}")
    return value


def _words(found: Mapping[str, Any], name: str) -> Sequence[str]:
    value = found.get(name)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
