"""Failures that the HTTP server itself finds."""

from __future__ import annotations

import re
from collections.abc import Iterable

from causerie.errors import InternalError, InvalidRequest, NotFound

_OPERATIONS = (
    *("/chat/completions", "/responses", "/messages", "/models"),
    *("/embeddings", "/rerank", "/completions"),
)
_SLASHES = re.compile("/+")


def method_not_allowed(method: str, allowed: Iterable[str]) -> InvalidRequest:
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
    there = f"There is nothing at {base}{path[:200]}; below {base} there are {', '.join(known)}."
    plain = _SLASHES.sub("/", path[:200]).rstrip("/").lower()
    meant = next((each for each in _OPERATIONS if plain.endswith(each)), None)
    advice = ""
    if meant is not None:
        advice = f" Did you mean {base}{meant}? The client's base URL ends with {base}."
    return NotFound(there + advice)


def internal(request_id: str) -> InternalError:
    return InternalError(
        f"Something went wrong on our side. Please try again; request id {request_id}."
    )


def invalid_http() -> InvalidRequest:
    return InvalidRequest("This is not a valid HTTP/1.1 request.", code="invalid_http")


def head_too_large(most: int) -> InvalidRequest:
    return InvalidRequest(
        f"The request's head is larger than {most} bytes.", code="head_too_large", status=431
    )
