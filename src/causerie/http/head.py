"""Parse and check the head of a request, and remember heads that clients send again and again."""

from __future__ import annotations

import re
from hashlib import blake2b
from urllib.parse import unquote

import httptools
from msgspec import Struct, structs

from causerie.access.keys import Credential
from causerie.errors import InvalidRequest
from causerie.http.doors import host_name
from causerie.http.headers import Headers

_LENGTHS = b"\r\nContent-Length: ", b"\r\ncontent-length: "  # as clients write it
_MAX_KNOWN_BYTES = 4096
_NOT_KNOWN = re.compile(r"auth|cookie|key|secret|token|expect|transfer-encoding|upgrade")
_NOTHING = b"", b""


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
    """Parsed heads by their digest.

    A client that keeps its connection sends the same head again, but for the length of the body;
    a known head is not parsed, and its credential not hashed, again. Kept are only heads that came
    twice in a row on one connection and hold no secret: the credential is a digest already.
    """

    def learn(self, digest: bytes, head: RequestHead) -> None:
        names = " ".join(head.headers)
        if not head.query and head.headers.again is None and not _NOT_KNOWN.search(names):
            if len(self) >= 512:
                self.clear()
            headers = Headers(head.headers)
            del headers["content-length"]  # which the digest is not of
            self[digest] = structs.replace(head, headers=headers)


def invalid_http() -> InvalidRequest:
    return InvalidRequest("This is not a valid HTTP/1.1 request.", code="invalid_http")


def cut_head(data: bytes) -> tuple[bytes, bytes]:
    """Return the digest of a head without its ``Content-Length``, and the body.

    Both are empty unless ``data`` is a head and its complete body. Heads of one digest are the same
    to a parser: the length that was left out begins a line, and it is the true one.
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
    """Return about how many bytes a head has."""
    every = [*headers.items(), *(headers.again or ())]
    return len(url) + sum(len(name) + len(value) + 4 for name, value in every)


def without_upgrade(parser: httptools.HttpRequestParser, url: bytes, headers: Headers) -> bytes:
    method, version = parser.get_method().decode(), parser.get_http_version()
    lines = [f"{method} {url.decode('latin-1')} HTTP/{version}"]
    every = [*headers.items(), *(headers.again or ())]
    lines += [f"{name}: {value}" for name, value in every if name != "upgrade"]
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


def check_codings(headers: Headers, version: str) -> None:
    """Reject unsupported transfer codings (RFC 9112, 6.1); HTTP/1.0 knows none of them.

    The parser itself rejects a body that is not chunked last.
    """
    if version == "1.0":
        raise invalid_http()
    codings = [
        each.strip().lower() for each in ",".join(headers.every("transfer-encoding")).split(",")
    ]
    if codings != ["chunked"] and codings[-1] == "chunked":
        raise InvalidRequest(
            "The only `Transfer-Encoding` of a request that is understood here is `chunked`; "
            "send the body as it is.",
            code="unsupported_transfer_coding",
            status=501,
        )


def check_host(headers: Headers, version: str, of_target: str | None) -> None:
    """Check ``Host`` (RFC 9112, 3.2), and replace it by the host of an absolute target.

    Raises :class:`InvalidRequest` for a second header, for none in HTTP/1.1, and with an
    absolute target for an invalid one.
    """
    if "host" not in headers:
        if version != "1.0":
            raise InvalidRequest(
                "The request has no `Host` header; HTTP/1.1 requires one, like "
                "`Host: localhost:8000`.",
                code="invalid_http",
            )
    elif len(headers.every("host")) > 1:
        raise InvalidRequest("There is more than one `Host` header; send one.", code="invalid_http")
    if of_target is not None:
        host_name(headers.get("host"))
        headers["host"] = of_target


def parse_target(url: bytes) -> tuple[str, str, str | None]:
    """Return path, query and host of a request target; the host is ``None`` in a relative one.

    Raises :class:`InvalidRequest` for an absolute target that is no ``http`` address.
    """
    host = None if url[:1] == b"/" else _host(url)
    query = url.partition(b"?")[2].partition(b"#")[0].decode("ascii", "replace")
    return _path(url) or ("" if host is None else "/"), query, host


def _host(url: bytes) -> str | None:
    scheme, separator, rest = url.partition(b"://")
    if not separator:
        return None
    for end in b"/?#":
        rest = rest.partition(bytes((end,)))[0]
    if scheme.lower() not in (b"http", b"https") or not rest or rest[:1] == b":":
        raise InvalidRequest(
            "The request target is absolute and not of the form `http://HOST/PATH`; "
            "send the path alone, and the host in the `Host` header.",
            code="invalid_http",
        )
    return rest.decode("latin-1")


def _path(url: bytes) -> str:
    try:
        path = httptools.parse_url(url).path or b""
    except httptools.HttpParserInvalidURLError:
        return ""
    text: str = path.decode("ascii", "replace")
    return unquote(text) if "%" in text else text
