"""The head of a response as it came, read when somebody asks: most heads nobody asks."""

from __future__ import annotations

import re
from collections.abc import Iterator

_END = re.compile(rb"\r?\n\r?\n")
_LINE = re.compile(rb"\r?\n(?![ \t])")  # one that begins with a space goes on with the last


def header_lines(opening: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Lower-case names and values of what ``opening`` begins with.

    That is all that came until a parser had found a whole head in it, and good. The
    interim responses before it (RFC 9110, 15.2) are passed over.
    """
    opening = opening.lstrip(b"\r\n")
    while opening[9:10] == b"1":  # "HTTP/1.1 1…"
        opening = _END.split(opening, 1)[1]
    for line in _LINE.split(_END.split(opening, 1)[0])[1:]:
        name, _, value = line.partition(b":")
        yield name.lower(), value.strip()
