"""Admission, refusals and their texts; a lease gives back however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from limitkit import (
    Clock,
    CountedIn,
    ServiceView,
    Used,
    key,
    memory_service_view,
    model,
    open_service_view,
    told,
)

from causerie.access.limits import Lease, MemoryCounters, Rates, RateScope, Tokens
from causerie.errors import InvalidRequest, RateLimited, UpstreamFailed


@pytest.fixture
async def service_view(limits_in: CountedIn) -> AsyncIterator[ServiceView]:
    async with open_service_view(limits_in) as made:
        yield made


async def test_so_many_requests_a_minute_and_no_more(service_view: ServiceView) -> None:
    scope = key(requests_per_minute=3)
    for _ in range(3):
        await service_view.pass_through(scope)
        service_view.clock.pass_seconds(1)
    with pytest.raises(RateLimited) as refused:
        await service_view.pass_through(scope)
    failure = refused.value
    assert (failure.status, failure.code) == (429, "requests")
    assert failure.message.startswith("The key ck_a may have 3 requests per minute; none is left.")
    assert failure.metadata["scope"] == {"kind": "key", "name": "ck_a"}
    assert failure.metadata["limit"] == "requests"
    assert failure.headers["x-ratelimit-limit-requests"] == "3"
    assert failure.headers["x-ratelimit-remaining-requests"] == "0"
    wait = int(failure.headers["Retry-After"])
    assert 57 <= wait <= 58
    service_view.clock.pass_seconds(wait)
    await service_view.pass_through(scope)


async def test_nothing_is_taken_anywhere_where_one_scope_is_full(service_view: ServiceView) -> None:
    wide, narrow = key(requests_per_minute=2), model(requests_per_minute=1)
    await service_view.pass_through(narrow)
    for _ in range(5):
        with pytest.raises(RateLimited, match="The model m may have 1 request per minute"):
            await service_view.pass_through(wide, narrow)
    await service_view.pass_through(wide)
    await service_view.pass_through(wide)


async def test_tokens_are_reserved_then_settled_by_the_truth(service_view: ServiceView) -> None:
    scope = key(tokens_per_minute=1000)
    with await service_view.admit(scope, input=300, output=600) as first:
        assert told(first)["x-ratelimit-remaining-tokens"] == "100"
        with pytest.raises(RateLimited) as refused:
            await service_view.pass_through(scope, input=101)
        assert refused.value.code == "tokens"
        assert "900 are used or reserved, and this request may need 101" in refused.value.message
        first.settle(Used(250, 50))
    with await service_view.admit(scope, input=700) as second:
        assert told(second)["x-ratelimit-remaining-tokens"] == "0"
        second.settle(Used(700, 0))


async def test_more_than_foreseen_is_charged_when_it_is_known(service_view: ServiceView) -> None:
    scope = key(tokens_per_minute=1000)
    with await service_view.admit(scope, input=100, output=100) as lease:
        service_view.clock.pass_seconds(90)  # the reservation has left the window meanwhile
        lease.settle(Used(900, 300))
    with pytest.raises(RateLimited) as refused:
        await service_view.pass_through(scope, input=1)
    assert refused.value.metadata["used"] == 1000  # 800 and 200 more than foreseen
    service_view.clock.pass_seconds(61)
    await service_view.pass_through(scope, input=1000)


async def test_tokens_that_were_taken_back_count_as_they_were_generated(
    service_view: ServiceView,
) -> None:
    scope = key(tokens_per_minute=1000)
    with await service_view.admit(scope, input=100, output=100) as lease:
        lease.settle(Used(100, 100, discarded=700))
    with pytest.raises(RateLimited, match="900 are used"):
        await service_view.pass_through(scope, input=101)


async def test_input_and_output_have_limits_of_their_own(service_view: ServiceView) -> None:
    scope = key(input_tokens_per_minute=100, output_tokens_per_minute=50)
    await service_view.pass_through(scope, input=90, output=10)
    with pytest.raises(RateLimited, match="100 input tokens per minute"):
        await service_view.pass_through(scope, input=11)
    with pytest.raises(RateLimited, match="50 output tokens per minute"):
        await service_view.pass_through(scope, output=41)
    await service_view.pass_through(scope, input=10, output=40)


async def test_output_is_reserved_up_to_the_whole_limit(service_view: ServiceView) -> None:
    scope = key(tokens_per_minute=1000)
    with await service_view.admit(scope, input=200, output=1_000_000) as lease:
        assert told(lease)["x-ratelimit-remaining-tokens"] == "0"
        lease.settle(Used(200, 5))
    await service_view.pass_through(scope, input=795)


async def test_a_prompt_that_can_never_fit_is_refused_for_good(service_view: ServiceView) -> None:
    with pytest.raises(InvalidRequest, match="may have 50 tokens of input per minute") as refused:
        await service_view.pass_through(
            key(tokens_per_minute=80, input_tokens_per_minute=50), input=51
        )
    assert (refused.value.status, refused.value.param) == (400, "messages")
    assert "Retry-After" not in refused.value.headers


async def test_so_many_at_the_same_time(service_view: ServiceView) -> None:
    scope = key(concurrent=2)
    with await service_view.admit(scope), await service_view.admit(scope):
        with pytest.raises(RateLimited, match="2 requests at the same time; 2 are") as refused:
            await service_view.pass_through(scope)
        assert (refused.value.code, refused.value.headers["Retry-After"]) == ("concurrency", "1")
    await service_view.pass_through(scope)


@pytest.mark.parametrize("failure", [UpstreamFailed("gone"), ZeroDivisionError(), KeyError("k")])
async def test_a_failure_gives_places_and_tokens_back(
    service_view: ServiceView, failure: Exception
) -> None:
    scope = key(tokens_per_minute=100, concurrent=1)
    with pytest.raises(type(failure)), await service_view.admit(scope, input=100):
        raise failure
    await service_view.pass_through(scope, input=100)


@pytest.mark.parametrize("seconds", [0, 30, 61])
async def test_a_request_that_counts_elsewhere_takes_nothing(
    service_view: ServiceView, seconds: int
) -> None:
    scope = key(requests_per_minute=2, tokens_per_minute=100, concurrent=1)
    lease = await service_view.admit(scope, input=60, output=40)
    lease.spared = lambda failure: isinstance(failure, UpstreamFailed)
    with pytest.raises(UpstreamFailed), lease:
        lease.settle(Used(60, 40))
        service_view.clock.pass_seconds(seconds)
        raise UpstreamFailed("gone")
    for left in ("1", "0"):
        with await service_view.admit(scope, input=30, output=20) as lease:
            assert told(lease)["x-ratelimit-remaining-requests"] == left
            lease.settle(Used(30, 20))
    with pytest.raises(RateLimited):
        await service_view.admit(scope)


async def test_what_was_used_before_a_failure_counts(service_view: ServiceView) -> None:
    scope = key(tokens_per_minute=100)
    lease = await service_view.admit(scope, input=50, output=50)
    with pytest.raises(UpstreamFailed) as failure, lease:
        lease.settle(Used(50, 10))
        raise UpstreamFailed("broken off", headers={"Retry-After": "3"})
    assert failure.value.headers["x-ratelimit-remaining-tokens"] == "40"
    assert failure.value.headers["Retry-After"] == "3"
    await service_view.pass_through(scope, input=40)
    with pytest.raises(RateLimited):
        await service_view.pass_through(scope, input=1)


async def test_a_cancelled_request_gives_back(service_view: ServiceView) -> None:
    scope = key(tokens_per_minute=100, concurrent=1)
    inside = asyncio.Event()

    async def stay() -> None:
        with await service_view.admit(scope, input=100):
            inside.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(stay())
        await inside.wait()
        task.cancel()
    await service_view.pass_through(scope, input=100)


async def test_the_longest_wait_is_told(service_view: ServiceView) -> None:
    scope = key(requests_per_minute=1, concurrent=1)
    with await service_view.admit(scope):
        service_view.clock.pass_seconds(30)
        with pytest.raises(RateLimited) as refused:
            await service_view.pass_through(scope)
    assert refused.value.code == "requests"
    assert refused.value.headers["Retry-After"] == "30"


async def test_headers_tell_of_the_strictest_scope(service_view: ServiceView) -> None:
    scopes = (
        key(requests_per_minute=10, tokens_per_minute=50),
        model(requests_per_minute=4, output_tokens_per_minute=1000),
    )
    with await service_view.admit(*scopes, input=20, output=10) as lease:
        service_view.clock.pass_seconds(20)
        assert told(lease) == {
            "x-ratelimit-limit-requests": "4",
            "x-ratelimit-remaining-requests": "3",
            "x-ratelimit-reset-requests": "40.0s",
            "x-ratelimit-limit-tokens": "50",
            "x-ratelimit-remaining-tokens": "20",
            "x-ratelimit-reset-tokens": "40.0s",
        }


async def test_limits_that_are_not_set_are_not_told_nor_estimated() -> None:
    def never() -> Tokens:
        raise AssertionError

    limits = MemoryCounters()
    with await limits.take((), never) as lease:
        assert told(lease) == {}
    with await limits.take((key(requests_per_minute=1),), never) as lease:
        assert all(name.endswith("requests") for name in told(lease))


async def test_changed_limits_go_on_with_the_same_counts(service_view: ServiceView) -> None:
    for _ in range(3):
        await service_view.pass_through(key(requests_per_minute=3))
    await service_view.pass_through(key(requests_per_minute=4))
    with pytest.raises(RateLimited):
        await service_view.pass_through(key(requests_per_minute=2))


async def test_who_does_nothing_is_forgotten() -> None:
    service_view = memory_service_view()
    assert isinstance(service_view.limits, MemoryCounters)
    busy = key("busy", concurrent=1)
    with await service_view.admit(busy):
        for round in range(5):
            for number in range(1000):
                await service_view.pass_through(key(f"{round}-{number}", requests_per_minute=1))
            service_view.clock.pass_seconds(61)
        assert len(service_view.limits._windows_by_scope_id) <= 2048
        with pytest.raises(RateLimited):
            await service_view.pass_through(busy)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_is_no_limit_but_a_mistake(limit: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        RateScope("key", "ck_a", Rates(tokens_per_minute=limit))


async def test_a_store_that_is_asked_elsewhere_fits_the_same_seam() -> None:
    memory = MemoryCounters()

    class Distant:
        """Counters that answer only after a while, as a shared store does."""

        def take_now(self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> None:
            return None

        async def take(self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> Lease:
            await asyncio.sleep(0)
            return memory.take_now(scopes, estimate)

    service_view = ServiceView(Clock(), Distant())
    with await service_view.admit(key(concurrent=1)), pytest.raises(RateLimited):
        await service_view.admit(key(concurrent=1))
