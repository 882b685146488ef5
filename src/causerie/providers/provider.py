"""One provider that others run: where it is, how it is spoken to, and its request slots."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import msgspec

from causerie.errors import ErrorClass, ServiceError, UpstreamFailed
from causerie.http.client import HttpClient, RequestListener
from causerie.http.client_connection import FailureKind, HttpResponse, TransportFailed
from causerie.http.decoding import decoded
from causerie.protocol import bounded_json
from causerie.protocol.request import NativeRequest, Operation
from causerie.providers.dialect import Dialect
from causerie.providers.refusal import hide_credential, refusal, said


class RequestSlots(msgspec.Struct, eq=False):
    """The slots of one provider, counted in this process; ``most`` of ``None`` bounds nothing."""

    most: int | None
    taken: int = 0  # requests under way

    @property
    def spares(self) -> bool:
        """Return true if a quarter of the slots, and at least one, is free."""
        most = self.most
        return most is None or (self.taken < most and (most - self.taken) * 4 >= most)

    def take(self) -> bool:
        if self.most is not None and self.taken >= self.most:
            return False
        self.taken += 1
        return True

    def give_back(self) -> None:
        self.taken -= 1


class _Counted(msgspec.Struct):
    input_tokens: Annotated[int, msgspec.Meta(ge=0)]


MAX_ERROR_BYTES = 64 * 1024
MAX_REPLY_BYTES = 64 * 1024 * 1024
_MAX_LIST_BYTES = 16 * 1024 * 1024
_MOST_LISTED = 2000
_ID = re.compile(r"[\w.:/@+-]{1,200}")
_WORDS: Mapping[FailureKind, str] = {
    "dns": "cannot be found by its name",
    "refused": "cannot be connected to",
    "private": "has an address that is not public, and in none of `server.private_networks`",
    "tls": "has no valid certificate, or does not speak TLS as it should",
    "proxy": "cannot be reached through its proxy",
    "connect_timeout": "could not be connected to in time",
    "timeout": "took too long",
    "reset": "broke the connection off",
    "closed": "closed the connection too early",
    "protocol": "does not speak HTTP as it should",
    "too_large": "sent more than is read",
    "compressed": "sent a compressed reply that cannot be read",
}
_CLASSES: Mapping[FailureKind, ErrorClass] = {
    "connect_timeout": ErrorClass.TIMEOUT,
    "protocol": ErrorClass.INVALID_REPLY,
    "too_large": ErrorClass.INVALID_REPLY,
}


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Time limits of a reply, in seconds, kept to a quarter second; connecting has its own."""

    first_token: float = 120.0  # from a request to be streamed until the first content
    between_chunks: float = 60.0
    """From one piece of content to the next, if the provider streams its reply."""
    total: float = 1800.0  # until the end


def failed(failure: TransportFailed) -> UpstreamFailed:
    """Return our error for a failed exchange; only its cause holds the address."""
    if failure.kind == "timeout":
        return too_late()
    late = failure.kind == "connect_timeout"
    return UpstreamFailed(
        f"The provider {_WORDS[failure.kind]}.",
        code="upstream_timeout" if late else None,
        status=504 if late else None,
        metadata={"upstream_failure": failure.kind},
    ).caused_by(_CLASSES.get(failure.kind, ErrorClass.CONNECTION))


def too_late() -> UpstreamFailed:
    return UpstreamFailed(
        "The provider took too long.", code="upstream_timeout", status=504
    ).caused_by(ErrorClass.TIMEOUT)


class KeyRenewal(Protocol):
    """Renews the key of a provider that changes while the service runs."""

    @property
    def expired(self) -> bool:
        """Return whether the key is no longer valid, and there is no new one."""

    async def renewed(self, rejected: str | None) -> bool:
        """Wait for a new key if the rejected one is in use; return whether there is another now."""


class Provider:
    """Client of one upstream provider: sends requests in its dialect, within its ``slots``.

    ``candid`` shows the server's words whatever it refuses, for somebody who speaks to it for
    himself. ``fingerprint`` is for replies that have none.
    """

    key_renewal: KeyRenewal | None = None  # of a key that changes
    more_headers: Callable[[], Mapping[str, str]] | None = None  # of each chat request, as it goes

    def __init__(
        self,
        name: str,
        client: HttpClient,
        dialect: Dialect,
        *,
        credential: str | None = None,
        deadlines: Deadlines = Deadlines(),
        slots: RequestSlots | None = None,
    ) -> None:
        self.max_reply_bytes = MAX_REPLY_BYTES  # of a stream, decoded
        self.retries = 0  # of a request that failed
        self.candid = False
        self.name = name
        self.dialect = dialect
        self.fingerprint = f"fp_{dialect.name}"
        self.deadlines = deadlines
        self.slots = slots or RequestSlots(None)
        self.listed: Sequence[str] = ()  # ids of its models, as a check has read them last
        self._client = client
        self.credential: str | None = None
        self.use(credential)

    def use(self, credential: str | None) -> None:
        """Send this key from now on; requests under way are not touched."""
        self._former_credential, self.credential = self.credential, credential
        api = self.dialect.api
        always = (*api.credential(credential), *api.headers)
        self._headers_for_get = (*always, ("accept", "application/json"))
        self._post_headers = (
            *always,
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        )
        by_model = "{model}" in api.path
        self._chat_head = None if by_model else self._build_request_head("")  # for all models
        self._heads_by_api = {one: self._build_native_head(one, {}) for one in self.dialect.native}

    async def renews(self, rejected: str | None) -> bool:
        return self.key_renewal is not None and await self.key_renewal.renewed(rejected)

    def post(
        self,
        model: str,
        body: bytes,
        due: float,
        *,
        anew: bool = False,
        asked: RequestListener | None = None,
        native: NativeRequest | Operation | None = None,
    ) -> Coroutine[None, None, HttpResponse]:
        """Send the body of a request to ``model``; see :meth:`HttpClient.send_body`.

        A ``native`` one goes to the path of its API, with its headers, and one of an operation that
        passes through to the path of that. Raises :class:`UpstreamFailed` if the key has expired.
        """
        if self.key_renewal is not None and self.key_renewal.expired:
            raise UpstreamFailed(
                "The key of the provider has expired, and no new one could be had."
            ).caused_by(ErrorClass.REJECTED_KEY)
        if native is None:
            head = self._chat_head or self._build_request_head(model)
        elif isinstance(native, str):
            head = self._build_request_head(model, native)
        elif native.headers:
            head = self._build_native_head(native.shape, native.headers)
        else:
            head = self._heads_by_api[native.shape]
        if self.more_headers is not None:
            lines = "".join([f"{name}: {value}\r\n" for name, value in self.more_headers().items()])
            head += lines.encode("latin-1")
        return self._client.send_body(head, body, due, anew=anew, asked=asked)

    def _build_request_head(self, model: str, operation: Operation = "chat") -> bytes:
        api = self.dialect.api
        return self._client.head("POST", api.at(api.path_of(operation), model), self._post_headers)

    def _build_native_head(self, native_api: str, extra_headers: Mapping[str, str]) -> bytes:
        path = self.dialect.api.at(self.dialect.native[native_api])
        return self._client.head("POST", path, (*self._post_headers, *extra_headers.items()))

    async def refused(self, response: HttpResponse) -> ServiceError:
        try:
            body = await (await decoded(response)).read(MAX_ERROR_BYTES)
        except TransportFailed:
            body = b""
        failure = refusal(response.status, response.headers, body, self.dialect)
        if self.candid:
            failure.message = said(body) or failure.message
        return self.private(failure)

    def private(self, failure: ServiceError) -> ServiceError:
        """Return the failure after removing our key, which the provider may have quoted."""
        for key in (self.credential, self._former_credential):
            failure.message = hide_credential(failure.message, key)
            if (code := failure.metadata.get("upstream_code")) != hide_credential(str(code), key):
                failure.metadata.pop("upstream_code", None)
        return failure

    async def listing(self, seconds: float = 10.0) -> list[dict[str, Any]]:
        async with self._open_timed_response("GET", self.dialect.api.models, seconds) as response:
            if response.status != 200:
                raise await self.refused(response)
            return _parse_models(await (await decoded(response)).read(_MAX_LIST_BYTES))

    async def check(
        self, path: str = "/models", seconds: float = 5.0, *, listing: bool = False
    ) -> None:
        """Raise :class:`ServiceError` if the provider does not answer, fails or turns us away.

        Not every server has that path. With ``listing`` the models in it are kept in ``listed``.
        """
        key = self.credential
        async with self._open_timed_response("GET", path, seconds) as response:
            if response.status == 401:
                await self.renews(key)  # for the next time
            if response.status >= 500 or response.status in (401, 403, 429):
                raise await self.refused(response)
            if listing and response.status == 200:
                with suppress(UpstreamFailed):  # another path has another content
                    entries = _parse_models(await (await decoded(response)).read(_MAX_LIST_BYTES))
                    ids = [id for entry in entries if _ID.fullmatch(id := str(entry["id"]))]
                    self.listed = ids[:_MOST_LISTED]

    async def close(self) -> None:
        await self._client.close()

    async def count(
        self, path: str, body: bytes, headers: Mapping[str, str], seconds: float = 10.0
    ) -> int | None:
        """Return the tokens of a prompt; ``None`` if the provider says that it estimates them."""
        async with self._open_timed_response("POST", path, seconds, headers, body) as response:
            if response.status != 200:
                raise await self.refused(response)
            if response.headers.get("x-token-count") == "estimated":
                return None
            told = await (await decoded(response)).read(MAX_ERROR_BYTES)
        try:
            return bounded_json.decode(told, _Counted).input_tokens
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise UpstreamFailed("The provider counted no tokens.") from None

    @asynccontextmanager
    async def _open_timed_response(
        self,
        method: str,
        path: str,
        timeout_seconds: float,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> AsyncIterator[HttpResponse]:
        lines = (*self._post_headers, *(headers or {}).items()) if body else self._headers_for_get
        try:
            async with asyncio.timeout(timeout_seconds):
                response = await self._client.send(method, self.dialect.api.at(path), lines, body)
                try:
                    yield response
                finally:
                    response.close()
        except TransportFailed as failure:
            raise failed(failure) from failure
        except TimeoutError:
            raise too_late() from None


def _parse_models(body: bytes) -> list[dict[str, Any]]:
    try:
        found: Any = bounded_json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    listed = found.get("data") if isinstance(found, dict) else found
    if not isinstance(listed, list):
        raise UpstreamFailed(
            "The provider did not answer with a list of models; does it speak chat completions?"
        )
    return [entry for entry in listed if isinstance(entry, dict) and "id" in entry]
