"""An OpenID provider as a process of its own, which can be told to behave badly.

It holds to the standards where it is not told otherwise: a code works once, for
the client and the callback it was given to, with the verifier of its challenge.
``POST /behave`` says how it shall differ, and whom it lets in.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_plus, urlencode
from urllib.request import Request, urlopen

import pytest
from aiohttp import web
from certificates import Certificates
from joserfc import jws
from joserfc.jwk import ECKey, RSAKey

CLIENT, SECRET = "causerie:test", "a secret/of the+tests"
_PLAIN = {"sub": "ada-1", "email": "Ada@Example.org", "email_verified": True, "name": "Ada"}


@dataclass
class Issuer:
    """The provider; ``ways`` says how it differs from a good one."""

    issuer: str = ""
    ways: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    rsa: RSAKey = field(
        default_factory=lambda: RSAKey.generate_key(2048, {"kid": "rsa-1", "use": "sig"})
    )
    ec: ECKey = field(default_factory=lambda: ECKey.generate_key("P-256", {"kid": "ec-1"}))
    newer: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "rsa-2"}))

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self.discovery)
        app.router.add_get("/authorize", self.authorize)
        app.router.add_post("/token", self.token)
        app.router.add_get("/jwks", self.keys)
        app.router.add_get("/userinfo", self.userinfo)
        app.router.add_post("/behave", self.behave)
        app.router.add_get("/asked", self.tell)
        return app

    async def behave(self, request: web.Request) -> web.Response:
        self.ways = await request.json()
        self.asked.clear()
        return web.Response()

    async def tell(self, request: web.Request) -> web.Response:
        return web.json_response(self.asked)

    async def discovery(self, request: web.Request) -> web.StreamResponse:
        document = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "id_token_signing_alg_values_supported": ["RS256", "ES256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return await self._answer(request, "discovery", document | self.ways.get("document", {}))

    async def keys(self, request: web.Request) -> web.StreamResponse:
        keys: list[RSAKey | ECKey] = [self.rsa, self.ec]
        if self.ways.get("rotated"):
            keys = [self.newer]
        listed = [key.as_dict(private=False) for key in keys]
        odd = [{"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA"}, {"kty": "RSA"}, "nothing"]
        return await self._answer(request, "keys", {"keys": [*odd, *listed]})

    async def authorize(self, request: web.Request) -> web.Response:
        query = request.query
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        back = {"state": query["state"], "iss": self.issuer}
        if self.ways.get("denied"):
            back["error"] = "access_denied"
        else:
            back["code"] = secrets.token_urlsafe(16)
            self.codes[back["code"]] = dict(query)
        back |= self.ways.get("back", {})
        back = {name: value for name, value in back.items() if value is not None}
        raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode(back)}")

    async def token(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        if not self._is_client(request, form):
            return web.json_response({"error": "invalid_client"}, status=401)
        given = self.codes.pop(str(form["code"]), None)
        verifier = str(form.get("code_verifier", "")).encode()
        challenge = _part(hashlib.sha256(verifier).digest())
        if (
            given is None
            or given["redirect_uri"] != form["redirect_uri"]
            or given["code_challenge"] != challenge.decode()
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        reply = {
            "access_token": "access",
            "token_type": "Bearer",
            "id_token": self._id_token(given["nonce"]),
        }
        return await self._answer(request, "token", reply | self.ways.get("reply", {}))

    async def userinfo(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["authorization"] == "Bearer access"
        return await self._answer(request, "userinfo", _PLAIN | self.ways.get("told", {}))

    def _is_client(self, request: web.Request, form: Mapping[str, Any]) -> bool:
        known = CLIENT, self.ways.get("secret", SECRET)
        if self.ways.get("secret_in_form"):
            return (form.get("client_id"), form.get("client_secret")) == known
        kind, _, pair = request.headers.get("authorization", "").partition(" ")
        name, _, secret = base64.b64decode(pair).decode().partition(":")
        return kind == "Basic" and (unquote_plus(name), unquote_plus(secret)) == known

    def _id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = _PLAIN | {
            "iss": self.issuer,
            "aud": CLIENT,
            "nonce": nonce,
            "iat": now,
            "exp": now + 300,
        }
        claims |= self.ways.get("claims", {})
        for name, seconds in self.ways.get("times", {}).items():
            claims[name] = now + seconds
        claims = {name: value for name, value in claims.items() if value is not None}
        return self._signed(json.dumps(claims).encode())

    def _signed(self, payload: bytes) -> str:
        way = self.ways.get("signed", "rsa")
        if way == "none":
            return (_part(b'{"alg":"none"}') + b"." + _part(payload) + b".").decode()
        if way == "public":  # the public key, which everybody has, as if it were a shared secret
            signed = b".".join(map(_part, (b'{"alg":"HS256","kid":"rsa-1"}', payload)))
            mac = hmac.digest(self.rsa.as_pem(private=False), signed, "sha256")
            return (signed + b"." + _part(mac)).decode()
        key: RSAKey | ECKey = {
            "rsa": self.rsa,
            "changed": self.rsa,
            "ec": self.ec,
            "newer": self.newer,
        }.get(way, self.newer)
        header = {"alg": "ES256" if way == "ec" else "RS256", "kid": str(key.kid)}
        if way == "strange":  # another's signature, in the name of a key that is known
            header["kid"] = "rsa-1"
        if way == "nameless":
            key, header = self.rsa, {"alg": "RS256"}
        token = jws.serialize_compact(header, payload, key, algorithms=[header["alg"]])
        if way == "changed":
            head, _, signature = token.split(".")
            changed = json.loads(payload) | {"sub": "root"}
            return f"{head}.{_part(json.dumps(changed).encode()).decode()}.{signature}"
        return token

    async def _answer(
        self, request: web.Request, what: str, value: Mapping[str, Any]
    ) -> web.StreamResponse:
        self.asked[what] = self.asked.get(what, 0) + 1
        way = self.ways.get(what)
        if way == "slow":
            await asyncio.sleep(60)
        if way == "huge":
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b" " * 65536)
        if way == "html":
            return web.Response(text="<html>Sign in</html>", content_type="text/html")
        if way == "redirect":
            raise web.HTTPFound("http://169.254.169.254/latest/meta-data")
        if way == "broken":
            return web.json_response({"error": "server_error"}, status=500)
        return web.json_response(value)


def _part(value: bytes) -> bytes:
    return base64.urlsafe_b64encode(value).rstrip(b"=")


class RunningIssuer:
    """The process, from outside."""

    def __init__(
        self, process: subprocess.Popen[str], port: int, tls: Certificates | None = None
    ) -> None:
        self.process = process
        self._trusted = None if tls is None else ssl.create_default_context(cafile=tls.ca)
        self.issuer = f"http{'s' if tls is not None else ''}://127.0.0.1:{port}"

    def behave(self, **ways: Any) -> None:
        """From now on; without anything: well."""
        data = json.dumps(ways).encode()
        asked = Request(f"{self.issuer}/behave", data)
        urlopen(asked, timeout=60, context=self._trusted).close()

    def asked(self) -> dict[str, int]:
        """Return the number of requests by path."""
        with urlopen(f"{self.issuer}/asked", timeout=60, context=self._trusted) as response:
            found: dict[str, int] = json.load(response)
            return found


@contextmanager
def issuer(tls: Certificates | None = None) -> Iterator[RunningIssuer]:
    """A provider, for as long as the block runs; with certificates it speaks TLS only."""
    files = [] if tls is None else [str(tls.certificate), str(tls.key)]
    command = [sys.executable, __file__, *files]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield RunningIssuer(process, int(process.stdout.readline()), tls)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="session")
def oidc() -> Iterator[RunningIssuer]:
    """One for all tests; each says first how it shall behave."""
    with issuer() as found:
        yield found


@pytest.fixture
def tls_oidc(certificates: Certificates) -> Iterator[RunningIssuer]:
    """One that speaks TLS only."""
    with issuer(certificates) as found:
        yield found


async def _serve(certificate: str | None = None, key: str | None = None) -> None:
    made = Issuer()
    runner = web.AppRunner(made.application())
    await runner.setup()
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    made.issuer = f"http{'s' if certificate else ''}://127.0.0.1:{port}"
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
