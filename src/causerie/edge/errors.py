"""Failures that arise at the edge itself, in the shape that all failures have."""

from __future__ import annotations

from collections.abc import Iterable

from causerie.errors import InternalError, InvalidRequest, NotFound

_OTHER_WAYS = ("/responses", "/completions", "/messages")  # of asking a model for text


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
    advice = " Set the client to chat completions." if path.startswith(_OTHER_WAYS) else ""
    return NotFound(there + advice)


def internal(request_id: str) -> InternalError:
    """500, with the id under which the log has the reason."""
    return InternalError(
        f"Something went wrong on our side. Please try again; request id {request_id}."
    )


def invalid_http() -> InvalidRequest:
    """400 for what is no request."""
    return InvalidRequest("This is not a valid HTTP/1.1 request.", code="invalid_http")


def head_too_large(most: int) -> InvalidRequest:
    """431, with the bytes that a head may have."""
    return InvalidRequest(
        f"The request's head is larger than {most} bytes.", code="head_too_large", status=431
    )
