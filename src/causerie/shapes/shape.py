"""An API of completions: how it reads requests, words errors, and names what it reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Raw, Struct

from causerie.errors import Error, ErrorDetails, ServiceError
from causerie.protocol import sse
from causerie.protocol.events import Batch, Event, PassedBytes, PassedReply
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest
from causerie.protocol.response import Reply, ResponseContext, StreamEncoder

AT_ONCE = 32 * 1024
"""Bytes of a body that is read at once: field by field, with repairs, it takes up to 10 ms."""
CHANGES = "x-request-changes"
_MESSAGE = re.compile(r"messages\[([0-9]+)\]")
_PATH = re.compile(r"[\w.\[\]]*")
_QUOTED = re.compile(r"`([^`]+)`")


class Places(Struct, frozen=True):
    """Paths of the fields of chat completions in the body that a client sent.

    All stages behind a reader name fields as chat completions do. ``messages`` has the place of
    each message (``input[3]``), ``names`` those of other fields, also within messages and tools
    (``messages[3].tool_calls[0].function``). ``said`` are changes that the reader reports itself.
    """

    messages: tuple[str, ...]
    names: Mapping[str, str]
    said: Collection[str] = ()

    def path(self, path: str) -> str:
        """Return the path in the client's body for a path that begins with a known field."""
        message = _MESSAGE.match(path)
        if message is not None and int(message[1]) >= len(self.messages):
            message = None
        least = 0 if message is None else message.end()
        head = _PATH.match(path)[0]  # type: ignore[index]  # it matches any text
        while len(head) > least and head not in self.names:
            head = head[: max(head.rfind("."), head.rfind("["), 0)]
        if len(head) > least:
            return self.names[head] + path[len(head) :]
        if message is not None:
            return self.messages[int(message[1])] + path[message.end() :]
        return path

    def rename(self, failure: Exception) -> None:
        """Rename the fields that an error names to those of the client's body."""
        if not isinstance(failure, ServiceError):
            return
        failure.message = _QUOTED.sub(lambda found: f"`{self.path(found[1])}`", failure.message)
        failure.args = (failure.message,)
        if failure.param is not None:
            failure.param = self.path(failure.param)
        failure.headers = dict(self.renamed(failure.headers))

    def renamed(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return headers whose report of changes names fields as the client does."""
        changes = headers.get(CHANGES)
        if changes is None:
            return headers
        each = (one if one in self.said else self.path(one) for one in changes.split(", "))
        return {**headers, CHANGES: ", ".join(each)}


class ParsedRequest(Struct, frozen=True):
    """A parsed request, the encoder of its reply, and the client's names of its fields."""

    request: ChatRequest
    reply: Reply
    places: Places = Places((), {})


class Shape(Struct, frozen=True):
    """One API of completions; nothing behind its reader knows which one a request came by."""

    name: str
    path: str  # path of its operation below the base URL of a door
    id_prefix: str  # beginning of the ids of its replies
    parse: Callable[[bytes, ParsingRules, Mapping[str, str]], ParsedRequest]
    """Parses a body, with the request's headers; raises :class:`InvalidRequest`."""
    parse_usual: Callable[[bytes, ParsingRules], ParsedRequest | None] = lambda body, rules: None
    """Parses a larger body that is as usual without holding the event loop."""
    error: Callable[[ServiceError, str], object] = lambda failure, _: Error(failure.error())
    """Returns the body of an error with this request id, to be encoded as JSON."""
    error_status: Callable[[ServiceError], int] = lambda failure: failure.status
    ping: bytes = sse.PING  # a sign of life in a stream
    counting: str = ""  # path of the operation that counts the tokens of a prompt
    count_body: Callable[[int], object] | None = None  # returns the reply of that operation
    id_header: str = ""  # a further header that carries the id of a request

    def parse_at_once(
        self, body: bytes, rules: ParsingRules, headers: Mapping[str, str]
    ) -> ParsedRequest | None:
        """Parse like ``parse``, but return ``None`` if that would block the event loop."""
        if len(body) > AT_ONCE:
            return self.parse_usual(body, rules)
        return self.parse(body, rules, headers)


class PassingReply(Struct, frozen=True):
    """Passes on what a provider sent in the same API; ``encoded`` is for all other targets.

    ``resume`` gets the encoder that ends a stream that broke, with the first and the newest event
    that passed.
    """

    encoded: Reply
    resume: Callable[[Any, bytes, bytes], None] | None = None

    def completion(self, context: ResponseContext, events: Sequence[Event]) -> object:
        if len(events) > 2 and isinstance(passed := events[-3], PassedReply):
            return Raw(passed.data)
        return self.encoded.completion(context, events)

    def encoder(self, context: ResponseContext) -> StreamEncoder:
        return PassingEncoder(self.encoded.encoder(context), self.resume)


class PassingEncoder(Struct, eq=False):
    _encoder: StreamEncoder
    _resume_encoder: Callable[[Any, bytes, bytes], None] | None
    _last_events: list[bytes] = []
    _first_passed_event: bytes = b""  # event that passed
    _newest_passed_event: bytes = b""

    def feed(self, batch: Batch) -> bytes:
        passed: list[bytes] = []
        for event in batch:
            if event.__class__ is PassedBytes:
                self._newest_passed_event = event.data
                self._first_passed_event = self._first_passed_event or event.data
                (self._last_events if event.last else passed).append(event.data)
        return b"".join(passed) if self._first_passed_event else self._encoder.feed(batch)

    def broken(self, error: ErrorDetails) -> bytes:
        self._last_events.clear()
        if self._first_passed_event and self._resume_encoder is not None:
            self._resume_encoder(self._encoder, self._first_passed_event, self._newest_passed_event)
        return self._encoder.broken(error)

    def end(self) -> bytes:
        return b"".join(self._last_events) if self._first_passed_event else self._encoder.end()
