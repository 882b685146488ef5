"""Failures that arise at the edge itself, in the shape that all failures have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from causerie.errors import InternalError, InvalidRequest, NotFound

_OTHER_WAYS = ("/responses", "/completions", "/messages")  # of asking a model for text
_OPERATIONS = ("/chat/completions", "/models")
_SLASHES = re.compile("/+")


def method_not_allowed(method: str, allowed: Iterable[str]) -> InvalidRequest:
    """405, with the methods that are allowed."""
    methods = set(allowed)
    if "GET" in methods:
        methods.add("HEAD")
    names = ", ".join(sorted(methods))
    return InvalidRequest(
        f"The method {method[:32]} is not allowed here; use {names}.",
        code="method_not_allowed",
        status=405,
        headers={"Allow": names},
    )


def unknown_path(base: str, path: str, known: Iterable[str]) -> NotFound:
    """404, with the paths that there are below ``base``."""
    there = f"There is nothing at {base}{path[:200]}; below {base} there are {', '.join(known)}."
    plain = _SLASHES.sub("/", path[:200]).rstrip("/").lower()
    meant = next((each for each in _OPERATIONS if plain.endswith(each)), None)
    if meant is not None:
        advice = f" Did you mean {base}{meant}? The client's base URL ends with {base}."
    elif path.startswith(_OTHER_WAYS):
        advice = " Set the client to chat completions."
    else:
        advice = ""
    return NotFound(there + advice)


def internal(request_id: str) -> InternalError:
    """500, with the id under which the log has the reason."""
    return InternalError(
        f"Something went wrong on our side. Please try again; request id {request_id}."
    )


def invalid_http() -> InvalidRequest:
    """400 for what is no request."""
    return InvalidRequest("This is not a valid HTTP/1.1 request.", code="invalid_http")


def misdirected(address: str) -> InvalidRequest:
    """421 for pages that are at another address."""
    return InvalidRequest(
        f"These pages are at {address}. A proxy in front of the service must pass on the `Host` "
        "header of the browser.",
        code="misdirected_request",
        status=421,
    )


def invalid_target() -> InvalidRequest:
    """400 for an absolute request target that names no host of the web."""
    return InvalidRequest(
        "The request target is absolute and not of the form `http://HOST/PATH`; "
        "send the path alone, and the host in the `Host` header.",
        code="invalid_http",
    )


def no_host() -> InvalidRequest:
    """400 for HTTP/1.1 without a `Host` header (RFC 9112, section 3.2)."""
    return InvalidRequest(
        "The request has no `Host` header; HTTP/1.1 requires one, like `Host: localhost:8000`.",
        code="invalid_http",
    )


def several_hosts() -> InvalidRequest:
    """400 for more than one `Host` header (RFC 9112, section 3.2)."""
    return InvalidRequest("There is more than one `Host` header; send one.", code="invalid_http")


def unknown_coding() -> InvalidRequest:
    """501 for a transfer coding other than chunked."""
    return InvalidRequest(
        "The only `Transfer-Encoding` of a request that is understood here is `chunked`; "
        "send the body as it is.",
        code="unsupported_transfer_coding",
        status=501,
    )


def head_too_large(most: int) -> InvalidRequest:
    """431, with the bytes that a head may have."""
    return InvalidRequest(
        f"The request's head is larger than {most} bytes.", code="head_too_large", status=431
    )
