"""JSON Schemas, patterns and choices, as parts of the grammar that enforces them.

Keywords that cannot be enforced exactly are refused with their JSON Pointer. Knows llguidance's
grammar text; knows nothing of the reply around it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from causerie.chat.schema.normal import Rewriter
from causerie.chat.schema.refusal import unsupported
from causerie.chat.schema.texts import choice, regex

__all__ = ["choice", "json_object", "prepare", "regex"]

# One way to write white space: what Python's json.dumps writes. A model that may add
# white space anywhere sometimes adds it for ever, and the engine's own bound on it
# does not hold in every version. Separators are literal texts to older versions.
_FORM = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
_ANY_SPACE = {"whitespace_flexible": True}
_MAX_BYTES = 500_000


def prepare(schema: Mapping[str, object] | bool, *, param: str, any_space: bool = False) -> str:
    """Return the text to stand behind ``%json`` so that the answer follows ``schema``.

    ``any_space`` admits white space as others write it. Raises
    ``InvalidRequest`` (``unsupported_schema``) with the JSON Pointer of
    whatever would not be enforced as written; ``param`` names the field.
    """
    return _write(Rewriter(schema, param, close=True).rewrite(), param, any_space)


def json_object(*, any_space: bool = False) -> str:
    """Return the text to stand behind ``%json`` for any JSON object."""
    return _write({"type": "object"}, "response_format", any_space)


def _write(schema: Mapping[str, object], param: str, any_space: bool) -> str:
    form = _ANY_SPACE if any_space else _FORM
    text = json.dumps({"x-guidance": form, **schema}, ensure_ascii=False, separators=(",", ":"))
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise unsupported(param, "The schema holds half of a surrogate pair.") from None
    if size > _MAX_BYTES:
        raise unsupported(param, f"The schema is too large: {size} bytes of at most {_MAX_BYTES}.")
    return text
