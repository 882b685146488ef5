"""Answers by regular expression or from a list, as parts of a Lark grammar."""

from __future__ import annotations

import json
from collections.abc import Sequence

from causerie.chat.schema.pattern import Refused, whole
from causerie.chat.schema.refusal import unsupported

MAX_CHARACTERS = 500_000  # of all options together


def regex(pattern: str, *, param: str) -> str:
    """Return a Lark terminal ``/…/`` for texts that match ``pattern`` as a whole.

    ``^`` at the start and ``$`` at the end are allowed and say nothing more.
    Raises ``InvalidRequest`` (``unsupported_schema``) for look-arounds,
    back-references and whatever else cannot be enforced.
    """
    try:
        text = whole(pattern)
    except Refused as refused:
        raise unsupported(param, f"The pattern cannot be enforced: {refused}") from None
    if not text:
        raise unsupported(param, "The pattern matches only the empty text.")
    return "/" + text.replace("/", "\\/") + "/"


def choice(options: Sequence[str], *, param: str) -> str:
    """Return the Lark expression of a terminal for one of ``options``, written exactly so.

    A rule would have one terminal for each, and compilers bound how many may be possible at once.
    Raises ``InvalidRequest`` (``unsupported_schema``) where they are too long together, or an
    option cannot be written.
    """
    size = sum(map(len, options))
    if size > MAX_CHARACTERS:
        raise unsupported(
            param, f"The options have {size} characters together, of at most {MAX_CHARACTERS}."
        )
    return " | ".join(_quoted(option, param) for option in options)


def _quoted(text: str, param: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise unsupported(param, "An option holds half of a surrogate pair.") from None
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
