"""How much of a long prompt the engine is given at once."""

from __future__ import annotations

from casekit import each_of

from causerie.engines.llamacpp.client import ChunkedPrefill

FAST, SLOW = 0.001, 0.005  # seconds for each token
BATCH = 64


def prefill(token_seconds: float = SLOW, *, enabled: bool = True) -> ChunkedPrefill:
    return ChunkedPrefill(BATCH, 8192, token_seconds, enabled=enabled)


@each_of(
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
    assert asked.chunk(8, streaming=False) == alone
    assert asked.chunk(8, streaming=True) == streaming


def test_chunks_follow_the_speed_and_sooner_where_it_falls() -> None:
    seen = prefill(FAST)
    seen.speed.observe(64, 64 * FAST)
    before = seen.chunk(8, streaming=True)
    for _ in range(3):  # a foreign program begins to compute
        seen.speed.observe(64, 64 * SLOW)
    assert seen.chunk(8, streaming=True) <= 32 < before
    for _ in range(20):
        seen.speed.observe(64, 64 * FAST)
    assert seen.chunk(8, streaming=True) > BATCH


def test_chunks_settle_where_a_step_takes_as_long_as_it_may() -> None:
    seen = prefill(FAST)
    for _ in range(20):  # each step takes 25 ms for the streams, and 4 ms for each token of it
        tokens = seen.chunk(8, streaming=True)
        seen.speed.observe(min(tokens, BATCH), 0.025 + 0.004 * min(tokens, BATCH))
    assert 0.1 <= 0.025 + 0.004 * seen.chunk(8, streaming=True) <= 0.125


def least(
    asked: ChunkedPrefill, total: int, read: int = 0, *, streaming: bool = False
) -> int | None:
    return asked.least_chunk(read, total, streaming=streaming)


def test_long_prompts_that_fit_are_read_in_chunks() -> None:
    assert least(prefill(), 4000) == least(prefill(), 4000, streaming=True) == 8
    assert least(prefill(), 4000, 3500) is None  # nearly all is cached
    assert least(prefill(FAST), 2000) is None
    assert least(prefill(), 8192) is None  # the engine refuses it at once
    assert least(prefill(enabled=False), 4000, streaming=True) is None


def test_a_shorter_prompt_is_read_in_chunks_where_a_stream_would_wait_too_long() -> None:
    large = ChunkedPrefill(512, 8192, FAST)  # a batch takes half a second
    assert least(large, 1000) is None
    assert least(large, 1000, streaming=True) == 64
    assert least(large, 200, streaming=True) is None  # a fifth of a second
    assert large.chunk(64, streaming=True) == 120
    slow = ChunkedPrefill(512, 8192, 0.0029)
    assert least(slow, 1000, streaming=True) == 64
    assert slow.chunk(64, streaming=True) == 64  # fewer would cost more than they are worth
    assert least(ChunkedPrefill(512, 8192, 0.0002), 1000, streaming=True) is None
    assert least(prefill(), 500, streaming=True) is None  # chunks would be as large as its batches
