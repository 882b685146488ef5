"""Bytes to one JSON object, in bounded time and memory.

``bounded_json`` judges the bytes before anything is decoded. Numbers that no
double and no 64-bit integer holds, ``NaN`` and ``Infinity`` are not accepted:
what cannot be passed on unchanged is refused, not altered. Halves of surrogate
pairs are accepted where the past of a conversation has them.
"""

from __future__ import annotations

import re

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
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # characters that no text should have


def check_work(body: bytes, rules: ParsingRules) -> None:
    """Raise :class:`InvalidRequest` for a body that would take too long to decode."""
    try:
        bounded_json.check(body, rules.work)
    except bounded_json.TooMuchWork as error:
        _check_plain(body)
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
    _check_plain(body)
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


def _check_plain(body: bytes) -> None:
    name = _compression_of(body)
    if name is not None:
        raise _invalid(
            f"The body looks compressed ({name}), and there is no `Content-Encoding` header; send "
            "JSON text that is not compressed."
        )


def _compression_of(body: bytes) -> str | None:
    if body.startswith(b"\x1f\x8b"):
        return "gzip"
    if body.startswith(b"\x28\xb5\x2f\xfd"):
        return "zstd"
    return "zlib" if body.startswith((b"x\x01", b"x\x9c", b"x\xda")) else None


def unpaired_surrogates() -> InvalidRequest:
    return _invalid(
        "The body is not valid JSON (an unpaired surrogate); send both halves of each surrogate "
        "pair in what is new: the last message of the user, and the parameters."
    )


def mark_halves(body: bytes) -> tuple[bytes, str]:
    """Return the body with a mark in place of each half of a surrogate pair, and the mark.

    The mark is a character that the body has nowhere else; it is empty where there are no halves.
    """
    lower = body.lower()
    free = (
        mark for mark in _MARKS if mark.encode() not in body and b"\\u%x" % ord(mark) not in lower
    )
    mark = next(free, "") if b"\\ud" in lower else ""
    if not mark:
        return body, ""
    marked = _ESCAPE.sub(lambda found: mark.encode() if found["half"] else found[0], body)
    return (body, "") if marked == body else (marked, mark)


def _reason(error: msgspec.MsgspecError) -> str:
    text = str(error).removeprefix("JSON is malformed: ").partition(" - at `")[0]
    return text[:1].lower() + text[1:]


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_json")
