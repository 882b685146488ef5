"""Bounded strings as terminals: their patterns, formats and lengths."""

from __future__ import annotations

import re

from causerie.chat.call_syntax.base import Schema
from causerie.chat.call_syntax.conjunction import refused
from causerie.chat.schema.keywords import FORMATS, SPELLED
from causerie.chat.schema.pattern import Refused, anywhere


def string_terminal(schema: Schema) -> str | None:
    """Return the regular expression of a bounded string; ``None`` when any text will do.

    Raises ``InvalidRequest`` (``unsupported_schema``) for a pattern that cannot be followed.
    """
    low, high = schema.get("minLength", 0), schema.get("maxLength", "")
    parts = [f"/(?s:.){{{low},{high}}}/"] if low or high != "" else []
    leading_content = schema.get("allOf")
    for rules in (schema, *(leading_content if isinstance(leading_content, list) else ())):
        pattern, form = rules.get("pattern"), rules.get("format")
        if isinstance(pattern, str):
            try:
                parts += [f"/{_slashes(each)}/" for each in anywhere(pattern)]
            except Refused as reason:
                raise refused(schema, str(reason), "pattern") from None
        if form in FORMATS or form in SPELLED:
            parts.append(f"/{_slashes(FORMATS.get(form) or SPELLED[form])}/")
    return " & ".join(dict.fromkeys(parts)) or None


def _slashes(pattern: str) -> str:
    """Return the pattern to stand between slashes."""
    return re.sub(r"(\\.)|/", lambda found: found[1] or "\\/", pattern)
