"""Failures for typed clients of the well-known router: a number where others read a word.

Their generated types demand ``code`` to be the status as an integer, and refuse
the whole answer where it is a word. They name themselves in ``User-Agent``;
everybody else gets the errors as they are documented. The word stays readable
in ``metadata``.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, structs

from causerie.edge.headers import Headers
from causerie.errors import ErrorDetails, ServiceError

_GENERATED = "speakeasy-sdk/"
_KINDS: Mapping[str, str] = {
    "invalid_request_error": "invalid_request",
    "authentication_error": "authentication",
    "billing_error": "payment_required",
    "permission_error": "permission_denied",
    "not_found_error": "not_found",
    "rate_limit_error": "rate_limit_exceeded",
    "server_error": "server",
    "upstream_error": "provider_unavailable",
    "overloaded_error": "provider_overloaded",
}
_EXACT: Mapping[str, str] = {
    "context_length_exceeded": "context_length_exceeded",
    "upstream_timeout": "timeout",
}


def error_for(failure: ServiceError, headers: Headers) -> ErrorDetails:
    """The ``error`` object of a failure, as the sender of these headers reads it."""
    error = failure.error()
    if not headers.get("user-agent", "").startswith(_GENERATED):
        return error
    kind = _EXACT.get(failure.code, _KINDS.get(failure.type, "unmapped"))
    known = {} if error.metadata is UNSET else error.metadata
    metadata = {**known, "error_type": kind, "code": failure.code}
    return structs.replace(error, code=failure.status, metadata=metadata)
