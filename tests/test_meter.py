"""Why a request ended as it did, without what it said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from causerie.errors import (
    InvalidRequest,
    OverBudget,
    RateLimited,
    ServiceError,
    UpstreamFailed,
)
from causerie.metering.meter import Record
from causerie.protocol.events import FinishReason, Usage


@pytest.mark.parametrize(
    "failure",
    [
        RateLimited("This key may send 60 requests a minute."),
        OverBudget("The budget of this key, 5 USD for a day, is spent."),
        UpstreamFailed("The endpoint does not answer.", metadata={"upstream_failure": "connect"}),
    ],
)
def test_a_failure_is_kept_in_its_own_words(failure: ServiceError) -> None:
    record = Record("req-1", "door", "ck_a")
    record.failed(failure)
    assert (record.reason, record.code) == (failure.message, failure.code)


def test_words_that_may_quote_the_request_are_not_kept() -> None:
    record = Record("req-1", "door", "ck_a")
    record.failed(InvalidRequest("`my secret` is not a role.", param="messages[0].role"))
    assert (record.reason, record.param) == ("", "messages[0].role")


@dataclass
class Gone:
    """A way that a request has gone."""

    whole: bool = True
    finish: FinishReason | None = "stop"
    served_by: str = "b"
    tried: Sequence[object] = ("a: full", "b: answered")
    continued: int = 0
    queued_seconds: float = 0.25
    upstream_seconds: float = 0.5

    def usage(self) -> Usage:
        return Usage(7, 5, estimated=True)


@pytest.mark.parametrize(
    ("whole", "failure", "status"),
    [
        (True, None, 200),
        (False, None, 499),
        (False, UpstreamFailed("It broke."), 502),
        (True, UpstreamFailed("The books are closed."), 502),
        (True, ValueError("A bug."), 500),
    ],
)
def test_only_a_whole_reply_without_a_failure_is_good(
    whole: bool, failure: Exception | None, status: int
) -> None:
    record = Record("req-1", "door", "ck_a", way=Gone(whole))
    if failure is not None:
        record.ended(failure)
    record.settle()
    assert (record.status, record.finish) == (status, "stop")
    assert record.used == Usage(7, 5, estimated=True)
    assert (record.attempts, record.tried) == (2, ["a: full", "b: answered"])
    assert record.way is None


def test_what_is_spent_elsewhere_is_no_overhead() -> None:
    record = Record("req-1", "door", "ck_a")
    record.first_token(1000.0)
    assert record.overhead_seconds == 0
    record.first_token(0.0)
    assert record.overhead_seconds == record.first_token_seconds
