"""Map the refusal of a provider to an error that is safe to show, with the time until a retry.

The delay is read in this order: ``retry-after-ms``, ``Retry-After`` (RFC 9110, section 10.2.3), the
error in the body (``google.rpc.RetryInfo``, ``retry_after``, "try again in 20s"), and the headers
that say when a limit is reset. A value that has not exactly the form of its place is ignored."""

from __future__ import annotations

import base64
import math
import re
import string
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any
from urllib.parse import quote

import msgspec

from causerie import errors
from causerie.protocol import bounded_json
from causerie.protocol.parameters import HINT_NAMES, HONOURED
from causerie.providers.dialect import Dialect
from causerie.providers.overflow import Overflow, error_texts, overflow
from causerie.providers.wire import SAID

_DIGITS = re.compile(r"[0-9]+")
_SECONDS_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,12})?")
_HTTP_DATE = re.compile(  # RFC 9110, section 5.6.7: all three forms
    r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"
    r"|[A-Z][a-z]{5,8}, \d\d-[A-Z][a-z]{2}-\d\d \d\d:\d\d:\d\d GMT"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}",
    re.ASCII,
)
_SECONDS_OF: Mapping[str, float] = {"u": 1e-6, "µ": 1e-6, "s": 1, "m": 60, "h": 3600, "d": 86400}
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
    now = _parse_http_date(headers.get("date", "")) or datetime.now(UTC)
    for seconds in _read_retry_delays(headers, error, now):
        if seconds is not None:
            return math.ceil(min(max(seconds, 1), 3600))
    return None


def _read_retry_delays(
    headers: Mapping[str, str], error: Mapping[str, object], now: datetime
) -> Iterator[float | None]:
    milliseconds = headers.get("retry-after-ms", "").strip()
    yield float(milliseconds) / 1000 if _SECONDS_NUMBER.fullmatch(milliseconds) else None
    text = headers.get("retry-after", "").strip()
    moment = _parse_http_date(text)
    yield float(text) if _DIGITS.fullmatch(text) else _compute_signed_seconds_until(moment, now)
    yield from _read_body_delays(error)
    waits: list[tuple[bool, float]] = []
    for name, value in headers.items():
        if _RESET.fullmatch(name) and (seconds := _parse_reset(value.strip(), now)) is not None:
            left = headers.get(name.replace("reset", "remaining"), "").strip()
            waits.append((left == "0", seconds))
    spent = [seconds for is_spent, seconds in waits if is_spent]
    yield (max(spent) if spent else min((seconds for _, seconds in waits), default=None))


def _read_body_delays(error: Mapping[str, object]) -> Iterator[float | None]:
    details = error.get("details")
    for detail in details[:_MAX_DETAILS] if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type", "")).endswith("RetryInfo"):
            yield _parse_json_duration(detail.get("retryDelay"))
    metadata = error.get("metadata")
    for place in (error, metadata if isinstance(metadata, dict) else {}):
        for name, unit in DELAY_NAMES.items():
            if (seconds := _to_seconds(place.get(name))) is not None:
                yield seconds * unit
    for text in error_texts(error):
        if found := _DELAY_WORDS.search(text):
            yield _parse_duration_text(found["delay"])


def _to_seconds(field: object) -> float | None:
    if isinstance(field, int | float) and not isinstance(field, bool):
        return float(field) if 0 <= field < _EPOCH else None
    if isinstance(field, str) and _SECONDS_NUMBER.fullmatch(field):
        return float(field)
    return _parse_json_duration(field)


def _parse_json_duration(field: object) -> float | None:
    if isinstance(field, dict):
        seconds, nanos = _to_seconds(field.get("seconds", 0)), _to_seconds(field.get("nanos", 0))
        return None if seconds is None or nanos is None else seconds + nanos / 1e9
    if isinstance(field, str) and len(field) < 100 and _DURATION.fullmatch(field):
        return _parse_duration_text(field)
    return None


def _parse_duration_text(duration_text: str) -> float:
    seconds = 0.0
    for part in _PARTS.findall(duration_text):
        number = part.rstrip(string.ascii_letters + "µ" + string.whitespace)
        unit = part[len(number) :].strip().lower()
        factor = 1e-3 if unit.startswith(("ms", "milli")) else _SECONDS_OF[unit[0]]
        seconds += float(number) * factor
    return seconds


def _parse_reset(reset_header: str, now: datetime) -> float | None:
    if _SECONDS_NUMBER.fullmatch(reset_header):
        seconds = float(reset_header)
        if seconds >= _EPOCH:
            seconds /= 1000 if seconds >= 1000 * _EPOCH else 1
            return max(seconds - now.timestamp(), 0)
        return seconds
    if "-" not in reset_header:
        return _parse_json_duration(reset_header)
    moment = _try_parse_date(reset_header, datetime.fromisoformat)
    return _compute_signed_seconds_until(moment if moment and moment.tzinfo else None, now)


def _compute_signed_seconds_until(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else (moment - now).total_seconds()


def _parse_http_date(field: str) -> datetime | None:
    moment = _try_parse_date(field, parsedate_to_datetime) if _HTTP_DATE.fullmatch(field) else None
    return moment.replace(tzinfo=moment.tzinfo or UTC) if moment else None


def _try_parse_date(date_text: str, parse: Callable[[str], datetime]) -> datetime | None:
    try:
        return parse(date_text)
    except (ValueError, OverflowError):
        return None


# Make a server's text safe to show to our clients: one short line, without private parts.
#
# Only text about the request itself is ever shown (see ``refusal``). What looks like a credential,
# an address, a path or markup is removed; a rest that is too long is cut. Ordinary words stay, also
# behind "API key" or "token". :func:`hide_credential` hides the very key that was sent.

_MOST = 300
_HIDDEN = "…"
_ADDRESSES = (
    re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE),
    re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]+"),
    re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"),
    re.compile(r"\[?(?:[0-9a-f]{0,4}:){3,}[0-9a-f.:]*\]?(?::\d+)?", re.IGNORECASE),
    re.compile(r"(?<![\w-])(?<!\w\.)[\w-]+(?:\.[\w-]+)+:\d{2,5}\b"),
    re.compile(r"\blocalhost\b\S*", re.IGNORECASE),
    re.compile(r"(?<![\w-])(?<!\w\.)[\w-]+(?:\.[\w-]+)*\.(?:internal|local|lan|svc|cluster)\b\S*",
               re.IGNORECASE),
    re.compile(r"(?<![\w.#])(?:/|~/|[A-Za-z]:\\)[\w.-]+(?:[/\\][\w.-]+)+"),
)  # fmt: skip
_NAMED = re.compile(  # a word for a credential, and what stands behind it
    r"(?P<name>\b(?:bearer|basic|(?:api|access|secret)[_ -]?keys?|tokens?|authorization|passwords?"
    r"|secrets?|credentials?)\b)"
    r"(?P<between>\s*(?:is|was|provided|of)?\s*[:=]?\s*['\"`]?)(?!(?:bearer|basic)\b)(?P<value>[\w.+/=*~-]{6,})",
    re.IGNORECASE,
)
_PREFIXED = re.compile(
    r"\b(?:(?:sk|pk|rk|ck|gsk|hf|r8|xai|nvapi|ghp|gho|glpat|xox[a-z])[-_](?P<sure>[\w*.-]{4,})"
    r"|(?:key|org|proj|req|AKIA|ASIA|AIza)[-_]?(?P<value>[\w*.-]{4,}))"
)
_NO_WORD = re.compile(r"[A-Za-z0-9]{16}|(?=[A-Za-z]*\d)[A-Za-z0-9]{6}|[a-z][A-Z]")
_LONG = re.compile(r"[\w+/=~-]{24,}")
_SEPARATORS = re.compile(r"[-_./+=~]+")
_UNITS = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{3,}|[0-9]{2,}|.", re.DOTALL)
_CHANGES = re.compile(r"(?<=[0-9])(?=[A-Za-z])|(?<=[A-Za-z])(?=[0-9])")
_LETTERS = re.compile(r"(?=[a-z]*[b-df-hj-np-tv-xz]{5})[a-z]{12,}")  # of no language
_HEXADECIMAL = re.compile(r"(?=[0-9-]*[a-f])(?=[a-f-]*[0-9])[0-9a-f-]{24,}", re.IGNORECASE)
_MASKED = re.compile(r"\w\*{3,}|\*{3,}\w|\w\.{3,}\w")
_LEAST_SECRET = 8  # characters that are told apart from words
_MARKUP = re.compile(r"<\s*(?:!doctype|html|body|head|h1|title)", re.IGNORECASE)
_TRACE = re.compile(r"traceback|\bat 0x[0-9a-f]+|\.py\b.*\bline \d+", re.IGNORECASE)


def phrase(words: object) -> str:
    """Return ``words`` on one line without secrets and addresses; empty if not fit to show."""
    if not isinstance(words, str) or _MARKUP.search(words) or _TRACE.search(words):
        return ""
    text = "".join(char if char.isprintable() else " " for char in words[: 4 * _MOST])
    for address in _ADDRESSES:
        text = address.sub(_HIDDEN, text)
    text = _PREFIXED.sub(_hide_whole_prefixed_secret, text)
    text = _NAMED.sub(_mask_named_secret, text)
    text = _LONG.sub(lambda found: _HIDDEN if _is_secret(found[0]) else found[0], text)
    text = " ".join(text.split())
    return text if len(text) <= _MOST else text[: _MOST - 1].rstrip() + "…"


def hide_credential(text: str, credential: str | None) -> str:
    """Return ``text`` with every 8-character part of the credential, plain or encoded, hidden."""
    if not credential or len(credential) < 4:
        return text
    if len(credential) < _LEAST_SECRET:
        return re.sub(rf"(?<!\w){re.escape(credential)}(?!\w)", _HIDDEN, text)
    pieces, length = _list_credential_pieces(credential), _LEAST_SECRET
    hidden = bytearray(len(text))
    for at in range(len(text) - length + 1):
        if text[at : at + length] in pieces:
            hidden[at : at + length] = b"\1" * length
    return "".join(
        _HIDDEN if is_hidden else "".join(char for _, char in run)
        for is_hidden, run in groupby(zip(hidden, text, strict=True), key=itemgetter(0))
    )


@lru_cache(maxsize=64)
def _list_credential_pieces(credential: str) -> frozenset[str]:
    data = credential.encode("utf-8", "surrogatepass")
    forms = [credential, quote(credential, safe=""), data.hex(), data.hex().upper()]
    for start in range(3):  # wherever it stands in what was encoded
        encoded = base64.b64encode(b"\0" * start + data).decode()[4 if start else 0 :]
        forms += [encoded, encoded.translate(str.maketrans("+/", "-_"))]
    length = _LEAST_SECRET
    return frozenset(
        form[at : at + length] for form in forms for at in range(len(form) - length + 1)
    )


def _hide_whole_prefixed_secret(match: re.Match[str]) -> str:
    value, sure = match["value"], match["sure"]
    hidden = _is_secret(value) if sure is None else _is_secret(sure) or _NO_WORD.search(sure)
    return _HIDDEN if hidden else match[0]


def _mask_named_secret(match: re.Match[str]) -> str:
    value, between = match["value"], match["between"]
    assigned = ":" in between or "=" in between
    mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    if _is_secret(value) or (assigned and mixed):
        return match["name"] + between + _HIDDEN
    return match[0]


def _is_secret(text: str) -> bool:
    if _MASKED.search(text) or _HEXADECIMAL.fullmatch(text):
        return True
    return any(len(part) >= _LEAST_SECRET and _is_random(part) for part in _SEPARATORS.split(text))


def _is_random(word: str) -> bool:
    if _LETTERS.fullmatch(word) is not None:
        return True
    changes, long = len(_CHANGES.findall(word)), len(word) >= 2 * _LEAST_SECRET
    if changes >= (2 if long else 4):  # between letters and digits
        return True
    mixed = not (word.isalpha() and (word.islower() or word.isupper())) and not word.isdigit()
    return mixed and len(word) / len(_UNITS.findall(word)) < (2.7 if long else 2.2)


# Refusal of a provider, mapped to an error of ours.
#
# The status says whose fault it is. Of the request: our client gets it as 400,
# with what the server says about the request, made safe. Of our configuration
# (key, model, address) or of the server: 502, without its words, because they
# are about what is not the client's. No room: 503 with the time to wait.

_PARAM = re.compile(r"[A-Za-z_][\w.\[\]]{0,63}", re.ASCII)
_CODE = re.compile(r"[A-Za-z][A-Za-z_]{0,47}", re.ASCII)
_STATUS = re.compile(r"[45]\d\d", re.ASCII)
_FULL = frozenset({429, 529})
_SAID = SAID["refusal"]
_LOADING, _RATE_LIMITED = frozenset(_SAID["loading"]), frozenset(_SAID["rate_limited"])
_MEANT: Mapping[str, int] = _SAID["statuses"]
_OUR_KEY_CODES, _OUR_BILL_CODES = (
    frozenset(_SAID[name]["codes"]) for name in ("our_key", "our_bill")
)
_ABOUT_OUR_KEY, _ABOUT_OUR_BILL = (
    re.compile(_SAID[name]["words"], re.IGNORECASE) for name in ("our_key", "our_bill")
)
_CONFIGURED_WRONG: Mapping[int, tuple[str, errors.ErrorClass]] = {
    401: ("did not accept our credentials", errors.ErrorClass.REJECTED_KEY),
    402: ("is not paid for", errors.ErrorClass.QUOTA),
    403: ("does not let our credentials do this", errors.ErrorClass.FORBIDDEN),
    404: ("does not know the model or the path", errors.ErrorClass.MODEL_NOT_FOUND),
    405: ("does not know the method", errors.ErrorClass.WRONG_ADDRESS),
}
_PARAMETERS = HONOURED | HINT_NAMES
_WAIT = 1


def refusal(
    status: int, headers: Mapping[str, str], body: bytes, dialect: Dialect
) -> errors.ServiceError:
    """Return our error for a response with ``status``; ``headers`` are by lower-case name."""
    return _build_service_error(status, headers, _parse_error_body(body), dialect)


def failure_in_reply(error: object, *, started: bool) -> errors.ServiceError:
    """Return our error for one inside a reply, before or after its content ``started``."""
    fields = _normalise_error(error)
    status = _read_error_status_or_500(fields)
    if not started and (status != 500 or overflow(fields) is not None):
        return _build_service_error(status, {}, fields, None)
    words = "broke its reply off" if started else "failed before its reply began"
    cause = errors.ErrorClass.BROKEN_STREAM if started else errors.ErrorClass.SERVER_ERROR
    return _build_upstream_error(words, cause, _build_status_and_code_metadata(status, fields))


def _build_upstream_error(
    our_words: str, cause: errors.ErrorClass, metadata: dict[str, object]
) -> errors.UpstreamFailed:
    return errors.UpstreamFailed(f"The provider {our_words}.", metadata=metadata).caused_by(cause)


def _build_service_error(
    status: int, headers: Mapping[str, str], error: Mapping[str, object], dialect: Dialect | None
) -> errors.ServiceError:
    metadata = _build_status_and_code_metadata(status, error)
    if 300 <= status < 400:
        words = "answers with a redirect, which is not followed"
        return _build_upstream_error(words, errors.ErrorClass.WRONG_ADDRESS, metadata)
    delay = retry_delay(headers, error)
    if (wrong := _find_configuration_fault(status, error, delay)) is not None:
        return _build_upstream_error(*wrong, metadata)
    too_long = overflow(error)
    if too_long is None and status == 413 and not phrase(error.get("message")):
        too_long = Overflow(None, None, None)  # as Cerebras says it, without a word
    if too_long is not None:
        return _build_context_error(too_long, metadata)
    if _is_overload_or_rate_limit(status, headers, error, delay):
        limited = status == 429 or _read_codes(error) & _RATE_LIMITED
        return errors.Overloaded(
            "The provider has no room now; please try again later.",
            code="no_endpoint",
            retry_after=delay or _WAIT,
            metadata=metadata,
        ).caused_by(errors.ErrorClass.RATE_LIMITED if limited else errors.ErrorClass.OVERLOADED)
    if status in {400, 413, 415, 422}:
        words = phrase(error.get("message"))
        end = f": {words}" if words else "."
        return errors.InvalidRequest(
            f"The provider refused the request{end}",
            param=_translate_param(error.get("param"), dialect),
            status=status if status in (413, 415) else None,
            metadata=metadata,
        )
    if status in {408, 504, 522, 524}:
        return errors.UpstreamFailed(
            "The provider took too long.", code="upstream_timeout", status=504, metadata=metadata
        ).caused_by(errors.ErrorClass.TIMEOUT)
    cause = errors.ErrorClass.SERVER_ERROR if status >= 500 else errors.ErrorClass.INVALID_REQUEST
    return _build_upstream_error(f"failed with status {status}", cause, metadata)


def _find_configuration_fault(
    status: int, error: Mapping[str, object], delay_seconds: int | None
) -> tuple[str, errors.ErrorClass] | None:
    # A quota with a time to wait is a rate limit.
    marks, words = _read_codes(error), str(error.get("message"))
    if status in (400, 422) and (marks & _OUR_KEY_CODES or _ABOUT_OUR_KEY.search(words)):
        return _CONFIGURED_WRONG[401]
    if status in (400, 403, 429) and (
        marks & _OUR_BILL_CODES or (delay_seconds is None and _ABOUT_OUR_BILL.search(words))
    ):
        return _CONFIGURED_WRONG[402]
    return _CONFIGURED_WRONG.get(status)


def _read_codes(error: Mapping[str, object]) -> set[str]:
    return {str(error.get("code")), str(error.get("type"))}


def said(body: bytes) -> str:
    """Return the server's message in an error body, made safe; empty if there is none."""
    return phrase(_parse_error_body(body).get("message"))


def _parse_error_body(body: bytes) -> dict[str, Any]:
    try:
        found: Any = bounded_json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if isinstance(found, list) and found:
        found = found[0]
    if not isinstance(found, dict):
        return {}
    delays = {name: found[name] for name in DELAY_NAMES if name in found}
    return {**delays, **_normalise_error(found.get("error") or found)}


def _normalise_error(error: object) -> dict[str, Any]:
    # Some servers send only words, or put them under another name.
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
        if faults := _list_faulty_fields_and_messages(told):
            words = "; ".join(f"{place}: {what}" for place, what in faults)
            return {**error, "message": words, "param": error.get("param") or faults[0][0]}
    listed = error.get("errors")
    return (
        {**error, **_normalise_error(listed[0])} if isinstance(listed, list) and listed else error
    )


def _list_faulty_fields_and_messages(detail: object) -> list[tuple[str, str]]:
    found = []
    for fault in detail if isinstance(detail, list) else ():
        if isinstance(fault, dict) and isinstance(fault.get("msg"), str):
            steps = fault.get("loc")
            place = ".".join(map(str, steps)) if isinstance(steps, list) else ""
            found.append((place.removeprefix("body.") or "body", fault["msg"]))
    return found


def _read_error_status_or_500(error: Mapping[str, object]) -> int:
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


def _build_status_and_code_metadata(status: int, error: Mapping[str, object]) -> dict[str, object]:
    metadata: dict[str, object] = {"upstream_status": status}
    for name in ("code", "type"):
        value = error.get(name)
        if isinstance(value, str) and _CODE.fullmatch(value) and phrase(value) == value:
            metadata["upstream_code"] = value
            break
    return metadata


def _build_context_error(counts: Overflow, metadata: dict[str, object]) -> errors.ServiceError:
    if counts.prompt is not None and counts.context is not None:
        failure: errors.InvalidRequest = errors.ContextLengthExceeded(
            prompt_tokens=counts.prompt, max_tokens=counts.output, context_length=counts.context
        )
        failure.metadata |= metadata
        return failure
    return errors.InvalidRequest(
        "The prompt, or the prompt with the output that was asked for, is longer than the model's "
        "context length. Shorten the messages or lower the output limit.",
        code="context_length_exceeded",
        param="messages",
        metadata=metadata
        | {
            "prompt_tokens": counts.prompt,
            "max_tokens": counts.output,
            "context_length": counts.context,
        },
    ).caused_by(errors.ErrorClass.CONTEXT_LENGTH)


def _translate_param(param: object, dialect: Dialect | None) -> str | None:
    if not isinstance(param, str) or not _PARAM.fullmatch(param):
        return None
    renames = dialect.renames if dialect is not None else {}
    param = next((ours for ours, theirs in renames.items() if theirs == param), param)
    return param if re.split(r"[.\[]", param, maxsplit=1)[0] in _PARAMETERS else None


def _is_overload_or_rate_limit(
    status: int, headers: Mapping[str, str], error: Mapping[str, object], delay: int | None
) -> bool:
    if status in _FULL or (status == 413 and _read_codes(error) & _RATE_LIMITED):
        return True
    loads = "retry-after" in headers or delay is not None or bool(_read_codes(error) & _LOADING)
    return status == 503 and loads
