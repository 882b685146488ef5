"""What a request asks for: path and query of its target."""

from __future__ import annotations

from urllib.parse import unquote

import httptools

_MAX_PATHS = 1024


class _Places(dict[bytes, tuple[str, str]]):
    """Path and query of request targets; most are asked for again and again."""

    def __missing__(self, url: bytes) -> tuple[str, str]:
        query = url.partition(b"?")[2].partition(b"#")[0].decode("ascii", "replace")
        place = _path(url), query
        if len(url) <= 128 and len(self) < _MAX_PATHS and not query:
            self[url] = place
        return place


places = _Places()


def _path(url: bytes) -> str:
    """The path of a request target, with escapes resolved; empty where it is not one."""
    try:
        path = httptools.parse_url(url).path or b""
    except httptools.HttpParserInvalidURLError:
        return ""
    text: str = path.decode("ascii", "replace")
    return unquote(text) if "%" in text else text
