"""Replies that break off and go on elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from casekit import each_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from routingkit import (
    ASK,
    BROKEN,
    PROMPT,
    REPLY,
    Clock,
    Scripted,
    begun,
    in_turn,
    router,
    streamed,
    told,
)

from causerie.errors import InvalidRequest, Overloaded, ServiceError, UpstreamFailed
from causerie.protocol.events import (
    Batch,
    Event,
    Finished,
    Partial,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.request import ChatRequest, Thinking
from causerie.routing.circuit_breaker import THRESHOLD
from causerie.routing.router import LONG, MANY, SentPrefix, added
from causerie.routing.target_selector import RetryBudget


def put_together(events: Sequence[Event]) -> list[Event]:
    """The same reply, however it was cut into pieces."""
    return [event for event in events if not isinstance(event, Usage)]


def breaks(after: int) -> list[Event | ServiceError]:
    return [*REPLY[:after], BROKEN]


@each_of("arriving", [False, True])
@each_of("after", range(1, len(REPLY)))
async def test_a_reply_that_breaks_goes_on_elsewhere(after: int, arriving: bool) -> None:
    first, second = Scripted(breaks(after), arriving=arriving), Scripted(REPLY, arriving=arriving)
    way = router(first, second)
    async with begun(way.generate(in_turn(2), ASK)) as execution:
        said = await streamed(execution)
        assert (first.open, second.open) == (0, 1)
    assert said == [*REPLY, Usage(PROMPT, 7)]
    assert (execution.served_by, execution.continued, len(execution.tried)) == ("t1", 1, 2)
    assert execution.usage() == Usage(PROMPT, 7)
    [partial] = second.asked
    assert partial is not None
    written = "".join(event.text for event in REPLY[:after] if isinstance(event, TextDelta))
    assert partial.text == written


@given(st.lists(st.tuples(st.integers(1, len(REPLY) - 1), st.booleans()), min_size=1, max_size=3))
def test_however_often_it_breaks_the_reply_is_whole(cuts: list[tuple[int, bool]]) -> None:
    targets = [Scripted(breaks(cut), arriving=arriving) for cut, arriving in cuts]
    said = asyncio.run(told(router(*targets, Scripted(REPLY)), len(targets) + 1))
    assert put_together(said) == list(REPLY)
    assert said[-1] == Usage(PROMPT, 7)
    assert all(target.open == 0 for target in targets)


def test_a_sum_with_an_estimate_is_one() -> None:
    known, guessed = Usage(10, 5, 2, 1), Usage(14, 3, 0, 1, estimated=True)
    assert added(known, guessed) == Usage(10, 8, 2, 2, estimated=True)
    assert added(guessed, known) == Usage(14, 8, 0, 2, estimated=True)
    assert added(Usage(0, 4), guessed).prompt == 10  # which the first has never told
    assert not added(known, known).estimated


async def test_only_the_counts_were_missing() -> None:
    first, second = Scripted([*REPLY, BROKEN]), Scripted(REPLY)
    assert await told(router(first, second), 2) == [*REPLY, Usage(PROMPT, 7)]
    assert second.asked == []


async def test_where_nobody_can_go_on_the_failure_is_told() -> None:
    way = router(Scripted(breaks(3)), Scripted(REPLY, able=False))
    said: list[Event] = []
    with pytest.raises(UpstreamFailed, match="It broke"):
        async with begun(way.generate(in_turn(2), ASK)) as execution:
            await execution.stream(said.extend)
    assert said == list(REPLY[:3])
    assert execution.usage() == Usage(PROMPT, 3)


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


async def test_a_reply_goes_on_however_long_it_has_run() -> None:
    clock = Clock()

    class Lasting(Scripted):
        async def _events(self, start: int, counts: list[int]) -> AsyncIterator[Batch]:
            async for batch in super()._events(start, counts):
                yield batch
                clock.now += 1000

    way = router(Lasting(breaks(5)), Lasting(REPLY), clock=clock)
    assert await told(way, 2) == [*REPLY, Usage(PROMPT, 7)]


async def test_who_is_back_soon_is_waited_for() -> None:
    clock = Clock()
    loading = Overloaded("Being loaded.", code="engine_loading", retry_after=5)

    class Restarting(Scripted):
        def continues(self, request: ChatRequest, partial: Partial) -> bool:
            ready = clock.now >= 1009
            self.script = REPLY if ready else [loading]
            return True

    pauses = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock.now += seconds

    way = router(Restarting(breaks(3)), clock=clock, pause=pause)
    async with begun(way.generate(in_turn(1), ASK)) as execution:
        said = await streamed(execution)
    assert said == [*REPLY, Usage(PROMPT, 7)]
    assert pauses == [5, 5]
    assert [attempt.failure for attempt in execution.tried] == [
        "broken_stream",
        "overloaded",
        "overloaded",
        "",
    ]
    assert (execution.continued, execution.served_by) == (1, "t0")


async def test_waiting_for_somebody_to_go_on_has_an_end() -> None:
    clock = Clock()
    first = Scripted(breaks(3))

    async def pause(seconds: float) -> None:
        first.script = [Overloaded("Being loaded.", code="engine_loading", retry_after=5)]
        clock.now += seconds

    way = router(first, clock=clock, pause=pause)
    with pytest.raises(UpstreamFailed, match="It broke"):
        await told(way, 1)
    assert 20 <= clock.now - 1000 <= RetryBudget().wait_seconds
    assert way.status()[0].in_flight == 0


async def test_who_is_down_by_then_is_asked_last() -> None:
    clock = Clock()
    second, third = Scripted(REPLY), Scripted(REPLY)
    way = router(Scripted(breaks(3)), second, third, clock=clock)
    async with begun(way.generate(in_turn(3), ASK)) as execution:
        target_state = way.target_state("t1")
        assert target_state is not None
        for _ in range(THRESHOLD):
            target_state.breaker.failed("x")
        said = await streamed(execution)
    assert said == [*REPLY, Usage(PROMPT, 7)]
    assert (execution.served_by, second.asked) == ("t2", [])


async def test_a_refusal_to_go_on_is_tried_elsewhere() -> None:
    class Narrow(Scripted):
        def continues(self, request: ChatRequest, partial: Partial) -> bool:
            self.script = [InvalidRequest("Too long.")]
            return True

    async def pause(seconds: float) -> None:
        pytest.fail("there is somebody to go on at once")

    way = router(Scripted(breaks(3)), Narrow(REPLY), Scripted(REPLY), pause=pause)
    assert await told(way, 3) == [*REPLY, Usage(PROMPT, 7)]


@given(st.integers(1, 1500), st.integers(1, 7))
def test_long_replies_are_put_together_whole(cut: int, width: int) -> None:
    text = [str(number) for number in range(1500)]
    passed = SentPrefix()

    def goes_out(batch: Batch) -> None:
        passed.batches.append(batch)
        if len(passed.batches) >= MANY:
            passed.put_together()

    for start in range(0, cut, width):
        goes_out([TextDelta(piece) for piece in text[start : min(start + width, cut)]])
    goes_out([ToolCallStarted(0, "a", "f")])
    for _ in range(300):
        goes_out([ToolCallDelta(0, "x"), ToolCallDelta(0, "y")])
    partial = passed.partial(Usage(1, 5, reasoning=2), None)
    assert partial.text == "".join(text[:cut])
    assert partial.calls[0].arguments == "xy" * 300
    assert (partial.completion, partial.reasoning_tokens, passed.finished) == (5, 2, 0)


async def test_when_every_choice_has_ended_only_the_counts_are_missing() -> None:
    two = ChatRequest(model="m", messages=ASK.messages, n=2)
    script = [TextDelta("a"), TextDelta("b", choice=1), Finished("stop"), Finished("stop", 1)]
    said = await told(router(Scripted([*script, BROKEN])), 1, two)
    assert said == [*script, Usage(PROMPT, 2)]


async def test_while_one_choice_is_under_way_the_reply_is_not_complete() -> None:
    two = ChatRequest(model="m", messages=ASK.messages, n=2)
    script = [TextDelta("a"), TextDelta("b", choice=1), Finished("stop")]
    with pytest.raises(UpstreamFailed):
        await told(router(Scripted([*script, BROKEN])), 1, two)


@pytest.mark.parametrize("after", [3, 6, 7])
async def test_a_reply_that_had_reached_its_limit_is_not_made_longer(after: int) -> None:
    limited = ChatRequest(model="m", messages=ASK.messages, max_tokens=after)
    first, second = Scripted(breaks(after)), Scripted(REPLY)
    way = router(first, second)
    async with begun(way.generate(in_turn(2), limited)) as execution:
        said = await streamed(execution)
    assert said == [*REPLY[:after], Finished("length"), Usage(PROMPT, after)]
    assert (second.asked, execution.whole, execution.finish) == ([], True, "length")
    assert execution.usage() == Usage(PROMPT, after)
    assert way.status()[0].failures == 1


HIDDEN = ChatRequest(
    model="m", messages=ASK.messages, stream=True, thinking=Thinking(visible=False)
)


async def test_what_nobody_has_been_shown_is_begun_anew() -> None:
    """By those who have not failed, and only what they make is counted."""
    refusing = Scripted([Overloaded("Full.")], able=False)
    targets = [Scripted(breaks(2), able=False), refusing, Scripted(REPLY, able=False)]
    way = router(*targets)
    async with begun(way.generate(in_turn(3), HIDDEN)) as execution:
        said = await streamed(execution)
    assert said == [*REPLY[:2], *REPLY, Usage(PROMPT, 7)]
    assert [target.asked for target in targets] == [[None], [None], [None]]
    assert (execution.served_by, execution.continued, execution.usage()) == (
        "t2",
        0,
        Usage(PROMPT, 7),
    )
    assert execution.whole


@pytest.mark.parametrize(
    ("after", "request_"),
    [(3, HIDDEN), (5, HIDDEN), (2, structs.replace(HIDDEN, thinking=Thinking()))],
    ids=["text", "a call", "reasoning"],
)
async def test_what_somebody_has_been_shown_is_not_begun_anew(
    after: int, request_: ChatRequest
) -> None:
    second = Scripted(REPLY, able=False)
    way = router(Scripted(breaks(after), able=False), second)
    said: list[Event] = []
    with pytest.raises(UpstreamFailed, match="It broke"):
        async with begun(way.generate(in_turn(2), request_)) as execution:
            await execution.stream(said.extend)
    assert (said, second.asked, execution.usage()) == (
        list(REPLY[:after]),
        [],
        Usage(PROMPT, after),
    )


async def test_beginning_anew_is_one_of_the_attempts() -> None:
    way = router(Scripted(breaks(2), able=False), Scripted(REPLY), budget=RetryBudget(attempts=1))
    with pytest.raises(UpstreamFailed, match="It broke"):
        await told(way, 2, HIDDEN)
    assert way.status()[0].in_flight == 0


async def test_no_more_events_are_kept_as_they_came_than_are_soon_put_together() -> None:
    said = [TextDelta("x")] * (LONG + 1)
    first = Scripted([*REPLY])
    async with begun(router(first).generate(in_turn(1), ASK)) as execution:
        for _ in range(2 * MANY):
            execution._emit_batch(lambda _: None, said)
            assert sum(map(len, execution._sent_prefix.batches)) <= MANY * LONG
