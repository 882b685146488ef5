"""Bytes to one JSON object, in bounded time and memory.

The bounds are checked on the bytes, before anything is decoded, so that a body
made of brackets costs no more than one made of text. Numbers that no double
and no 64-bit integer holds, ``NaN``, ``Infinity`` and lone surrogates are not
accepted: what cannot be passed on unchanged is refused, not altered.
"""

from __future__ import annotations

import msgspec

from causerie.errors import InvalidRequest
from causerie.protocol.parsing.rules import Rules

_BOM = b"\xef\xbb\xbf"


def decode(body: bytes, rules: Rules) -> dict[str, object]:
    """The object that ``body`` holds; raises :class:`InvalidRequest` where it holds none."""
    if not body.strip():
        raise _invalid("The body is empty; send a JSON object with `model` and `messages`.")
    if body.startswith(_BOM):
        raise _invalid("The body begins with a byte order mark; send UTF-8 without one.")
    _check_shape(body, rules)
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


def _check_shape(body: bytes, rules: Rules) -> None:
    """Refuse too many values and too much nesting.

    A body with few bytes and brackets has neither. In others strings are cut out
    first; then one pass a level takes away the innermost brackets. What is left
    of a body that is not JSON is the decoder's to refuse, at a depth that can be
    at most twice the limit.
    """
    if len(body) <= rules.max_values and (body.count(b"[") + body.count(b"{") <= rules.max_nesting):
        return
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 4 * rules.max_values:
        raise _too_many(rules)
    outside = b"".join(bare.split(b'"')[::2]).translate(None, delete=_NOT_STRUCTURE)
    if len(outside) > 2 * rules.max_values:
        raise _too_many(rules)
    brackets = outside.translate(_AS_BRACKETS, delete=b",:")
    for _ in range(rules.max_nesting):
        inner = brackets.replace(b"[]", b"")
        if len(inner) == len(brackets):
            break
        brackets = inner
    if b"[]" in brackets or brackets.count(b"[") > rules.max_nesting:
        raise InvalidRequest(
            f"The body nests arrays and objects more than {rules.max_nesting} deep; "
            "send a flatter document.",
            code="invalid_json",
        )


_STRUCTURE = b"[]{},:"
_NOT_STRUCTURE = bytes(code for code in range(256) if code not in _STRUCTURE)
_AS_BRACKETS = bytes.maketrans(b"{}", b"[]")


def _reason(error: msgspec.MsgspecError) -> str:
    text = str(error).removeprefix("JSON is malformed: ").partition(" - at `")[0]
    return text[:1].lower() + text[1:]


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_json")


def _too_many(rules: Rules) -> InvalidRequest:
    return _invalid(f"The body holds more than {rules.max_values} values; send fewer, larger ones.")
