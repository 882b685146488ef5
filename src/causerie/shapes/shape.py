"""An API of completions: how it reads requests, words errors, and names what it reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec import Struct

from causerie.errors import Error, InvalidRequest, ServiceError
from causerie.protocol import sse
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest
from causerie.protocol.response import Reply

CHANGES = "x-request-changes"
_MESSAGE = re.compile(r"messages\[([0-9]+)\]")
_ELEMENT = re.compile(r"(?:tools\[\d+\]|messages\[\d+\]\.(?:content|tool_calls)(?:\[\d+\])?)")
_QUOTED = re.compile(r"`([^`]+)`")


class Places(Struct, frozen=True):
    """Where the fields of chat completions stand in the body that a client sent.

    All stages behind a reader name fields as chat completions do. ``messages`` has the place of
    each message (``input[3]``), ``names`` those of other fields. Names may be of elements
    (``messages[2].content[0]``, ``tools[1]``), and of what an element has (``.function.name``).
    """

    messages: tuple[str, ...]
    names: Mapping[str, str]
    changes: tuple[str, ...] = ()
    """What the reader itself changed, in the client's words."""

    def path(self, path: str) -> str:
        """Return the place of a field, which begins ``path``; the rest of it is kept."""
        element = _ELEMENT.match(path)
        if element is not None and element[0] in self.names:
            return self.names[element[0]] + self._tail(path[element.end() :])
        message = _MESSAGE.match(path)
        if message is not None and int(message[1]) < len(self.messages):
            return self.messages[int(message[1])] + self._tail(path[message.end() :])
        name = re.match(r"[\w.]*", path)
        whole = name[0] if name is not None else ""
        head = whole
        while head and head not in self.names:
            head = head.rpartition(".")[0]
        return self.names[head] + path[len(head) :] if head else path

    def _tail(self, rest: str) -> str:
        name = re.match(r"[\w.]*", rest)
        found = "" if name is None else name[0]
        return self.names.get(found, found) + rest[len(found) :]

    def rename(self, failure: ServiceError) -> None:
        """Let an error name fields as the client does."""
        failure.message = _QUOTED.sub(lambda found: f"`{self.path(found[1])}`", failure.message)
        failure.args = (failure.message,)
        if failure.param is not None:
            failure.param = self.path(failure.param)
        failure.headers = dict(self.renamed(failure.headers))

    def renamed(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return headers whose report of changes names fields as the client does."""
        changes = headers.get(CHANGES)
        if changes is None and not self.changes:
            return headers
        made = map(self.path, changes.split(", ")) if changes else ()
        return {**headers, CHANGES: ", ".join([*self.changes, *made])}


class ParsedRequest(Struct, frozen=True):
    """A request, how its reply looks, and the names of its fields if they are others."""

    request: ChatRequest
    reply: Reply
    places: Places | None = None


def openai_error(failure: ServiceError, request_id: str) -> object:
    """Return the body of an error as chat completions and Responses have it."""
    return Error(failure.error())


@dataclass(frozen=True, slots=True)
class Shape:
    """One API of completions; nothing behind its reader knows which one a request came by."""

    name: str
    path: str
    """Path of its operation below the base URL of a door."""
    id_prefix: str
    """Beginning of the ids of its replies."""
    parse: Callable[[bytes, ParsingRules, Mapping[str, str]], ParsedRequest]
    """Parses a body, with the request's headers; raises :class:`InvalidRequest`."""
    parse_at_once: Callable[[bytes, ParsingRules, Mapping[str, str]], ParsedRequest | None]
    """Like ``parse``, but returns ``None`` if that would hold the event loop."""
    error: Callable[[ServiceError, str], object] = openai_error
    """Returns the body of an error with this request id, to be encoded as JSON."""
    error_status: Callable[[ServiceError], int] = lambda failure: failure.status
    ping: bytes = sse.PING
    """A sign of life in a stream."""
    counting: str = ""
    """Path of the operation that counts the tokens of a prompt."""
    count_body: Callable[[int], object] | None = None
    """Returns the reply of that operation."""


def renaming(places: Places, read: Callable[[], ChatRequest]) -> ChatRequest:
    """Return the request that ``read`` returns; its errors name fields as the client does."""
    try:
        return read()
    except InvalidRequest as failure:
        places.rename(failure)
        raise
