"""Read from a refusal when a provider that has no room may be asked again.

In this order: ``retry-after-ms``, ``Retry-After`` (RFC 9110, section 10.2.3), the error in the body
(``google.rpc.RetryInfo``, ``retry_after``, "try again in 20s"), and the headers that say when a
limit is reset. A value that has not exactly the form of its place is ignored.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from causerie.providers.overflow import error_texts

_DIGITS = re.compile(r"[0-9]+")
_SECONDS_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,12})?")
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
_DELAY_WORDS = re.compile(
    r"\b(?:(?:try|retry|available|resets?)\b[^.;!?\d]{0,40}?\b(?:in|after|for|about|least)"
    rf"|wait(?: for)?(?: about| at least)?)\s+(?P<delay>{_DURATION.pattern})",
    re.IGNORECASE,
)
DELAY_NAMES: Mapping[str, float] = {
    "retry_after": 1, "retryAfter": 1, "retry_after_seconds": 1, "retryAfterSeconds": 1,
    "retry_after_ms": 1e-3, "retryAfterMs": 1e-3,
}  # fmt: skip
_RESET = re.compile(r"(?:x-)?(?:[a-z]+-)?ratelimit-(?:reset(-[a-z-]+)?|([a-z-]+)-reset)")
_MAX_DETAILS = 20
_EPOCH = 1e9  # a larger number of seconds is a moment, and a thousand times it in milliseconds


def retry_delay(headers: Mapping[str, str], error: Mapping[str, object]) -> int | None:
    """Return whole seconds to wait, bounded; ``headers`` are by lower-case name."""
    now = _date(headers.get("date", "")) or datetime.now(UTC)
    for seconds in _delays_in_order(headers, error, now):
        if seconds is not None:
            return math.ceil(min(max(seconds, 1), 3600))
    return None


def _delays_in_order(
    headers: Mapping[str, str], error: Mapping[str, object], now: datetime
) -> Iterator[float | None]:
    milliseconds = headers.get("retry-after-ms", "").strip()
    yield float(milliseconds) / 1000 if _SECONDS_NUMBER.fullmatch(milliseconds) else None
    text = headers.get("retry-after", "").strip()
    yield float(text) if _DIGITS.fullmatch(text) else _seconds_until(_date(text), now)
    yield from _delays_in_body(error)
    yield _seconds_until_reset(headers, now)


def _delays_in_body(error: Mapping[str, object]) -> Iterator[float | None]:
    details = error.get("details")
    for detail in details[:_MAX_DETAILS] if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type", "")).endswith("RetryInfo"):
            yield _duration(detail.get("retryDelay"))
    metadata = error.get("metadata")
    for place in (error, metadata if isinstance(metadata, dict) else {}):
        for name, unit in DELAY_NAMES.items():
            if (seconds := _seconds_of(place.get(name))) is not None:
                yield seconds * unit
    for text in error_texts(error):
        if found := _DELAY_WORDS.search(text):
            yield _duration_seconds(found["delay"])


def _seconds_of(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if 0 <= value < _EPOCH else None
    if isinstance(value, str) and _SECONDS_NUMBER.fullmatch(value):
        return float(value)
    return _duration(value)


def _duration(value: object) -> float | None:
    if isinstance(value, dict):
        seconds, nanos = _seconds_of(value.get("seconds", 0)), _seconds_of(value.get("nanos", 0))
        return None if seconds is None or nanos is None else seconds + nanos / 1e9
    if isinstance(value, str) and len(value) < 100 and _DURATION.fullmatch(value):
        return _duration_seconds(value)
    return None


def _duration_seconds(duration: str) -> float:
    return sum(map(_part_seconds, _PARTS.findall(duration)))


def _part_seconds(part: str) -> float:
    number = part.rstrip(string.ascii_letters + "µ" + string.whitespace)
    unit = part[len(number) :].strip().lower()
    factor = 1e-3 if unit.startswith(("ms", "milli")) else _UNITS[unit[0]]
    return float(number) * factor


def _seconds_until_reset(headers: Mapping[str, str], now: datetime) -> float | None:
    waits: list[tuple[bool, float]] = []
    for name, value in headers.items():
        if _RESET.fullmatch(name) and (seconds := _reset_seconds(value.strip(), now)) is not None:
            left = headers.get(name.replace("reset", "remaining"), "").strip()
            waits.append((left == "0", seconds))
    spent = [seconds for is_spent, seconds in waits if is_spent]
    return max(spent) if spent else min((seconds for _, seconds in waits), default=None)


def _reset_seconds(value: str, now: datetime) -> float | None:
    if _SECONDS_NUMBER.fullmatch(value):
        seconds = float(value)
        if seconds >= _EPOCH:
            seconds /= 1000 if seconds >= 1000 * _EPOCH else 1
            return max(seconds - now.timestamp(), 0)
        return seconds
    return _duration(value) if "-" not in value else _seconds_until(_timestamp(value), now)


def _seconds_until(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else (moment - now).total_seconds()


def _timestamp(text: str) -> datetime | None:
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
