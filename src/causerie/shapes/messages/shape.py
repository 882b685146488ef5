"""The Messages API as a shape: its paths, its errors and its signs of life."""

from __future__ import annotations

from msgspec import Struct

from causerie.errors import ServiceError
from causerie.shapes.messages.encoder import PING, failure_body
from causerie.shapes.messages.reader import parse, parse_at_once
from causerie.shapes.shape import Shape

_OVERLOADED = 529


class TokenCount(Struct, frozen=True):
    """Tokens of a prompt."""

    input_tokens: int


def _status(failure: ServiceError) -> int:
    return _OVERLOADED if failure.type == "overloaded_error" else failure.status


MESSAGES = Shape(
    "messages",
    "/messages",
    "msg_",
    parse,
    parse_at_once,
    error=failure_body,
    error_status=_status,
    ping=PING,
    counting="/messages/count_tokens",
    count_body=TokenCount,
    id_header="request-id",
)
