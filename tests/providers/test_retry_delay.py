"""How long to wait, from headers and bodies of servers; all else says nothing."""

from __future__ import annotations

import json
import math
from typing import Any

from casekit import each_of
from hypothesis import given
from hypothesis import strategies as st

from causerie.providers.dialects import GENERIC
from causerie.providers.refusal import failure_in_reply, refusal, retry_delay

DATE = {"date": "Sat, 21 Nov 2026 10:00:00 GMT"}
RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


@each_of(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0"}, 1),
        ({"retry-after": "999999"}, 3600),
        ({"retry-after": "9" * 30}, 3600),
        ({"retry-after": "Sat, 21 Nov 2026 10:00:30 GMT", **DATE}, 30),
        ({"retry-after": "Saturday, 21-Nov-26 10:00:31 GMT", **DATE}, 31),
        ({"retry-after": "Sat Nov 21 10:00:32 2026", **DATE}, 32),
        ({"retry-after": "Sat, 21 Nov 2020 10:00:30 GMT"}, 1),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 2),
        ({"x-ratelimit-reset-requests": "1m30s"}, 90),
        ({"x-ratelimit-reset-tokens": "20ms"}, 1),
        ({"x-ratelimit-reset-tokens-minute": "11.382"}, 12),
        ({"ratelimit-reset": "5"}, 5),
        ({"x-ratelimit-reset": "1795255220", **DATE}, 20),
        ({"x-ratelimit-reset": "1795255220000", **DATE}, 20),
        ({"anthropic-ratelimit-tokens-reset": "2026-11-21T10:00:20Z", **DATE}, 20),
        (
            {"x-ratelimit-reset-requests": "90s", "x-ratelimit-remaining-requests": "0",
             "x-ratelimit-reset-tokens": "6s", "x-ratelimit-remaining-tokens": "3"},
            90,
        ),
        ({"x-ratelimit-reset-requests": "90s", "x-ratelimit-reset-tokens": "6s"}, 6),
    ],
)  # fmt: skip
def test_headers(headers: dict[str, str], seconds: int | None) -> None:
    assert retry_delay(headers, {}) == seconds
    assert refusal(429, headers, b"", GENERIC).headers["Retry-After"] == str(seconds or 1)


@each_of(
    "text",
    ["1e3", "1_000", "+5", "-5", "NaN", "inf", "Infinity", "1.5", "0x10", "٣", "5, 5", "5s", "",
     "soon", "Sat, 21 Nov 99999999 10:00:30 GMT", "21 Nov 2026 10:00:30 +0000", "2_1 Nov 2026"],
)  # fmt: skip
def test_what_is_no_retry_after(text: str) -> None:
    assert retry_delay({"retry-after": text}, {}) is None
    if not text.endswith("s"):
        assert retry_delay({"retry-after-ms": text.replace("1.5", "x")}, {}) is None


@each_of(
    ("error", "seconds"),
    [
        ({"details": [{"@type": RETRY_INFO, "retryDelay": "26.4s"}]}, 27),
        ({"details": [{"@type": RETRY_INFO, "retryDelay": {"seconds": "3", "nanos": 10}}]}, 4),
        ({"details": [{"@type": RETRY_INFO, "retryDelay": "1e3s"}, {"@type": RETRY_INFO}]}, None),
        ({"message": "Rate limit reached. Please try again in 20s. Visit our page"}, 20),
        ({"message": "Please try again in 1m2.5s."}, 63),
        ({"message": "Please try again in 350ms."}, 1),
        ({"message": "Please try again in 6m0s. Need more tokens?"}, 360),
        ({"message": "Please retry in 31.083459112s."}, 32),
        ({"message": "Please retry after 26 seconds."}, 26),
        ({"message": "Please retry your request after 3.5 s"}, 4),
        ({"message": "Try again in 1 minute and 5 seconds"}, 65),
        ({"message": "please wait for 20 seconds before another one"}, 20),
        ({"message": "Please wait 20 seconds"}, 20),
        ({"message": "Your quota resets in 23h59m"}, 3600),
        ({"message": "Provider returned error", "metadata": {"raw": "retry in 9s"}}, 9),
        ({"retry_after": 20}, 20),
        ({"retry_after": "20"}, 20),
        ({"retry_after": "1m"}, 60),
        ({"retryAfterMs": 1500}, 2),
        ({"metadata": {"retry_after_seconds": 9}}, 9),
        ({"retry_after": -1}, None),
        ({"retry_after": math.nan}, None),
        ({"retry_after": True}, None),
        ({"retry_after": 1e300}, None),
        ({"message": "try again later; the limit is 20s"}, None),
        ({"message": "try again in 5"}, None),
        ({"message": "try again in 1e3s"}, None),
        ({"message": "try again in -5s"}, None),
        ({"message": ["try again in 5s"], "details": "x", "metadata": 3}, None),
    ],
)
def test_bodies(error: dict[str, Any], seconds: int | None) -> None:
    assert retry_delay({}, error) == seconds


def test_beside_the_error_and_within_a_stream() -> None:
    body = json.dumps({"error": {"message": "slow"}, "retry_after": 4}).encode()
    assert refusal(429, {}, body, GENERIC).headers["Retry-After"] == "4"
    failure = failure_in_reply({"code": 429, "message": "try again in 8s"}, started=False)
    assert failure.headers["Retry-After"] == "8"


@given(st.floats(0.001, 3599), st.sampled_from(["s", "ms", " seconds"]))
def test_whole_seconds_rounded_up(seconds: float, unit: str) -> None:
    number = f"{seconds * (1000 if unit == 'ms' else 1):.3f}"
    exact = float(number) / (1000 if unit == "ms" else 1)
    expected = max(math.ceil(exact), 1)
    assert retry_delay({}, {"message": f"Please try again in {number}{unit}."}) == expected
    assert retry_delay({}, {"retry_after": number + unit.strip()}) == expected


@given(
    st.dictionaries(
        st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset-tokens", "date"]),
        st.text(max_size=30)
        | st.from_regex(r"[0-9]{1,4}[hms]?[0-9]{0,3}[a-z]{0,2}", fullmatch=True),
    ),
    st.dictionaries(
        st.sampled_from(["message", "retry_after", "details", "metadata"]),
        st.recursive(st.none() | st.floats() | st.text(max_size=40), st.lists, max_leaves=4),
    ),
)
def test_anything_is_within_bounds(headers: dict[str, str], error: dict[str, Any]) -> None:
    seconds = retry_delay(headers, error)
    assert seconds is None or 1 <= seconds <= 3600
