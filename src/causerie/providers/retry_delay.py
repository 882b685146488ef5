"""Read how long to wait before a provider that has no room is asked again.

In this order: ``retry-after-ms``, ``Retry-After`` (RFC 9110, section 10.2.3), the error in the
body (``google.rpc.RetryInfo``, ``retry_after``, "try again in 20s"), and the headers that say when
a limit is reset. A value that has not exactly the form of its place is ignored.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LEAST_SECONDS = 1
MOST_SECONDS = 3600

_DIGITS = re.compile(r"[0-9]+")
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,12})?")
_HTTP_DATE = re.compile(  # RFC 9110, section 5.6.7: all three forms
    r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"
    r"|[A-Z][a-z]{5,8}, \d\d-[A-Z][a-z]{2}-\d\d \d\d:\d\d:\d\d GMT"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}",
    re.ASCII,
)
_UNITS: Mapping[str, float] = {"u": 1e-6, "µ": 1e-6, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = (
    r"[0-9]{1,9}(?:\.[0-9]{1,12})?\s*(?:us|µs|ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?"
    r"|h|hrs?|hours?|d|days?)(?![a-z])"
)
_PARTS = re.compile(_PART, re.IGNORECASE)
_DURATION = re.compile(rf"{_PART}(?:[\s,]{{0,2}}(?:and\s)?{_PART}){{0,5}}", re.IGNORECASE)
_WORDS = re.compile(
    r"\b(?:(?:try|retry|available|resets?)\b[^.;!?\d]{0,40}?\b(?:in|after|for|about|least)"
    rf"|wait(?: for)?(?: about| at least)?)\s+(?P<delay>{_DURATION.pattern})",
    re.IGNORECASE,
)
DELAY_NAMES: Mapping[str, float] = {
    "retry_after": 1, "retryAfter": 1, "retry_after_seconds": 1, "retryAfterSeconds": 1,
    "retry_after_ms": 1e-3, "retryAfterMs": 1e-3,
}  # fmt: skip
_RESET = re.compile(r"(?:x-)?(?:[a-z]+-)?ratelimit-(?:reset(-[a-z-]+)?|([a-z-]+)-reset)")
_MAX_SEARCHED = 2000  # characters of a message
_MAX_DETAILS = 20
_EPOCH = (
    1e9  # a larger number of seconds is a moment, and a thousand times this one in milliseconds
)


def retry_delay(headers: Mapping[str, str], error: Mapping[str, object]) -> int | None:
    """Return whole seconds to wait, rounded up and bounded; ``None`` if they are not given.

    ``headers`` are by lower-case name. Moments are compared with the server's ``Date`` if there is
    one.
    """
    now = _date(headers.get("date", "")) or datetime.now(UTC)
    for seconds in _said(headers, error, now):
        if seconds is not None:
            return math.ceil(min(max(seconds, LEAST_SECONDS), MOST_SECONDS))
    return None


def _said(
    headers: Mapping[str, str], error: Mapping[str, object], now: datetime
) -> Iterator[float | None]:
    milliseconds = headers.get("retry-after-ms", "").strip()
    yield float(milliseconds) / 1000 if _NUMBER.fullmatch(milliseconds) else None
    text = headers.get("retry-after", "").strip()
    yield float(text) if _DIGITS.fullmatch(text) else _until(_date(text), now)
    yield from _in_body(error)
    yield _reset(headers, now)


def _in_body(error: Mapping[str, object]) -> Iterator[float | None]:
    details = error.get("details")
    for detail in details[:_MAX_DETAILS] if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type", "")).endswith("RetryInfo"):
            yield _duration(detail.get("retryDelay"))
    metadata = error.get("metadata")
    for place in (error, metadata if isinstance(metadata, dict) else {}):
        for name, unit in DELAY_NAMES.items():
            if (seconds := _amount(place.get(name))) is not None:
                yield seconds * unit
    for text in (error.get("message"), metadata.get("raw") if isinstance(metadata, dict) else None):
        if isinstance(text, str) and (found := _WORDS.search(text[:_MAX_SEARCHED])):
            yield _sum(found["delay"])


def _amount(value: object) -> float | None:
    """Return seconds of a number, of its digits, or of a duration."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if 0 <= value < _EPOCH else None
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)
    return _duration(value)


def _duration(value: object) -> float | None:
    """Return the seconds of a duration like ``1m30.5s``, or of protobuf's JSON or fields."""
    if isinstance(value, dict):
        seconds, nanos = _amount(value.get("seconds", 0)), _amount(value.get("nanos", 0))
        return None if seconds is None or nanos is None else seconds + nanos / 1e9
    if isinstance(value, str) and len(value) < 100 and _DURATION.fullmatch(value):
        return _sum(value)
    return None


def _sum(duration: str) -> float:
    return sum(map(_seconds, _PARTS.findall(duration)))


def _seconds(part: str) -> float:
    number = part.rstrip(string.ascii_letters + "µ" + string.whitespace)
    unit = part[len(number) :].strip().lower()
    factor = 1e-3 if unit.startswith(("ms", "milli")) else _UNITS[unit[0]]
    return float(number) * factor


def _reset(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return seconds until all used-up limits are reset; if none is, until the next reset."""
    waits: list[tuple[bool, float]] = []
    for name, value in headers.items():
        if _RESET.fullmatch(name) and (seconds := _to_reset(value.strip(), now)) is not None:
            left = headers.get(name.replace("reset", "remaining"), "").strip()
            waits.append((left == "0", seconds))
    spent = [seconds for is_spent, seconds in waits if is_spent]
    return max(spent) if spent else min((seconds for _, seconds in waits), default=None)


def _to_reset(value: str, now: datetime) -> float | None:
    if _NUMBER.fullmatch(value):
        seconds = float(value)
        if seconds >= _EPOCH:
            seconds /= 1000 if seconds >= 1000 * _EPOCH else 1
            return max(seconds - now.timestamp(), 0)
        return seconds
    return _duration(value) if "-" not in value else _until(_timestamp(value), now)


def _until(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else (moment - now).total_seconds()


def _timestamp(text: str) -> datetime | None:
    """Return the moment of a timestamp with its zone (RFC 3339)."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _date(text: str) -> datetime | None:
    if not _HTTP_DATE.fullmatch(text):
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
