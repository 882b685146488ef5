"""Verification of an id token: issuer's signature, audience, time, and nonce.

OpenID Connect Core 1.0, section 3.1.3.7. Only signatures by public keys are
accepted. With `none` there is no signature. With a shared secret (HS256), anyone
who knows the value that we use as the secret, like the issuer's public key,
could sign.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import Key

from causerie.protocol import bounded_json

_LEEWAY = 60  # seconds by which clocks may differ
_KINDS = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    **dict.fromkeys(("EdDSA", "Ed25519"), "OKP"),
}


class BadToken(Exception):
    """It is not to be believed; the words are for the log."""


class UnknownKey(BadToken):
    """None of the keys signed it; there may be newer ones."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected claims of a token; ``now`` is in seconds since 1970."""

    issuer: str
    client_id: str
    nonce: str
    algorithms: frozenset[str]
    now: float


def verified(token: str, keys: Sequence[Key], expected: Expected) -> Mapping[str, Any]:
    """Return the claims of a good token; raise :class:`BadToken`."""
    header = _header(token)
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in _KINDS:
        raise BadToken(f"signed by {str(algorithm)[:20]!r}, which is no signature by a public key")
    if expected.algorithms and algorithm not in expected.algorithms:
        raise BadToken(f"signed by {algorithm}, which its issuer does not offer")
    if "crit" in header:
        raise BadToken("it demands an extension")
    claims = _claims(_payload(token, algorithm, header.get("kid"), keys))
    for wrong in _wrong(claims, expected):
        raise BadToken(wrong)
    return claims


def _header(token: str) -> Mapping[str, Any]:
    try:
        header = jws.extract_compact(token.encode()).headers()
    except (JoseError, ValueError, TypeError, RecursionError) as failure:
        raise BadToken("it is no signed token") from failure
    return header


def _payload(token: str, algorithm: str, kid: object, keys: Sequence[Key]) -> bytes:
    fitting = [
        key
        for key in keys
        if key.key_type == _KINDS[algorithm]
        and (kid is None or key.get("kid") == kid)
        and key.get("alg") in (None, algorithm)
    ]
    for key in fitting:
        try:
            found = jws.deserialize_compact(token.encode(), key, algorithms=[algorithm])
        except (JoseError, ValueError, TypeError):
            continue
        return found.payload or b""
    if kid is not None and fitting:
        raise BadToken("its signature is wrong")
    raise UnknownKey("no key of its issuer signed it")


def _claims(payload: bytes) -> Mapping[str, Any]:
    try:
        claims: Any = bounded_json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
        raise BadToken("its payload is no JSON") from failure
    if not isinstance(claims, dict):
        raise BadToken("its payload is no object")
    return claims


def _wrong(claims: Mapping[str, Any], expected: Expected) -> Iterator[str]:
    if claims.get("iss") != expected.issuer:
        yield "it is of another issuer"
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if expected.client_id not in audiences:
        yield "it is for somebody else"
    azp = claims.get("azp")
    if (len(audiences) > 1 or azp is not None) and azp != expected.client_id:
        yield "it was given to somebody else"
    nonce = claims.get("nonce")
    if not isinstance(nonce, str) or not hmac.compare_digest(
        nonce.encode("utf-8", "replace"), expected.nonce.encode()
    ):
        yield "it is of another attempt"
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= 255:
        yield "it names nobody"
    yield from _wrong_times(claims, expected.now)


def _wrong_times(claims: Mapping[str, Any], now: float) -> Iterator[str]:
    expires, issued = claims.get("exp"), claims.get("iat")
    begins = claims.get("nbf", issued)
    if not (_is_time(expires) and _is_time(issued) and _is_time(begins)):
        yield "its times are missing, or none"
        return
    if expires + _LEEWAY < now:
        yield "it has expired"
    if max(issued, begins) - _LEEWAY > now:
        yield "it is of the future"


def _is_time(value: object) -> TypeGuard[float]:
    return type(value) in (int, float)
