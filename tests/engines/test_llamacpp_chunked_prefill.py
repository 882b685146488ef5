"""How much of a long prompt the engine is given at once."""

from __future__ import annotations

import pytest

from causerie.engines.llamacpp.chunked_prefill import ChunkedPrefill

FAST, SLOW = 0.001, 0.005  # seconds for each token
BATCH = 64


def prefill(token_seconds: float = SLOW, *, enabled: bool = True) -> ChunkedPrefill:
    return ChunkedPrefill(BATCH, 8192, token_seconds, enabled=enabled)


@pytest.mark.parametrize(
    ("token_seconds", "alone", "streaming"),
    [
        (0.0001, 40_000, 40_000),  # a batch takes 6 ms: streams go on between batches
        (FAST, 3968, 3968),
        (0.0025, 1600, 48),
        (SLOW, 768, 24),
        (0.02, 192, 8),
        (1.0, 64, 8),
    ],
)
def test_chunks_are_as_small_as_streams_need_and_no_smaller(
    token_seconds: float, alone: int, streaming: int
) -> None:
    asked = prefill(token_seconds)
    assert asked.chunk(streaming=False) == alone
    assert asked.chunk(streaming=True) == streaming


def test_the_first_step_replaces_what_was_expected() -> None:
    seen = prefill(FAST)
    seen.observe(64, 64 * SLOW)
    assert seen.token_seconds == pytest.approx(SLOW)


def test_chunks_follow_the_speed_and_sooner_where_it_falls() -> None:
    seen = prefill(FAST)
    seen.observe(64, 64 * FAST)
    before = seen.chunk(streaming=True)
    for _ in range(3):  # a foreign program begins to compute
        seen.observe(64, 64 * SLOW)
    assert seen.chunk(streaming=True) <= 32 < before
    slowed = seen.token_seconds
    seen.observe(64, 64 * FAST)
    assert seen.token_seconds > (slowed + FAST) / 2
    for _ in range(20):
        seen.observe(64, 64 * FAST)
    assert seen.chunk(streaming=True) > BATCH


def test_chunks_settle_where_a_step_takes_as_long_as_it_may() -> None:
    seen = prefill(FAST)
    for _ in range(20):  # each step takes 25 ms for the streams, and 4 ms for each token of it
        tokens = seen.chunk(streaming=True)
        seen.observe(min(tokens, BATCH), 0.025 + 0.004 * min(tokens, BATCH))
    assert 0.1 <= 0.025 + 0.004 * seen.chunk(streaming=True) <= 0.125


@pytest.mark.parametrize(("tokens", "seconds"), [(0, 1.0), (1, 1.0), (7, 1.0), (64, 0.0)])
def test_steps_that_tell_nothing_do_not_count(tokens: int, seconds: float) -> None:
    seen = prefill()
    seen.observe(tokens, seconds)
    assert seen.token_seconds == SLOW


def test_only_long_prompts_that_fit_are_read_in_chunks() -> None:
    assert prefill().is_long(0, 4000)
    assert not prefill().is_long(3500, 4000)  # nearly all is cached
    assert not prefill(FAST).is_long(0, 2000)
    assert not prefill().is_long(0, 8192)  # the engine refuses it at once
    assert not prefill(enabled=False).is_long(0, 4000)
