"""Failures of engines in the words of the interface."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from causerie.chat.generation import engine_failures
from causerie.engines.base import EngineRefused
from causerie.errors import UpstreamFailed


def test_an_engine_that_refuses_a_request_is_not_taken_for_one_that_ended() -> None:
    with (
        capture_logs() as lines,
        pytest.raises(UpstreamFailed, match="does not take this request") as raised,
        engine_failures(started=True),
    ):
        raise EngineRefused("the engine answered 400: not today")
    # Below 500: the breaker of the target does not move.
    assert raised.value.error().metadata == {"upstream_status": 400, "retryable": False}
    assert [(line["event"], line["why"]) for line in lines] == [
        ("engine refused a request", "the engine answered 400: not today")
    ]
