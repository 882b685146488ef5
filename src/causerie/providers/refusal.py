"""Refusal of a provider, mapped to an error of ours.

The status says whose fault it is. Of the request: our client gets it as 400,
with what the server says about the request, made safe. Of our configuration
(key, model, address) or of the server: 502, without its words, because they
are about what is not the client's. No room: 503 with the time to wait.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from causerie.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    Overloaded,
    ServiceError,
    UpstreamFailed,
)
from causerie.protocol import bounded_json
from causerie.protocol.parsing.rules import HINTS, HONOURED
from causerie.providers.dialect import Dialect
from causerie.providers.overflow import Overflow, overflow
from causerie.providers.phrase import phrase

_PARAM = re.compile(r"[A-Za-z_][\w.\[\]]{0,63}", re.ASCII)
_CODE = re.compile(r"[A-Za-z][A-Za-z_]{0,47}", re.ASCII)
_STATUS = re.compile(r"[45]\d\d", re.ASCII)
_ABOUT_REQUEST = frozenset({400, 413, 415, 422})
_FULL = frozenset({429, 529})
_LOADING = frozenset({"unavailable_error", "engine_loading", "model_loading"})
_CONFIGURED_WRONG: Mapping[int, str] = {
    401: "did not accept our credentials",
    402: "is not paid for",
    403: "does not let our credentials do this",
    404: "does not know the model or the path",
    405: "does not know the method",
}
_MEANT: Mapping[str, int] = {
    "invalid_request_error": 400,
    "BadRequestError": 400,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 529,
}
_TIMED_OUT = frozenset({408, 504, 522, 524})
_ABOUT_OUR_KEY = re.compile(r"(?:incorrect|invalid) api key|api key not valid", re.IGNORECASE)
_ABOUT_OUR_BILL = re.compile(r"credit balance is too low", re.IGNORECASE)
_PARAMETERS = HONOURED | HINTS
_MAX_WAIT = 3600
_WAIT = 1


def refusal(status: int, headers: Mapping[str, str], body: bytes, dialect: Dialect) -> ServiceError:
    """Our error for a response with ``status``; ``headers`` are by lower-case name."""
    error = _error(body)
    metadata = _metadata(status, error)
    if 300 <= status < 400:
        return UpstreamFailed(
            "The provider answers with a redirect, which is not followed.", metadata=metadata
        )
    too_long = overflow(error) if status >= 400 else None
    if too_long is not None:
        return _too_long(too_long, metadata)
    if status in _ABOUT_REQUEST:
        words = str(error.get("message"))
        if _ABOUT_OUR_KEY.search(words):
            return UpstreamFailed(f"The provider {_CONFIGURED_WRONG[401]}.", metadata=metadata)
        if _ABOUT_OUR_BILL.search(words):
            return UpstreamFailed(f"The provider {_CONFIGURED_WRONG[402]}.", metadata=metadata)
        return _about_request(status, error, metadata, dialect)
    if status in _FULL or (status == 503 and _is_full(headers, error)):
        return Overloaded(
            "The provider has no room now; please try again later.",
            code="no_endpoint",
            retry_after=retry_after(headers),
            metadata=metadata,
        )
    if status in _TIMED_OUT:
        return UpstreamFailed(
            "The provider took too long.", code="upstream_timeout", status=504, metadata=metadata
        )
    what = _CONFIGURED_WRONG.get(status, f"failed with status {status}")
    return UpstreamFailed(f"The provider {what}.", metadata=metadata)


def failure_in_reply(error: object, *, started: bool) -> ServiceError:
    """Our error for one that came in a reply with status 200.

    Before anything else came it may still say that the request is wrong or
    that there is no room; ``started`` it is a reply that broke off.
    """
    fields = _fields(error)
    status = _status(fields)
    metadata = _metadata(status, fields)
    if not started:
        too_long = overflow(fields)
        if too_long is not None:
            return _too_long(too_long, metadata)
        if status in _FULL:
            return Overloaded(
                "The provider has no room now; please try again later.",
                code="no_endpoint",
                metadata=metadata,
            )
        if status in _ABOUT_REQUEST:
            return _about_request(status, fields, metadata, None)
    words = "broke its reply off" if started else "failed before its reply began"
    return UpstreamFailed(f"The provider {words}.", metadata=metadata)


def said(body: bytes) -> str:
    """Return the server's message in an error body, made safe; empty if there is none."""
    return phrase(_error(body).get("message"))


def retry_after(headers: Mapping[str, str]) -> int:
    """Seconds to wait by ``Retry-After`` (seconds or a date, RFC 9110, 10.2.3), at least 1.

    A date is compared with the server's own clock where it tells it.
    """
    text = headers.get("retry-after", "").strip()
    try:
        seconds = float(text)
    except ValueError:
        until, now = _date(text), _date(headers.get("date", "")) or datetime.now(UTC)
        seconds = (until - now).total_seconds() if until is not None else _WAIT
    if not math.isfinite(seconds):
        return _WAIT
    return min(max(math.ceil(seconds), _WAIT), _MAX_WAIT)


def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _error(body: bytes) -> dict[str, Any]:
    try:
        found: Any = bounded_json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if isinstance(found, list) and found:
        found = found[0]
    if not isinstance(found, dict):
        return {}
    return _fields(found.get("error") or found)


def _fields(error: object) -> dict[str, Any]:
    """The error as an object: some servers send only words, some put them under ``detail``."""
    if isinstance(error, str):
        return {"message": error}
    if not isinstance(error, dict):
        return {}
    said = error.get("message")
    if said is not None and not isinstance(said, dict | list):
        return error
    for found in (error.get("detail"), said):
        told = found.get("detail") if isinstance(found, dict) else found
        if isinstance(told, str):
            return {**error, "message": told}
        if faults := _faults(told):
            words = "; ".join(f"{place}: {what}" for place, what in faults)
            return {**error, "message": words, "param": error.get("param") or faults[0][0]}
    return error


def _faults(told: object) -> list[tuple[str, str]]:
    """Return places and messages of a list of errors in the form of a widespread validator."""
    found = []
    for fault in told if isinstance(told, list) else ():
        if isinstance(fault, dict) and isinstance(fault.get("msg"), str):
            steps = fault.get("loc")
            place = ".".join(map(str, steps)) if isinstance(steps, list) else ""
            found.append((place.removeprefix("body.") or "body", fault["msg"]))
    return found


def _status(error: Mapping[str, object]) -> int:
    for name in ("code", "status", "status_code", "http_code"):
        value = error.get(name)
        if isinstance(value, str) and _STATUS.fullmatch(value):
            value = int(value)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    for name in ("code", "type"):
        value = error.get(name)
        if isinstance(value, str) and value in _MEANT:
            return _MEANT[value]
    return 500


def _metadata(status: int, error: Mapping[str, object]) -> dict[str, object]:
    metadata: dict[str, object] = {"upstream_status": status}
    for name in ("code", "type"):
        value = error.get(name)
        if isinstance(value, str) and _CODE.fullmatch(value) and phrase(value) == value:
            metadata["upstream_code"] = value
            break
    return metadata


def _too_long(found: Overflow, metadata: dict[str, object]) -> ServiceError:
    if found.prompt is not None and found.context is not None:
        failure: InvalidRequest = ContextLengthExceeded(
            prompt_tokens=found.prompt, max_tokens=found.output, context_length=found.context
        )
        failure.metadata |= metadata
        return failure
    return InvalidRequest(
        "The prompt, or the prompt with the output that was asked for, is longer than the model's "
        "context length. Shorten the messages or lower the output limit.",
        code="context_length_exceeded",
        param="messages",
        metadata=metadata
        | {
            "prompt_tokens": found.prompt,
            "max_tokens": found.output,
            "context_length": found.context,
        },
    )


def _about_request(
    status: int, error: Mapping[str, object], metadata: dict[str, object], dialect: Dialect | None
) -> InvalidRequest:
    words = phrase(error.get("message"))
    end = f": {words}" if words else "."
    return InvalidRequest(
        f"The provider refused the request{end}",
        param=_param(error.get("param"), dialect),
        status=status if status in (413, 415) else None,
        metadata=metadata,
    )


def _param(value: object, dialect: Dialect | None) -> str | None:
    """The parameter by the name that our client gave it, where it is one."""
    if not isinstance(value, str) or not _PARAM.fullmatch(value):
        return None
    renames = dialect.renames if dialect is not None else {}
    value = next((ours for ours, theirs in renames.items() if theirs == value), value)
    return value if re.split(r"[.\[]", value, maxsplit=1)[0] in _PARAMETERS else None


def _is_full(headers: Mapping[str, str], error: Mapping[str, object]) -> bool:
    return "retry-after" in headers or error.get("type") in _LOADING
