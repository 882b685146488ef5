"""A small client of chat endpoints: lists models, streams one answer as events.

Reads generously (either name of the reasoning, missing fields, plain bodies
from servers that do not stream). Knows nothing of routing, retries or metering.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from causerie.protocol.events import (
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.sse import Decoder, LineTooLong

_MAX_ERROR_BYTES = 64 * 1024


class EndpointError(Exception):
    """The endpoint could not answer; the text is one sentence for a person."""


class Unreachable(EndpointError):
    """No connection, or it broke."""


class Refused(EndpointError):
    """The endpoint answered with an error; ``status`` 200 when it came inside the stream."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function = msgspec.field(default_factory=_Function)


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta = msgspec.field(default_factory=_Delta)
    message: _Delta | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "error": "error",
}


class ChatClient:
    """One endpoint, by its base address (which ends with ``/v1`` or alike).

    Use as an async context manager. ``connect_seconds`` bounds the connection;
    a silent stream is waited for, because a model may think for long.
    """

    def __init__(
        self, base_url: str, key: str | None = None, *, connect_seconds: float = 10.0
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=self._timeout)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def models(self) -> list[str]:
        """Ids of the models, in the endpoint's order. Raises :class:`EndpointError`."""
        async with self._response("GET", "/models") as response:
            try:
                found = msgspec.json.decode(await response.read(), type=_Models)
            except msgspec.MsgspecError as error:
                raise Refused(
                    f"{self.base_url}/models did not answer with a list of models; "
                    "is this the base address of a chat endpoint?",
                    status=response.status,
                ) from error
        return [model.id for model in found.data]

    @asynccontextmanager
    async def stream(self, body: Mapping[str, object]) -> AsyncIterator[AsyncIterator[Event]]:
        """Send a chat completion request; leaving ends the answer, wherever it is.

        Entering raises :class:`EndpointError` when the endpoint refuses or
        cannot be reached, iterating when the answer breaks.
        """
        wanted = {**body, "stream": True, "stream_options": {"include_usage": True}}
        async with self._response("POST", "/chat/completions", wanted) as response:
            if response.content_type == "text/event-stream":
                chunks = self._chunks(response)
            else:
                chunks = self._whole(response)
            yield _events(chunks, response.status)

    @asynccontextmanager
    async def _response(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("use the client as an async context manager")
        data = msgspec.json.encode(body) if body is not None else None
        headers = {"Content-Type": "application/json"} if data is not None else {}
        try:
            async with self._session.request(
                method, self.base_url + path, data=data, headers=headers
            ) as response:
                if response.status >= 400:
                    raise await self._refusal(response)
                yield response
        except aiohttp.InvalidURL as error:
            raise Unreachable(f"{self.base_url} is not an address") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(f"{self.base_url} cannot be reached: {_reason(error)}") from error

    async def _refusal(self, response: aiohttp.ClientResponse) -> Refused:
        raw = await response.content.read(_MAX_ERROR_BYTES)
        message = _error_text(raw) or f"{response.reason or 'error'} from {response.url}"
        return Refused(f"{message} (status {response.status})", status=response.status)

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[_Chunk]:
        decoder = Decoder()
        try:
            async for piece in response.content.iter_any():
                for data in decoder.feed(piece):
                    if data.strip() == b"[DONE]":
                        return
                    yield msgspec.json.decode(data, type=_Chunk)
        except (msgspec.MsgspecError, LineTooLong) as error:
            raise Refused(
                f"{self.base_url} sent a stream that cannot be read: {error}",
                status=response.status,
            ) from error

    async def _whole(self, response: aiohttp.ClientResponse) -> AsyncIterator[_Chunk]:
        """A plain body from a server that does not stream."""
        try:
            yield msgspec.json.decode(await response.read(), type=_Chunk)
        except msgspec.MsgspecError as error:
            raise Refused(
                f"{self.base_url} did not answer with a chat completion; "
                "is this the base address of a chat endpoint?",
                status=response.status,
            ) from error


async def _events(chunks: AsyncIterator[_Chunk], status: int) -> AsyncIterator[Event]:
    started: set[tuple[int, int]] = set()
    async for chunk in chunks:
        if chunk.error is not None:
            text = _message_of(chunk.error) or "the answer broke off"
            raise Refused(text, status=status)
        for choice in chunk.choices:
            for event in _choice_events(choice, started):
                yield event
        if chunk.usage is not None:
            yield _usage(chunk.usage)


def _choice_events(choice: _Choice, started: set[tuple[int, int]]) -> list[Event]:
    delta = choice.message or choice.delta
    events: list[Event] = []
    reasoning = delta.reasoning_content or delta.reasoning
    if reasoning:
        events.append(ReasoningDelta(reasoning, choice.index))
    if delta.content:
        events.append(TextDelta(delta.content, choice=choice.index))
    for position, call in enumerate(delta.tool_calls or ()):
        index = position if choice.message else call.index
        if (choice.index, index) not in started:
            started.add((choice.index, index))
            name = call.function.name or ""
            events.append(ToolCallStarted(index, call.id or "", name, choice.index))
        if call.function.arguments:
            events.append(ToolCallDelta(index, call.function.arguments, choice.index))
    if choice.finish_reason is not None:
        events.append(Finished(_FINISH.get(choice.finish_reason, "stop"), choice.index))
    return events


def _usage(usage: _Usage) -> Usage:
    cached = usage.prompt_tokens_details
    reasoning = usage.completion_tokens_details
    return Usage(
        prompt=usage.prompt_tokens,
        completion=usage.completion_tokens,
        cached=(cached.cached_tokens if cached else None) or 0,
        reasoning=(reasoning.reasoning_tokens if reasoning else None) or 0,
    )


def _error_text(raw: bytes) -> str | None:
    try:
        body = msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return None
    return _message_of(body.get("error", body)) if isinstance(body, dict) else None


def _message_of(error: object) -> str | None:
    if isinstance(error, dict):
        error = error.get("message")
    return error if isinstance(error, str) and error else None


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or str(error.os_error)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
