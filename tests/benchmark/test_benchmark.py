"""Counts of a benchmark: tokens of a run, its times, and the load it makes."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from faultkit import Fault, Reply, upstream
from hypothesis import given
from hypothesis import strategies as st

from causerie.benchmark.figures import Spread, figures
from causerie.benchmark.load import BenchLoad, BenchProgress, BenchPrompt, prompt
from causerie.benchmark.sample import Sample
from causerie.errors import UpstreamFailed
from causerie.providers.dialects import GENERIC
from causerie.providers.provider import Provider
from causerie.providers.target import ProviderTarget
from causerie.transport.client import HttpClient

TIMES = st.lists(st.floats(0, 1000), min_size=3, max_size=3).map(sorted)


@given(TIMES, st.integers(0, 5000), st.lists(st.floats(-10, 1100)))
def test_tokens_come_from_the_first_to_the_end(
    times: list[float], completion: int, looks: list[float]
) -> None:
    began, first, ended = times
    sample = Sample(began, ended, first, 10, completion)
    written = [sample.written_by(when) for when in sorted(looks)]
    assert all(0 <= one <= completion for one in written)
    assert all(before <= after + 1e-6 for before, after in pairwise(written))
    assert sample.written_by(ended) == completion


def test_what_is_said_after_a_stretch_does_not_count() -> None:
    samples = [
        Sample(0.0, 4.0, 1.0, 10, 31),
        Sample(4.0, 12.0, 6.0, 12, 61),  # of 60 tokens after the first, two thirds until 10
        Sample(9.0, 13.0, 11.0, 14, 50),
        Sample(5.0, 5.5, failure="503 overloaded"),
    ]
    found = figures(samples, 2, 0.0, 10.0, 0.25)
    assert found.tokens_a_second == pytest.approx((31 + 41) / 10)
    assert found.replies_a_second == pytest.approx(0.1)
    assert (found.replies, found.failed) == (3, {"503 overloaded": 1})
    assert (found.prompt, found.completion) == (12, 50)
    assert found.first_token == Spread(2.0, 2.0, 2.0)
    assert found.each_token is not None
    assert found.each_token.p50 == pytest.approx(0.1)


def test_nothing_is_made_of_nothing() -> None:
    found = figures([], 1, 0.0, 1.0, 0.0)
    assert (found.tokens_a_second, found.first_token, found.each_token) == (0, None, None)


def test_prompts_are_unlike_each_other_and_as_long() -> None:
    asked = [prompt(number, 200) for number in range(50)]
    assert len({one[:40] for one in asked}) == len(asked)
    [words] = {len(one.split()) for one in asked}
    assert 190 < words < 210
    assert prompt(7, 200) == prompt(7, 200)
    assert prompt(1, 1)


async def load_of(
    script: Fault | Reply, streams: int, *, seconds: float = 0.4, grace: float = 5.0
) -> tuple[BenchProgress, int]:
    """Return the sample of a run, and the number of requests."""
    async with upstream(script) as there:
        client = HttpClient(there.base_url)
        provider = Provider("e", client, GENERIC)
        try:
            load = BenchLoad(
                ProviderTarget(provider, "m"), BenchPrompt(seconds=seconds, grace_seconds=grace)
            )
            seen = BenchProgress()
            found = await load.run(streams, seen)
        finally:
            await client.close()
        assert found.replies + sum(found.failed.values()) == len(seen.samples)
        assert len({request.body["messages"][0]["content"] for request in there.requests}) == len(
            there.requests
        )
        return seen, len(there.requests)


async def test_streams_ask_again_until_the_stretch_is_over() -> None:
    seen, asked = await load_of(Reply("One two three.", pause=0.01), 3)
    assert asked == len(seen.samples) > 3
    assert seen.failures == 0
    for one in seen.samples:
        assert one.completion == 3
        assert one.waited is not None
        assert one.waited <= one.ended - one.began


async def test_a_last_reply_may_come_to_its_end() -> None:
    seen, asked = await load_of(Reply("x" * 50, pause=0.05), 2, seconds=0.1)
    assert (asked, seen.failures) == (2, 0)


async def test_replies_without_end_are_given_up() -> None:
    async with asyncio.timeout(60):
        seen, _ = await load_of(Fault.ENDLESS, 2, seconds=0.1, grace=0.3)
    assert [one.failure for one in seen.samples] == ["had not ended when it was given up"] * 2


async def test_who_refuses_is_not_asked_without_pause() -> None:
    seen, asked = await load_of(Fault.TOO_MANY, 2)
    assert asked == 2
    assert {one.failure for one in seen.samples} == {"status 429"}


async def test_the_first_reply_fails_as_it_fails() -> None:
    async with upstream(Fault.SERVER_ERROR) as there:
        client = HttpClient(there.base_url)
        try:
            with pytest.raises(UpstreamFailed):
                await BenchLoad(
                    ProviderTarget(Provider("e", client, GENERIC), "m"), BenchPrompt()
                ).once()
        finally:
            await client.close()
