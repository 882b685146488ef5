"""Reading what a request says: its query and its body, as the types that the routes name.

Unknown fields are refused, never ignored; an error names the field.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from causerie.edge.body import BodyLimits, check_type, read_body
from causerie.edge.exchange import Exchange
from causerie.errors import InvalidRequest
from causerie.protocol import bounded_json

_LIMITS = BodyLimits(max_bytes=64 * 1024)
_WORK = bounded_json.Bounds(values=10_000, exponents=0)
_MOST_PARAMETERS = 32
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_TYPE = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)

T = TypeVar("T", bound=Struct)


async def body_of(exchange: Exchange, type: type[T]) -> T:
    """The body; an empty one is ``{}``. Raises :class:`InvalidRequest`."""
    body = await read_body(exchange, _LIMITS)
    if body:
        check_type(exchange.headers)
    if b"\\u0000" in body:
        raise InvalidRequest("The body holds the character U+0000; leave it out.")
    try:
        return bounded_json.decode(body or b"{}", type, _WORK)
    except msgspec.ValidationError as error:
        raise _translated(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(
            "The body is not valid JSON; send one object, encoded as UTF-8.", code="invalid_json"
        ) from error


def query_of(query: str, type: type[T]) -> T:
    """The query; raises :class:`InvalidRequest`."""
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS
        )
    except ValueError as error:
        raise InvalidRequest(
            f"The query is not at most {_MOST_PARAMETERS} pairs NAME=VALUE in UTF-8."
        ) from error
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise InvalidRequest(f"`{name[:100]}` is given twice; give it once.", param=name[:100])
        if any(ord(each) < 32 or ord(each) == 127 for each in value):
            raise InvalidRequest(
                f"`{name[:100]}` holds a control character; leave it out.",
                param=name[:100],
                code="invalid_value",
            )
        given[name] = value
    try:
        return msgspec.convert(given, type, strict=False)
    except msgspec.ValidationError as error:
        raise _translated(str(error)) from error


def moment(text: str, param: str) -> datetime | None:
    """A time of a query, or a day, which is its midnight in UTC; ``None`` for nothing.

    Raises :class:`InvalidRequest`.
    """
    if not text:
        return None
    try:
        # A plus sign that stands unescaped in a query is read as a space.
        found = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError as error:
        raise _no_moment(param) from error
    if found.tzinfo is None:
        if len(text) > len("2026-11-21"):
            raise _no_moment(param)
        found = found.replace(tzinfo=UTC)
    if not _EARLIEST <= found <= _LATEST:
        raise InvalidRequest("A time lies between 1970 and 2200.", param=param)
    return found.astimezone(UTC)


def _no_moment(param: str) -> InvalidRequest:
    return InvalidRequest(
        "A time is written 2026-11-21T12:00:00Z, or 2026-11-21 for the beginning of a day (UTC).",
        param=param,
    )


def _translated(message: str) -> InvalidRequest:
    """Return msgspec's error in the wording of the rest of the service."""
    what, _, path = message.partition(" - at `$")
    path = path.removesuffix("`").removeprefix(".")
    if found := _UNKNOWN.search(what):
        param = _joined(path, found[1])
        return InvalidRequest(
            f"`{param[:100]}` is not known here; leave it out.",
            code="unsupported_parameter",
            param=param[:100],
        )
    if found := _MISSING.search(what):
        param = _joined(path, found[1])
        return InvalidRequest(f"`{param}` is missing.", code="missing_parameter", param=param)
    place = f"`{path}`" if path else "The body"
    if found := _TYPE.search(what):
        wanted = found[1].replace(" | ", " or ")
        return InvalidRequest(
            f"{place} must be {wanted}, not {found[2]}.", code="invalid_type", param=path or None
        )
    reason = what[:1].lower() + what[1:200].replace("`", "")
    return InvalidRequest(
        f"{place} is not right: {reason}; /api/openapi.json says what is.", param=path or None
    )


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
