"""Request targets: path, query, and the host that an absolute one names."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

import httptools

from causerie.edge.errors import invalid_target

_MAX_URL_CACHE = 1024
_SCHEMES = (b"http", b"https")


class RequestTarget(NamedTuple):
    """Parts of a request target.

    ``host`` is that of an absolute target, which decides in place of the ``Host`` header
    (RFC 9112, section 3.2.2), and ``None`` for any other.
    """

    path: str
    query: str
    host: str | None


class _UrlCache(dict[bytes, RequestTarget]):
    """Parsed targets by their bytes; most are asked for again and again."""

    def __missing__(self, url: bytes) -> RequestTarget:
        """Raise :class:`InvalidRequest` for an absolute target that is no web address."""
        host = None if url[:1] == b"/" else _host(url)
        query = url.partition(b"?")[2].partition(b"#")[0].decode("ascii", "replace")
        target = RequestTarget(_path(url) or ("" if host is None else "/"), query, host)
        if len(url) <= 128 and len(self) < _MAX_URL_CACHE and not query:
            self[url] = target
        return target


url_cache = _UrlCache()


def _host(url: bytes) -> str | None:
    """Return host and port of an absolute target as they stand there."""
    scheme, separator, rest = url.partition(b"://")
    if not separator:
        return None
    for end in b"/?#":
        rest = rest.partition(bytes((end,)))[0]
    if scheme.lower() not in _SCHEMES or not rest or rest[:1] == b":":
        raise invalid_target()
    return rest.decode("latin-1")


def _path(url: bytes) -> str:
    """The path of a request target, with escapes resolved; empty where it is not one."""
    try:
        path = httptools.parse_url(url).path or b""
    except httptools.HttpParserInvalidURLError:
        return ""
    text: str = path.decode("ascii", "replace")
    return unquote(text) if "%" in text else text
