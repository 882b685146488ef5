"""Why a request ended as it did, without what it said."""

from __future__ import annotations

import pytest

from causerie.errors import (
    InvalidRequest,
    OverBudget,
    RateLimited,
    ServiceError,
    UpstreamFailed,
)
from causerie.metering.meter import Record


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
