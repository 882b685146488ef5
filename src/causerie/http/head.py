"""The head of a request, its parts and checks, and a cache of heads that came before.

A client that keeps its connection sends the same head again and again, but for the length
of the body. Such a head is known by its digest, so that it is not parsed, and its credential
not hashed, each time. Known is only what the parser has taken, twice in a row on one
connection, and nothing that may hold a secret: the credential is a digest already.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import unquote

import httptools
from msgspec import Struct, structs

from causerie.access.keys import Credential
from causerie.http.doors import host_name
from causerie.http.errors import (
    invalid_http,
    invalid_target,
    no_host,
    several_hosts,
    unknown_coding,
)
from causerie.http.headers import Headers

_LENGTHS = b"\r\nContent-Length: ", b"\r\ncontent-length: "  # as clients write it
_MAX_KNOWN_BYTES = 4096  # bytes
_MAX_KNOWN = 512
_NOT_KNOWN = re.compile(r"auth|cookie|key|secret|token|expect|transfer-encoding|upgrade")
_NOTHING = b"", b""
_SCHEMES = (b"http", b"https")


class RequestHead(Struct, frozen=True):
    """Head of a request."""

    method: str
    path: str
    """Its escapes are resolved."""
    version: str = "1.1"
    headers: Headers = Headers()
    """Without ``authorization``, which is the ``credential``; those of a head that came before are
    without the body's length, too.
    """
    keep_alive: bool = True
    query: str = ""
    """As it was sent."""
    credential: Credential | None = None


class RequestHeads(dict[bytes, RequestHead]):
    """Heads by what :func:`cut` says of them."""

    def learn(self, digest: bytes, head: RequestHead) -> None:
        """Know a head that the parser has made of what has this digest."""
        names = " ".join(head.headers)
        if not head.query and head.headers.again is None and not _NOT_KNOWN.search(names):
            if len(self) >= _MAX_KNOWN:
                self.clear()
            headers = Headers(head.headers)
            del headers["content-length"]  # which the digest is not of
            self[digest] = structs.replace(head, headers=headers)


def cut_head(data: bytes) -> tuple[bytes, bytes]:
    """The digest of a head, but for the length it tells, and the body of that length.

    Nothing where ``data`` is something else than a head and the whole of its body. Two heads of
    one digest are the same to a parser that has taken one of them: the length is no other
    header's, since a line begins with it, and it is the true one.
    """
    end = data.find(b"\r\n\r\n", 0, _MAX_KNOWN_BYTES)
    length = len(data) - end - 4
    if end < 0 or not length:
        return _NOTHING
    usual, lower = _LENGTHS
    at = data.find(usual, 0, end)
    if at < 0 and (at := data.find(lower, 0, end)) < 0:
        return _NOTHING
    start = at + len(usual)
    stop = data.find(b"\r\n", start)
    if data[start:stop] != b"%d" % length:
        return _NOTHING
    return blake2b(data[:start] + data[stop:end]).digest(), data[end + 4 :]


def head_size(url: bytes, headers: Headers) -> int:
    """About how many bytes a head has."""
    every = [*headers.items(), *(headers.again or ())]
    return len(url) + sum(len(name) + len(value) + 4 for name, value in every)


def without_upgrade(parser: httptools.HttpRequestParser, url: bytes, headers: Headers) -> bytes:
    """The head of a request that would change the protocol, without that."""
    method, version = parser.get_method().decode(), parser.get_http_version()
    lines = [f"{method} {url.decode('latin-1')} HTTP/{version}"]
    every = [*headers.items(), *(headers.again or ())]
    lines += [f"{name}: {value}" for name, value in every if name != "upgrade"]
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


def check_codings(headers: Headers, version: str) -> None:
    """Reject transfer codings that are not understood (RFC 9112, section 6.1).

    A body that is not chunked last has no end, and HTTP/1.0 knows none of them: framing that
    others may read in another way. The parser rejects the first.
    """
    if version == "1.0":
        raise invalid_http()
    codings = [
        each.strip().lower() for each in ",".join(headers.every("transfer-encoding")).split(",")
    ]
    if codings != ["chunked"] and codings[-1] == "chunked":
        raise unknown_coding()


def check_host(headers: Headers, version: str, of_target: str | None) -> None:
    """Let the host of an absolute target decide, after the rules for `Host` of RFC 9112, 3.2.

    Raises :class:`InvalidRequest` for a second header, for none in HTTP/1.1, and with an
    absolute target for one that names no host; elsewhere doors say that.
    """
    if "host" not in headers:
        if version != "1.0":
            raise no_host()
    elif len(headers.every("host")) > 1:
        raise several_hosts()
    if of_target is not None:
        host_name(headers.get("host"))
        headers["host"] = of_target


class RequestTarget(NamedTuple):
    """Parts of a request target.

    ``host`` is that of an absolute target, which decides in place of the ``Host`` header
    (RFC 9112, section 3.2.2), and ``None`` for any other.
    """

    path: str
    query: str
    host: str | None


def parse_target(url: bytes) -> RequestTarget:
    """Parse a request target; raise :class:`InvalidRequest` for an address outside the web."""
    host = None if url[:1] == b"/" else _host(url)
    query = url.partition(b"?")[2].partition(b"#")[0].decode("ascii", "replace")
    return RequestTarget(_path(url) or ("" if host is None else "/"), query, host)


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
