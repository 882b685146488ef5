"""Targets in order, breakers, one budget for a request, and replies that go on elsewhere."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.errors import InvalidRequest, NotFound, Overloaded, ServiceError, UpstreamFailed
from causerie.protocol.candidate import Candidate
from causerie.protocol.events import (
    Batch,
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.partial import Partial, Trail
from causerie.protocol.request import ChatRequest, Message
from causerie.routing.breaker import LONGEST_WAIT_SECONDS, THRESHOLD, Breaker
from causerie.routing.health import Check, Health, examine
from causerie.routing.order import order
from causerie.routing.router import Router
from causerie.routing.search import RetryBudget
from causerie.routing.seat import Seat

ASK = ChatRequest(model="m", messages=(Message("user", "Hi"),))
REPLY: tuple[Event, ...] = (
    ReasoningDelta("Let me "),
    ReasoningDelta("think."),
    TextDelta("The "),
    TextDelta("answer."),
    ToolCallStarted(0, "call_1", "look"),
    ToolCallDelta(0, '{"at":'),
    ToolCallDelta(0, " 1}"),
    Finished("tool_calls"),
)
PROMPT = 10
BROKEN = UpstreamFailed("It broke.")
FULL = Overloaded("Full.", code="no_endpoint", retry_after=7, metadata={"upstream_status": 429})


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def middle() -> float:
    return 0.5


@dataclass
class Answer:
    events: AsyncIterator[Batch]
    counts: list[int]
    fingerprint: str = "scripted"
    changes: Sequence[str] = ()

    def usage(self) -> Usage:
        return Usage(PROMPT, self.counts[0])

    def trail(self) -> Trail | None:
        return None


@dataclass
class Scripted:
    """Says ``script``, an event a batch; what is an exception is raised, at entering where first.

    With a partial it leaves out as many events as that one counts.
    """

    script: Sequence[Event | ServiceError]
    able: bool = True
    open: int = 0
    asked: list[Partial | None] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def generate(
        self, request: ChatRequest, partial: Partial | None = None
    ) -> AbstractAsyncContextManager[Answer]:
        return self._answer(partial)

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        return self.able

    @asynccontextmanager
    async def _answer(self, partial: Partial | None) -> AsyncIterator[Answer]:
        self.asked.append(partial)
        self.begun.set()
        self.open += 1
        try:
            if self.script and isinstance(self.script[0], ServiceError):
                raise self.script[0]
            counts = [0]
            start = partial.completion if partial is not None else 0
            yield Answer(self._events(start, counts), counts)
        finally:
            self.open -= 1

    async def _events(self, start: int, counts: list[int]) -> AsyncIterator[Batch]:
        for number, step in enumerate(self.script):
            if number < start and not isinstance(step, ServiceError):
                continue
            await asyncio.sleep(0)
            if isinstance(step, ServiceError):
                raise step
            if not isinstance(step, Finished):
                counts[0] += 1
            yield [step]
        yield [Usage(PROMPT, counts[0])]


def router(*targets: Scripted, clock: Callable[[], float] | None = None, **more: object) -> Router:
    named = {f"t{number}": target for number, target in enumerate(targets)}
    return Router(named, clock=clock or Clock(), chance=middle, **more)


def in_turn(count: int) -> list[Candidate]:
    return [Candidate(f"t{number}", priority=number) for number in range(count)]


async def told(way: Router, count: int, request: ChatRequest = ASK) -> list[Event]:
    async with way.generate(in_turn(count), request) as journey:
        return [event async for batch in journey for event in batch]


async def test_the_first_that_can_answers() -> None:
    first, second, third = Scripted([BROKEN]), Scripted(REPLY), Scripted(REPLY)
    way = router(first, second, third)
    async with way.generate(in_turn(3), ASK) as journey:
        said = [event async for batch in journey for event in batch]
    assert said == [*REPLY, Usage(PROMPT, 7)]
    assert (journey.served_by, journey.attempts, journey.continued) == ("t1", 2, 0)
    assert [attempt.failure for attempt in journey.tried] == ["bad_gateway", ""]
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
    assert failure.value.message == "Too."
    assert failure.value.metadata["attempts"] == 2


async def test_one_budget_for_all_attempts() -> None:
    targets = [Scripted([UpstreamFailed("No.")]) for _ in range(9)]
    with pytest.raises(UpstreamFailed):
        await told(router(*targets, budget=RetryBudget(attempts=3)), 9)
    assert sum(len(target.asked) for target in targets) == 3


async def test_leaving_early_frees_the_target() -> None:
    target = Scripted(REPLY)
    way = router(target)
    async with way.generate(in_turn(1), ASK) as journey:
        await anext(journey)
        [status] = way.status()
        assert (target.open, status.in_flight) == (1, 1)
    [status] = way.status()
    assert (target.open, status.in_flight) == (0, 0)


# Breakers.


async def test_a_target_that_fails_is_left_alone_then_tried_by_one() -> None:
    clock = Clock()
    bad, good = Scripted([BROKEN]), Scripted(REPLY)
    way = router(bad, good, clock=clock)
    for _ in range(THRESHOLD + 4):
        await told(way, 2)
    assert len(bad.asked) == THRESHOLD
    assert way.status()[0].state == "down"
    clock.now += LONGEST_WAIT_SECONDS
    await told(way, 2)
    assert len(bad.asked) == THRESHOLD + 1
    await told(way, 2)
    assert len(bad.asked) == THRESHOLD + 1  # longer each time
    bad.script = REPLY
    clock.now += LONGEST_WAIT_SECONDS
    await told(way, 2)
    await told(way, 2)
    assert way.status()[0].state == "up"
    assert len(bad.asked) == THRESHOLD + 3


async def test_while_one_tries_a_broken_target_others_go_elsewhere() -> None:
    clock = Clock()
    bad, good = Scripted([BROKEN]), Scripted(REPLY)
    way = router(bad, good, clock=clock)
    for _ in range(THRESHOLD):
        await told(way, 2)
    clock.now += LONGEST_WAIT_SECONDS
    bad.script = REPLY
    asked = len(bad.asked)
    trial = way.generate(in_turn(2), ASK)
    way._seats["t0"].breaker.begin()  # the trial is under way
    await told(way, 2)
    assert len(bad.asked) == asked
    del trial


async def test_a_full_target_is_not_broken() -> None:
    clock = Clock()
    full, good = Scripted([FULL]), Scripted(REPLY)
    way = router(full, good, clock=clock)
    for _ in range(5):
        await told(way, 2)
    assert len(full.asked) == 1
    assert way.status()[0].state == "full"
    assert way.status()[0].wait_seconds == 7
    clock.now += 7
    full.script = REPLY
    await told(way, 2)
    assert way.status()[0].state == "up"


async def test_refusals_of_a_request_never_move_the_breaker() -> None:
    way = router(Scripted([InvalidRequest("No.")]))
    for _ in range(THRESHOLD * 2):
        with pytest.raises(InvalidRequest):
            await told(way, 1)
    assert way.status()[0].state == "up"


async def test_when_all_are_down_the_least_bad_is_tried_and_then_503() -> None:
    clock = Clock()
    targets = [Scripted([UpstreamFailed("No.")]) for _ in range(3)]
    way = router(*targets, clock=clock)
    for _ in range(THRESHOLD):
        with pytest.raises(ServiceError):
            await told(way, 3)
    before = [len(target.asked) for target in targets]
    with pytest.raises(Overloaded) as refused:
        await told(way, 3)
    assert refused.value.code == "no_endpoint"
    assert int(refused.value.headers["Retry-After"]) >= 1
    assert sum(len(target.asked) for target in targets) == sum(before) + 1


@given(st.lists(st.sampled_from(["ok", "fail", "full", "wait"]), max_size=60))
def test_a_breaker_always_lets_somebody_through_again(steps: list[str]) -> None:
    clock = Clock()
    breaker = Breaker(clock, middle)
    for step in steps:
        match step:
            case "ok":
                breaker.succeeded()
                assert breaker.state() == "up"
            case "fail":
                breaker.begin()
                breaker.failed("x")
            case "full":
                breaker.full(5, "x")
            case "wait":
                clock.now += 1
    for _ in range(2):  # one that was down may be full after that
        assert 0 <= breaker.wait() <= LONGEST_WAIT_SECONDS
        clock.now += breaker.wait()
    assert breaker.state() == "up"


# Order.


def seats(*loads: int) -> dict[str, Seat]:
    made = {}
    for number, load in enumerate(loads):
        seat = Seat(f"t{number}", Scripted(REPLY), None, Breaker(Clock(), middle))
        seat.in_flight = load
        made[seat.name] = seat
    return made


def group(*weights: float) -> list[Candidate]:
    return [Candidate(f"t{number}", weight=weight) for number, weight in enumerate(weights)]


def talk(number: int) -> ChatRequest:
    return ChatRequest(model="m", messages=(Message("user", f"Question {number}"),))


def test_a_conversation_stays_where_it_began() -> None:
    there = seats(0, 0, 0)
    long = ChatRequest(
        model="m",
        messages=(Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "More")),
    )
    first = order(group(1, 1, 1), there, ASK, middle)[0]
    assert order(group(1, 1, 1), there, long, middle)[0] is first


def test_a_session_stays_whatever_is_said() -> None:
    there = seats(0, 0, 0, 0)
    asked = [
        ChatRequest(model="m", messages=(Message("user", str(n)),), session_id="s")
        for n in range(20)
    ]
    assert len({order(group(1, 1, 1, 1), there, one, middle)[0].name for one in asked}) == 1


def test_conversations_are_spread_by_weight() -> None:
    there = seats(0, 0)
    found = Counter(
        order(group(3, 1), there, talk(number), middle)[0].name for number in range(4000)
    )
    assert 0.70 < found["t0"] / 4000 < 0.80


@given(st.lists(st.integers(0, 50), min_size=2, max_size=6), st.integers())
def test_staying_never_overloads(loads: list[int], number: int) -> None:
    there = seats(*loads)
    chosen = order(group(*[1.0] * len(loads)), there, talk(number), middle)[0]
    assert chosen.in_flight <= 1.25 * (sum(loads) + 1) / len(loads)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=2, max_size=8))
def test_one_that_is_up_always_comes_before_one_that_is_down(
    kinds: list[tuple[int, bool]],
) -> None:
    there = seats(*[0] * len(kinds))
    candidates = []
    for number, (priority, up) in enumerate(kinds):
        candidates.append(Candidate(f"t{number}", priority))
        if not up:
            for _ in range(THRESHOLD):
                there[f"t{number}"].breaker.failed("x")
    found = [int(seat.name[1:]) for seat in order(candidates, there, ASK, middle)]
    ups = [kinds[number][1] for number in found]
    assert ups == sorted(ups, reverse=True)
    assert ups.count(False) <= 1
    assert ups.count(True) == sum(up for _, up in kinds)
    groups = [kinds[number][0] for number in found if kinds[number][1]]
    assert groups == sorted(groups)


# Replies that break.


def put_together(events: Sequence[Event]) -> list[Event]:
    """The same reply, however it was cut into pieces."""
    return [event for event in events if not isinstance(event, Usage)]


def breaks(after: int) -> list[Event | ServiceError]:
    return [*REPLY[:after], BROKEN]


@pytest.mark.parametrize("after", range(1, len(REPLY)))
async def test_a_reply_that_breaks_goes_on_elsewhere(after: int) -> None:
    first, second = Scripted(breaks(after)), Scripted(REPLY)
    way = router(first, second)
    async with way.generate(in_turn(2), ASK) as journey:
        said = [event async for batch in journey for event in batch]
        assert (first.open, second.open) == (0, 1)
    assert said == [*REPLY, Usage(PROMPT, 7)]
    assert (journey.served_by, journey.continued, journey.attempts) == ("t1", 1, 2)
    assert journey.usage() == Usage(PROMPT, 7)
    [partial] = second.asked
    assert partial is not None
    written = "".join(event.text for event in REPLY[:after] if isinstance(event, TextDelta))
    assert partial.text == written


@given(st.lists(st.integers(1, len(REPLY) - 1), min_size=1, max_size=3))
def test_however_often_it_breaks_the_reply_is_whole(cuts: list[int]) -> None:
    targets = [Scripted(breaks(cut)) for cut in cuts]
    said = asyncio.run(told(router(*targets, Scripted(REPLY)), len(targets) + 1))
    assert put_together(said) == list(REPLY)
    assert said[-1] == Usage(PROMPT, 7)
    assert all(target.open == 0 for target in targets)


async def test_only_the_counts_were_missing() -> None:
    first, second = Scripted([*REPLY, BROKEN]), Scripted(REPLY)
    assert await told(router(first, second), 2) == [*REPLY, Usage(PROMPT, 7)]
    assert second.asked == []


async def test_where_nobody_can_go_on_the_failure_is_told() -> None:
    way = router(Scripted(breaks(3)), Scripted(REPLY, able=False))
    said: list[Event] = []
    with pytest.raises(UpstreamFailed, match="It broke"):
        async with way.generate(in_turn(2), ASK) as journey:
            async for batch in journey:
                said += batch
    assert said == list(REPLY[:3])
    assert journey.usage() == Usage(PROMPT, 3)


async def test_several_choices_are_not_continued() -> None:
    two = ChatRequest(model="m", messages=ASK.messages, n=2)
    second = Scripted(REPLY)
    with pytest.raises(UpstreamFailed):
        await told(router(Scripted(breaks(3)), second), 2, two)
    assert second.asked == []


async def test_calls_keep_their_names_in_what_is_continued() -> None:
    second = Scripted(REPLY)
    await told(router(Scripted(breaks(6)), second), 2)
    [partial] = second.asked
    assert partial is not None
    [call] = partial.calls
    assert (call.id, call.name, call.arguments) == ("call_1", "look", '{"at":')


# Slow targets.


@dataclass
class Slow(Scripted):
    """Says nothing before ``gate``."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def _events(self, start: int, counts: list[int]) -> AsyncIterator[Batch]:
        await self.gate.wait()
        async for batch in super()._events(start, counts):
            yield batch


async def hedged(way: Router, count: int) -> tuple[list[Event], str]:
    async with way.generate(in_turn(count), ASK, 0.0) as journey:
        return [event async for batch in journey for event in batch], journey.served_by


async def test_where_the_first_is_slow_a_second_is_asked_and_the_first_is_left() -> None:
    slow, quick = Slow(REPLY), Scripted(REPLY)
    way = router(slow, quick)
    said, served_by = await hedged(way, 2)
    assert said == [*REPLY, Usage(PROMPT, 7)]
    assert served_by == "t1"
    assert (slow.open, quick.open) == (0, 0)
    assert [status.in_flight for status in way.status()] == [0, 0]
    assert way.status()[0].state == "up"


async def test_if_the_second_fails_the_first_is_waited_for() -> None:
    slow, bad = Slow(REPLY), Scripted([BROKEN])
    way = router(slow, bad)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(hedged(way, 2))
        await bad.begun.wait()
        slow.gate.set()
    assert asking.result()[1] == "t0"


async def test_second_requests_are_a_bounded_share() -> None:
    quick = Scripted(REPLY)
    slow = Slow(REPLY)
    way = router(slow, quick)
    served = []
    for _ in range(2):
        served.append((await hedged(way, 2))[1])
    assert served == ["t1", "t1"]
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(hedged(way, 2))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not asking.done()  # the share is used up: the first is waited for
        slow.gate.set()
    assert asking.result()[1] == "t0"


async def test_leaving_while_two_are_asked_frees_both() -> None:
    slow, other = Slow(REPLY), Slow(REPLY)
    way = router(slow, other)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(hedged(way, 2))
        await other.begun.wait()
        asking.cancel()
    assert (slow.open, other.open) == (0, 0)
    assert [status.in_flight for status in way.status()] == [0, 0]


# Checks.


async def test_checks_find_what_is_gone_and_what_is_back() -> None:
    clock = Clock()
    way = router(Scripted(REPLY), Scripted(REPLY), clock=clock)
    there = [True]

    async def ask() -> None:
        if not there[0]:
            raise UpstreamFailed("Gone.")

    check = Check(ask, 1.0, ["t0"])
    seat = way.seat("t0")
    assert seat is not None
    there_was = there[0] = False
    for _ in range(THRESHOLD):
        there_was = await examine(check, [seat], was_there=there_was)
    assert [status.state for status in way.status()] == ["down", "up"]
    there[0] = True
    there_was = await examine(check, [seat], was_there=there_was)
    assert way.status()[0].state == "up"  # one request may find out
    assert way.status()[0].failures == THRESHOLD


async def test_checks_run_by_themselves_and_end_with_their_block() -> None:
    way = router(Scripted(REPLY))
    asked = asyncio.Event()

    async def ask() -> None:
        asked.set()

    way.seat("t0")
    async with Health(way.seat, [Check(ask, 0.001, ["t0"])]):
        async with asyncio.timeout(10):
            await asked.wait()
    assert len(asyncio.all_tasks()) == 1


async def test_where_requests_are_answered_nothing_is_asked() -> None:
    way = router(Scripted(REPLY))
    asked = 0

    async def ask() -> None:
        nonlocal asked
        asked += 1

    async with Health(way.seat, [Check(ask, 0.002, ["t0"])]):
        for _ in range(10):
            await told(way, 1)
            await asyncio.sleep(0.002)
    assert asked <= 2
