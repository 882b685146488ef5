"""``strftime_now``: today's date in a pattern, part of which a client may have written.

The output of a directive is the author's if the author wrote the whole directive; every other
character stays whose it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from causerie.chat.taint import AUTHOR, USER, Traced, joined, origin_of

_DIRECTIVE = re.compile(r"%[-_0^#+]*(?P<width>[0-9]*)[:EO]*[a-zA-Z%]", re.ASCII)
_WIDEST = 99
_LONGEST = 1000  # characters of a pattern


def strftime_now(pattern: str) -> str:
    """Return today's date and time by a pattern of ``strftime``."""
    if not isinstance(pattern, str):
        raise TypeError(f"strftime_now() takes a text, not {type(pattern).__name__}")
    if len(pattern) > _LONGEST:
        raise ValueError(f"a date's pattern of more than {_LONGEST} characters")
    return joined(_pieces(pattern))


def _pieces(pattern: str) -> Iterator[str]:
    now, at = datetime.now(), 0
    for found in _DIRECTIVE.finditer(pattern):
        if int(found["width"] or 0) > _WIDEST:
            raise ValueError(f"a date wider than {_WIDEST} characters")
        yield pattern[at : found.start()]
        origin = origin_of(pattern)[found.start() : found.end()]
        yield Traced(now.strftime(found.group()), USER if any(origin) else AUTHOR)
        at = found.end()
    yield pattern[at:]
