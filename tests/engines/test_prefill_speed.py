"""The speed at which an engine reads prompts."""

from __future__ import annotations

import pytest

from causerie.engines.prefill import PrefillSpeed

FAST, SLOW = 0.001, 0.005


def test_the_first_step_replaces_what_was_expected() -> None:
    speed = PrefillSpeed(FAST)
    speed.observe(64, 64 * SLOW)
    assert speed.token_seconds == pytest.approx(SLOW)
    assert speed.fitting(0.126) == 25


def test_slower_steps_count_more_than_faster_ones() -> None:
    speed = PrefillSpeed(FAST)
    speed.observe(64, 64 * FAST)
    speed.observe(64, 64 * SLOW)
    assert speed.token_seconds == pytest.approx((FAST + SLOW) / 2)
    before = speed.token_seconds
    speed.observe(64, 64 * FAST)
    assert speed.token_seconds == pytest.approx(before + (FAST - before) / 4)


@pytest.mark.parametrize(("tokens", "seconds"), [(0, 1.0), (1, 1.0), (7, 1.0), (64, 0.0)])
def test_steps_that_tell_nothing_do_not_count(tokens: int, seconds: float) -> None:
    speed = PrefillSpeed(SLOW)
    speed.observe(tokens, seconds)
    assert speed.token_seconds == SLOW
