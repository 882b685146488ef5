"""Why a request ended as it did, without what it said."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest
from casekit import each_of

from causerie.errors import (
    InvalidRequest,
    OverBudget,
    RateLimited,
    ServiceError,
    StoreUnavailable,
    UpstreamFailed,
)
from causerie.metering.meter import Meter, Record
from causerie.protocol.events import FinishReason, Usage


@pytest.mark.parametrize(
    "failure",
    [
        RateLimited("This key may send 60 requests per minute."),
        OverBudget("The budget of this key, 5 USD for a day, is spent."),
        UpstreamFailed("The provider does not answer.", metadata={"upstream_failure": "connect"}),
    ],
)
def test_a_failure_is_kept_in_its_own_words(failure: ServiceError) -> None:
    record = Record("req-1", "door", "ck_a")
    record.failed(failure)
    words = f"{cause}: {failure.message}" if (cause := failure.error_class) else failure.message
    assert (record.reason, record.code) == (words, failure.code)


def test_words_that_may_quote_the_request_are_not_kept() -> None:
    record = Record("req-1", "door", "ck_a")
    record.failed(InvalidRequest("`my secret` is not a role.", param="messages[0].role"))
    assert (record.reason, record.param) == ("invalid_request", "messages[0].role")


@dataclass
class Gone:
    """A way that a request has gone."""

    whole: bool = True
    delivered: bool = True
    finish: FinishReason | None = "stop"
    answered_by: str = "b"
    tried: Sequence[object] = ("a: full", "b: answered")
    continued: int = 0
    queued_seconds: float = 0.25
    upstream_seconds: float = 0.5

    def usage(self) -> Usage:
        return Usage(7, 5, estimated=True)


@each_of(
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
    record = Record("req-1", "door", "ck_a", outcome=Gone(whole))
    if failure is not None:
        record.ended(failure)
    record.settle()
    assert (record.status, record.finish) == (status, "stop")
    assert record.used == Usage(7, 5, estimated=True)
    assert (record.attempts, record.tried) == (2, ["a: full", "b: answered"])
    assert record.outcome is None


@dataclass
class Books:
    """Those that take records, or fail so."""

    failure: Exception | None = None

    async def enter(self, record: Record) -> None:
        if self.failure is not None:
            raise self.failure


@dataclass
class Kept:
    """A sink that keeps what it is told."""

    told: list[tuple[int, str | None]] = field(default_factory=list)

    def write(self, record: Record) -> None:
        self.told.append((record.status, record.code))


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (None, (200, None)),
        (StoreUnavailable(), (503, "store_unavailable")),
        (ValueError("A bug."), (500, "internal_error")),
    ],
)
async def test_sinks_are_told_what_the_client_is(
    failure: Exception | None, told: tuple[int, str | None]
) -> None:
    sink = Kept()
    writing = Meter([sink], Books(failure)).write(Record("req-1", "door", "ck_a", outcome=Gone()))
    assert writing is not None
    with nullcontext() if failure is None else pytest.raises(type(failure)):
        await writing
    assert sink.told == [told]


def test_what_is_spent_elsewhere_is_no_overhead() -> None:
    record = Record("req-1", "door", "ck_a")
    record.first_token(1000.0)
    assert record.overhead_seconds == 0
    record.first_token(0.0)
    assert record.overhead_seconds == record.first_token_seconds
