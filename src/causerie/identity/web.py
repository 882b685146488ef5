"""JSON from a provider, with an end to its time and its size.

Addresses are the issuer's, which comes from the configuration, and those that
the issuer's own document names. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from causerie.protocol import bounded_json
from causerie.runtime.public_addresses import Network
from causerie.transport.client import HttpClient, Reach
from causerie.transport.errors import TransportFailed

_FORM = "application/x-www-form-urlencoded"


class IdentityProviderFailed(Exception):
    """The provider did not answer as it should; the words are for the log, and hold no secret."""


class IdentityHttp:
    """Asks providers. An answer that takes longer, or is larger, is none.

    ``ca_file`` has the certificates to trust; unset, those that the system trusts. ``networks`` may
    be reached apart from public addresses; ``None``: any address.
    """

    def __init__(
        self,
        *,
        seconds: float = 10.0,
        max_bytes: int = 512 * 1024,
        ca_file: str | None = None,
        networks: Sequence[Network] | None = None,
    ) -> None:
        self._networks = networks
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._ca_file = ca_file
        self._tls: ssl.SSLContext | None = None

    async def get(self, url: str, headers: Sequence[tuple[str, str]] = ()) -> Mapping[str, Any]:
        """Return the object at ``url``; raise :class:`IdentityProviderFailed`."""
        return await self._ask("GET", url, headers, b"")

    async def post(
        self, url: str, fields: Mapping[str, str], headers: Sequence[tuple[str, str]] = ()
    ) -> Mapping[str, Any]:
        """Post a form and return the answer; raise :class:`IdentityProviderFailed`."""
        body = urlencode(fields).encode()
        return await self._ask("POST", url, [*headers, ("content-type", _FORM)], body)

    async def _ask(
        self, method: str, url: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> Mapping[str, Any]:
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        reach = Reach(
            tls=await self._trusted(),
            connect_seconds=self._seconds,
            idle_seconds=0,
            networks=self._networks,
        )
        try:
            client = HttpClient(f"{parts.scheme}://{parts.netloc}", reach)
        except ValueError as failure:
            raise IdentityProviderFailed(f"an address that is none: {failure}") from failure
        try:
            async with asyncio.timeout(self._seconds):
                accept = ("accept", "application/json")
                response = await client.send(method, path, [accept, *headers], body)
                content = await response.read(self._max_bytes)
        except TransportFailed as failure:
            words = str(failure) if failure.kind == "tls" else f"{parts.netloc}: {failure.kind}"
            raise IdentityProviderFailed(words) from failure
        except TimeoutError as failure:
            raise IdentityProviderFailed(
                f"{parts.netloc}: no answer in {self._seconds:g} s"
            ) from failure
        except ValueError as failure:
            raise IdentityProviderFailed(f"{parts.netloc}: cannot be asked") from failure
        finally:
            await client.close()
        return _object(parts.netloc, response.status, content)

    async def _trusted(self) -> ssl.SSLContext:
        """Read from many certificates: not in the loop, and not before it is used."""
        if self._tls is None:

            def read() -> ssl.SSLContext:
                return ssl.create_default_context(cafile=self._ca_file)

            try:
                self._tls = await asyncio.to_thread(read)
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
