"""Finding a target that answers, within one budget for a request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routingkit import (
    ASK,
    BROKEN,
    FULL,
    PROMPT,
    REPLY,
    Answer,
    Clock,
    Scripted,
    begun,
    in_turn,
    router,
    streamed,
    told,
)

from causerie.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    NotFound,
    Overloaded,
    ServiceError,
    UpstreamFailed,
)
from causerie.protocol.events import (
    Batch,
    Event,
    Finished,
    Partial,
    TextDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.request import ChatRequest
from causerie.routing.circuit_breaker import THRESHOLD
from causerie.routing.target_selector import RetryBudget
from causerie.routing.target_state import IMPOSSIBLE_USAGE


async def test_the_first_that_can_answers() -> None:
    broken = UpstreamFailed("It broke.")  # its class is told to the exception itself
    first, second, third = Scripted([broken]), Scripted(REPLY), Scripted(REPLY)
    way = router(first, second, third)
    async with begun(way.generate(in_turn(3), ASK)) as execution:
        said = await streamed(execution)
    assert said == [*REPLY, Usage(PROMPT, 7)]
    assert (execution.served_by, len(execution.tried), execution.continued) == ("t1", 2, 0)
    assert [attempt.failure for attempt in execution.tried] == ["invalid_reply", ""]
    assert third.asked == []
    assert (first.open, second.open) == (0, 0)


@pytest.mark.parametrize("late", [False, True], ids=["at entering", "before any content"])
async def test_nothing_is_passed_on_before_content(late: bool) -> None:
    first = Scripted([TextDelta(""), BROKEN] if late else [BROKEN])
    assert await told(router(first, Scripted(REPLY)), 2) == [*REPLY, Usage(PROMPT, 7)]


@pytest.mark.parametrize("failure", [InvalidRequest("No."), NotFound("No.")])
async def test_a_wrong_request_is_not_tried_elsewhere(failure: ServiceError) -> None:
    second = Scripted(REPLY)
    with pytest.raises(type(failure)):
        await told(router(Scripted([failure]), second), 2)
    assert second.asked == []


async def test_what_one_target_cannot_do_another_may() -> None:
    unable = InvalidRequest("No.", code="unsupported_parameter", param="top_k")
    assert await told(router(Scripted([unable]), Scripted(REPLY)), 2)
    with pytest.raises(InvalidRequest) as refused:
        await told(router(Scripted([unable]), Scripted([unable])), 2)
    assert refused.value.param == "top_k"
    for one in ([[BROKEN], [unable]], [[unable], [BROKEN]]):
        with pytest.raises(UpstreamFailed):  # it may be back soon, and can do it
            await told(router(*map(Scripted, one)), 2)


async def test_when_all_fail_the_last_failure_is_told_with_the_number_of_attempts() -> None:
    with pytest.raises(UpstreamFailed) as failure:
        await told(router(Scripted([BROKEN]), Scripted([UpstreamFailed("Too.")])), 2)
    assert "t1: Too. " in failure.value.message
    assert failure.value.metadata["attempts"] == 2


@pytest.mark.parametrize("waits", [(2, 60), (60, 2), (60, 2, 30)])
async def test_when_all_are_full_the_shortest_wait_is_told(waits: tuple[int, ...]) -> None:
    metadata = {"upstream_status": 429}
    full = [Overloaded("Full.", retry_after=wait, metadata=metadata) for wait in waits]
    with pytest.raises(Overloaded) as failure:
        await told(router(*(Scripted([one]) for one in full)), len(full))
    assert failure.value.headers["Retry-After"] == "2"


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (Overloaded("Full.", retry_after=60, metadata={"upstream_status": 429}), "20"),
        (Overloaded("Full.", retry_after=5, metadata={"upstream_status": 429}), "5"),
    ],
)
async def test_when_all_rest_the_one_that_is_back_first_is_told(
    last: ServiceError, said: str
) -> None:
    """Though only one of them is asked: it may have to rest longer then than another one."""
    made = router(Scripted([last]), Scripted(REPLY))
    for name, wait in (("t0", 10), ("t1", 20)):
        target_state = made.target_state(name)
        assert target_state is not None
        target_state.breaker.full(wait, "full")
    with pytest.raises(Overloaded) as failure:
        await told(made, 2)
    assert failure.value.headers["Retry-After"] == said


async def test_a_call_is_content_and_waits_for_no_end() -> None:
    """So it is passed on at once, and what breaks behind it breaks a reply that has begun."""
    target = Scripted([ToolCallStarted(0, "call_1", "look"), UpstreamFailed("No.")])
    async with begun(router(target).generate(in_turn(1), ASK)) as execution:
        assert execution.attempt is not None
        assert list(execution.attempt.first) == [ToolCallStarted(0, "call_1", "look")]


async def test_one_budget_for_all_attempts() -> None:
    targets = [Scripted([UpstreamFailed("No.")]) for _ in range(9)]
    with pytest.raises(UpstreamFailed):
        await told(router(*targets, budget=RetryBudget(attempts=3)), 9)
    assert sum(len(target.asked) for target in targets) == 3


async def test_leaving_early_frees_the_target() -> None:
    target = Scripted(REPLY)
    way = router(target)

    def leave(_: Batch) -> None:
        [status] = way.status()
        assert (target.open, status.in_flight) == (1, 1)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        async with begun(way.generate(in_turn(1), ASK)) as execution:
            await execution.stream(leave)
    [status] = way.status()
    assert (target.open, status.in_flight) == (0, 0)


async def test_what_we_send_away_ourselves_costs_no_attempt_and_moves_nothing() -> None:
    full = [Scripted([Overloaded("Full.")]) for _ in range(6)]
    way = router(*full, Scripted(REPLY), budget=RetryBudget(attempts=1))
    assert await told(way, 7) == [*REPLY, Usage(PROMPT, 7)]
    assert {status.state for status in way.status()} == {"up"}


async def test_no_attempt_begins_after_the_time() -> None:
    clock = Clock()

    class Hanging(Scripted):
        def generate(
            self, request: ChatRequest, partial: Partial | None = None
        ) -> AbstractAsyncContextManager[Answer]:
            clock.now += 20
            return super().generate(request, partial)

    targets = [Hanging([BROKEN]) for _ in range(4)]
    way = router(*targets, clock=clock, budget=RetryBudget(attempts=9, seconds=30))
    with pytest.raises(UpstreamFailed):
        await told(way, 4)
    assert [len(target.asked) for target in targets] == [1, 1, 0, 0]


async def test_a_target_with_a_longer_context_may_answer() -> None:
    short = ContextLengthExceeded(prompt_tokens=9, max_tokens=None, context_length=8)
    assert await told(router(Scripted([short]), Scripted(REPLY)), 2)
    with pytest.raises(ContextLengthExceeded):
        await told(router(Scripted([short]), Scripted([short])), 2)


@given(
    st.lists(st.sampled_from([BROKEN, FULL, Overloaded("No."), None]), min_size=1, max_size=9),
    st.integers(1, 5),
)
def test_never_more_requests_than_the_budget(
    failures: list[ServiceError | None], attempts: int
) -> None:
    targets = [Scripted(REPLY if one is None else [one]) for one in failures]
    way = router(*targets, budget=RetryBudget(attempts=attempts))
    sent_before = 0
    answers = False
    for one in failures:
        if sent_before == attempts:
            break
        if one is None:
            answers = True
            break
        sent_before += one.code != "queue_full"
    if answers:
        assert asyncio.run(told(way, len(failures)))[-1] == Usage(PROMPT, 7)
    else:
        with pytest.raises(ServiceError):
            asyncio.run(told(way, len(failures)))
    sent = [one for one, target in zip(failures, targets, strict=True) if target.asked]
    assert sum(one is None or one.code != "queue_full" for one in sent) <= attempts
    assert all(target.open == 0 for target in targets)
    assert all(status.in_flight == 0 for status in way.status())


async def test_targets_that_stay_keep_what_was_learnt_of_them() -> None:
    bad, good = Scripted([BROKEN]), Scripted(REPLY)
    way = router(bad, good)
    for _ in range(THRESHOLD):
        await told(way, 2)
    async with begun(way.generate(in_turn(2), ASK)):
        way.replace({"t0": bad, "t1": good, "t2": Scripted(REPLY)}, {})
        assert [(one.name, one.state, one.in_flight) for one in way.status()] == [
            ("t0", "down", 0),
            ("t1", "up", 1),
            ("t2", "up", 0),
        ]
        way.replace({"t0": Scripted(REPLY)}, {})
        assert [(one.name, one.state) for one in way.status()] == [("t0", "up")]


@pytest.mark.parametrize("arriving", [False, True])
async def test_who_takes_slowly_is_waited_for(arriving: bool) -> None:
    taken: list[Event] = []
    room = asyncio.Event()

    def take(batch: Batch) -> Awaitable[object] | None:
        taken.extend(batch)
        return None if len(taken) != slow else room.wait()

    slow = 2 if arriving else 1
    way = router(Scripted(REPLY, arriving=arriving))
    async with begun(way.generate(in_turn(1), ASK)) as execution, asyncio.TaskGroup() as group:
        pouring = group.create_task(execution.stream(take))
        for _ in range(20):
            await asyncio.sleep(0)
        assert (taken, pouring.done()) == ([*REPLY[:slow]], False)
        room.set()
        await pouring
    assert taken == [*REPLY, Usage(PROMPT, 7)]


async def test_impossible_usage_is_counted_at_the_target() -> None:
    told = Usage(PROMPT, 1, estimated=True, impossible=True)
    way = router(Scripted([TextDelta("a"), Finished("stop"), told]))
    async with begun(way.generate(in_turn(1), ASK)) as execution:
        assert (await streamed(execution))[-1] == told
    assert way.target_state("t0").failures[IMPOSSIBLE_USAGE] == 1
