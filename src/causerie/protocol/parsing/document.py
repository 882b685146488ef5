"""Bytes to one JSON object, in bounded time and memory.

``bounded_json`` judges the bytes before anything is decoded. Numbers that no
double and no 64-bit integer holds, ``NaN``, ``Infinity`` and lone surrogates
are not accepted: what cannot be passed on unchanged is refused, not altered.
"""

from __future__ import annotations

import msgspec

from causerie.errors import InvalidRequest
from causerie.protocol import bounded_json
from causerie.protocol.parsing.rules import ParsingRules

SETTINGS = {
    "nesting": "server.max_nesting",
    "values": "server.max_values",
    "bare": "server.max_values",
    "escapes": "server.max_escapes",
}
"""The settings of the bounds that an operator can raise."""
_BOM = b"\xef\xbb\xbf"


def check_work(body: bytes, rules: ParsingRules) -> None:
    """Raise :class:`InvalidRequest` for a body that would take too long to decode."""
    try:
        bounded_json.check(body, rules.work)
    except bounded_json.TooMuchWork as error:
        setting = SETTINGS.get(error.bound)
        further = f", or have the operator raise `{setting}`" if setting else ""
        raise _invalid(
            f"The body takes too long to decode: {error}; send less of it{further}."
        ) from error


def decode(body: bytes) -> dict[str, object]:
    """Return the object that a checked body holds.

    Raises :class:`InvalidRequest` where it holds none.
    """
    if not body.strip():
        raise _invalid("The body is empty; send a JSON object with `model` and `messages`.")
    if body.startswith(_BOM):
        raise _invalid("The body begins with a byte order mark; send UTF-8 without one.")
    try:
        document = msgspec.json.decode(body)
    except UnicodeDecodeError as error:
        raise _invalid(
            f"The body is not valid UTF-8 ({error.reason}); send JSON text encoded as UTF-8."
        ) from error
    except msgspec.MsgspecError as error:
        raise _invalid(
            f"The body is not valid JSON ({_reason(error)}); send one JSON object, encoded as "
            "UTF-8, without NaN, Infinity or unpaired surrogates."
        ) from error
    if not isinstance(document, dict):
        raise _invalid("The body must be a JSON object with `model` and `messages`.")
    return document


def _reason(error: msgspec.MsgspecError) -> str:
    text = str(error).removeprefix("JSON is malformed: ").partition(" - at `")[0]
    return text[:1].lower() + text[1:]


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_json")
