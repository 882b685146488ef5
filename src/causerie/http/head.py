"""Parse and check the head of a request, with its hints and labels; remember repeated heads."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from contextlib import suppress
from hashlib import blake2b
from urllib.parse import unquote, urlsplit

import httptools
from msgspec import Struct, structs

from causerie.access.keys import KEY_HEADERS, Credential
from causerie.errors import InvalidRequest
from causerie.protocol.request import UNLABELLED, Labels

_HOST = re.compile(
    r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?\.?)(?::[0-9]{0,5})?",
    re.ASCII,
)


def host_name(host: str | None) -> str:
    """Return the name in a ``Host`` header, in lower case, without port and final dot."""
    if host is None or host == "":
        return ""
    match = _HOST.fullmatch(host)
    if match is None or (host[0] == "[" and not is_address(match["name"])):
        raise InvalidRequest(
            "The host in the `Host` header, or in an absolute request target, is not a host name "
            "with an optional port."
        )
    return match["name"].lower().removesuffix(".")


def is_address(name: str) -> bool:
    """Return whether a host is an IP address, of version 6 in brackets."""
    kind = ipaddress.IPv6Address if name[:1] == "[" else ipaddress.IPv4Address
    try:
        kind(name.strip("[]"))
    except ValueError:
        return False
    return True


_NEVER = re.compile(r"q=0(\.0*)?")


class Headers(dict[str, str]):
    """Values by lower-case name; ``again`` has the further values of repeated headers."""

    again: list[tuple[str, str]] | None = None

    def add_again(self, name: str, value: str) -> None:
        if self.again is None:
            self.again = []
        self.again.append((name, value))

    def accepts(self, coding: str) -> bool:
        """Return true if ``Accept-Encoding`` accepts this coding by name (RFC 9110, 12.5.3)."""
        for part in self.get("accept-encoding", "").split(","):
            name, _, weight = part.partition(";")
            if name.strip() == coding:
                return _NEVER.fullmatch(weight.strip()) is None
        return False

    def take_keys(self) -> list[str]:
        """Remove key headers that repeat the first one; return their keys without the scheme."""
        again = self.again or []
        self.again = [(name, value) for name, value in again if name not in KEY_HEADERS]
        return [value.rpartition(" ")[2] for name, value in again if name in KEY_HEADERS]

    def every(self, name: str) -> list[str]:
        """Return all values of a header in their order; ``name`` is in lower case."""
        if name not in self:
            return []
        return [self[name], *(value for key, value in self.again or () if key == name)]


_TITLES = ("x-openrouter-title", "x-title")
_REFERER = "http-referer"
_TAG = "x-tag"
_TRACE = ("traceparent", "tracestate")
_LONGEST_NAME = 80
_LONGEST_ADDRESS = 200


def labels_of(headers: Headers) -> Labels:
    """Return a request's labels (app, address, trace, tag), cut, without control characters."""
    referer = headers.get(_REFERER, "")
    title = headers.get(_TITLES[0], "") or headers.get(_TITLES[1], "")
    tag = headers.get(_TAG, "")
    parent, state = (headers.get(name, "") for name in _TRACE)
    if not (referer or title or tag or parent):
        return UNLABELLED
    address, host = _split_referer_into_url_and_host(referer)
    app, named = (_decode_and_clean(text)[:_LONGEST_NAME].rstrip() for text in (title, tag))
    return Labels(app or host[:_LONGEST_NAME], address, parent, state, named)


def _decode_and_clean(header_value: str) -> str:
    with suppress(UnicodeDecodeError):  # else it was latin-1 after all
        header_value = header_value.encode("latin-1").decode("utf-8")
    # Without controls of terminals and of writing direction, and unassigned characters.
    seen = "".join(" " if unicodedata.category(one)[0] == "C" else one for one in header_value)
    return " ".join(seen.split())


def _split_referer_into_url_and_host(referer: str) -> tuple[str, str]:
    try:
        parts = urlsplit(_decode_and_clean(referer))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "", ""
    if not parts.scheme or not host:
        return "", ""
    named = f"[{host}]" if ":" in host else host
    place = named if port is None else f"{named}:{port}"
    return f"{parts.scheme}://{place}{parts.path}"[:_LONGEST_ADDRESS], named


_SESSION = "x-session-id"
_UNKNOWN_PARAMS = "x-unknown-params"
_HINT_HEADERS = frozenset({_SESSION, _UNKNOWN_PARAMS, *_TITLES, _REFERER, _TAG, *_TRACE})


class RequestHints(Struct, frozen=True):
    """Hints in the headers of a request."""

    labels: Labels = UNLABELLED
    session: str = ""  # may be empty
    strict: bool = False  # unknown fields are refused
    plain_json: bool = False  # the body is JSON and not compressed


NO_HINTS = RequestHints()
_ONLY_JSON = RequestHints(plain_json=True)


def hints_of(headers: Headers) -> RequestHints:
    plain = headers.get("content-type") == "application/json" and "content-encoding" not in headers
    if _HINT_HEADERS.isdisjoint(headers):
        return _ONLY_JSON if plain else NO_HINTS
    strict = headers.get(_UNKNOWN_PARAMS, "").lower() == "reject"
    return RequestHints(labels_of(headers), headers.get(_SESSION, ""), strict, plain)


_LENGTHS = b"\r\nContent-Length: ", b"\r\ncontent-length: "  # as clients write it
_MAX_KNOWN_BYTES = 4096
_NOT_KNOWN = re.compile(r"auth|cookie|key|secret|token|expect|transfer-encoding|upgrade")
_NOTHING = b"", b""


class RequestHead(Struct, frozen=True):
    """Head of a request."""

    method: str
    path: str  # its escapes are resolved
    version: str = "1.1"
    headers: Headers = Headers()
    """Without ``authorization``; if the head came before, without the body's length, too."""
    keep_alive: bool = True
    query: str = ""  # the query without its `?`, as it was sent
    credential: Credential | None = None
    hints: RequestHints = NO_HINTS


class RequestHeads(dict[bytes, RequestHead]):
    """A cache of parsed request heads by the digest of their bytes.

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
    start, sent = at + len(usual), b"%d\r\n" % length
    if not data.startswith(sent, start):
        return _NOTHING
    return blake2b(data[:start] + data[start + len(sent) : end]).digest(), data[end + 4 :]


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
    host = None if url[:1] == b"/" else _parse_target_host(url)
    query = url.partition(b"?")[2].partition(b"#")[0].decode("ascii", "replace")
    try:
        path: str = (httptools.parse_url(url).path or b"").decode("ascii", "replace")
    except httptools.HttpParserInvalidURLError:
        path = ""
    path = unquote(path) if "%" in path else path
    return path or ("" if host is None else "/"), query, host


def _parse_target_host(target: bytes) -> str | None:
    scheme, separator, rest = target.partition(b"://")
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
