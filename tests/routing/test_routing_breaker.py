"""When a target is left alone, and when it is asked again."""

from __future__ import annotations

import asyncio

import pytest
from casekit import each_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from routingkit import (
    ASK,
    BROKEN,
    FULL,
    PROMPT,
    REPLY,
    Clock,
    Scripted,
    begun,
    in_turn,
    middle,
    router,
    streamed,
    told,
)

from causerie.errors import (
    ContextLengthExceeded,
    ErrorClass,
    InvalidRequest,
    Overloaded,
    ServiceError,
    UnusableOutput,
    UpstreamFailed,
)
from causerie.protocol.events import TextDelta, Usage
from causerie.protocol.targets import Candidate, TokenBounds
from causerie.routing.circuit_breaker import (
    FIRST_WAIT_SECONDS,
    LONGEST_WAIT_SECONDS,
    THRESHOLD,
    CircuitBreaker,
)
from causerie.routing.router import Router


async def test_a_target_that_fails_is_left_alone_then_tried_by_one() -> None:
    clock = Clock()
    bad, good = Scripted(REPLY), Scripted(REPLY)
    way = router(bad, good, clock=clock)
    await told(way, 2)
    bad.script = [BROKEN]
    bad.asked.clear()
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
    assert way.status()[0].state == "degraded"  # until most recent requests are answered
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
    target_state = way.target_state("t0")
    assert target_state is not None
    target_state.breaker.begin()  # the trial is under way
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
    breaker = CircuitBreaker(clock, middle)
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
    assert breaker.admits()


async def test_a_target_that_has_answered_nothing_is_down_after_one_failure() -> None:
    clock = Clock()
    bad, good = Scripted([BROKEN]), Scripted(REPLY)
    way = router(bad, good, clock=clock)
    await told(way, 2)
    await told(way, 2)
    assert len(bad.asked) == 1
    assert [status.state for status in way.status()] == ["down", "up"]
    clock.now += LONGEST_WAIT_SECONDS
    assert way.status()[0].state == "half_open"
    target_stats = way.target_stats("t0")
    assert target_stats is not None
    assert (target_stats.up, target_stats.uptime_half_hour) == (False, 0.0)


def down(clock: Clock, failures: int = THRESHOLD) -> CircuitBreaker:
    breaker = CircuitBreaker(clock, middle)
    for _ in range(failures):
        breaker.failed("x")
    return breaker


def test_many_that_fail_together_are_one_cause() -> None:
    clock = Clock()
    assert down(clock, 100).wait() == down(clock).wait() <= FIRST_WAIT_SECONDS


def test_each_trial_in_vain_makes_the_next_wait_longer() -> None:
    clock = Clock()
    breaker = down(clock)
    waits = []
    for _ in range(10):
        waits.append(breaker.wait())
        clock.now += breaker.wait()
        assert breaker.begin()
        breaker.failed("x")
    assert waits == sorted(waits)
    assert waits[1] == 2 * waits[0]
    assert waits[-1] == LONGEST_WAIT_SECONDS * 0.75


def test_one_tries_and_others_that_end_meanwhile_let_no_second_in() -> None:
    clock = Clock()
    breaker = down(clock)
    clock.now += breaker.wait()
    assert [breaker.begin(), breaker.begin()] == [True, False]
    assert breaker.state() == "trying"
    breaker.left()
    assert breaker.begin()


async def test_a_target_that_breaks_every_reply_off_is_down_in_the_end() -> None:
    bad = Scripted([*REPLY[:2], BROKEN])
    way = router(bad, Scripted(REPLY))
    for _ in range(THRESHOLD + 2):
        assert (await told(way, 2))[-1] == Usage(PROMPT, 7)
    assert way.status()[0].state == "down"
    assert len(bad.asked) == THRESHOLD


@each_of(
    ("status", "code", "moves"),
    [
        (401, None, False),
        (404, None, False),
        (302, None, False),
        (408, "upstream_timeout", True),
        (500, None, True),
        (503, None, True),
        (None, None, True),
        (None, "upstream_timeout", True),
    ],
)
async def test_what_moves_the_breaker(status: int | None, code: str | None, moves: bool) -> None:
    metadata = {} if status is None else {"upstream_status": status}
    way = router(Scripted([UpstreamFailed("No.", code=code, metadata=metadata)]), Scripted(REPLY))
    for _ in range(THRESHOLD):
        await told(way, 2)
    assert (way.status()[0].state == "down") is moves


async def test_waits_are_spread_by_chance() -> None:
    clock = Clock()
    waits = set()
    for chance in (0.0, 0.3, 0.999):
        breaker = CircuitBreaker(clock, iter([chance]).__next__)
        for _ in range(THRESHOLD):
            breaker.failed("x")
        waits.add(breaker.wait())
    assert len(waits) == 3
    assert min(waits) >= FIRST_WAIT_SECONDS / 2
    assert max(waits) <= FIRST_WAIT_SECONDS


async def test_a_whole_reply_makes_failures_forgotten() -> None:
    first, second = Scripted(REPLY), Scripted(REPLY)
    way = router(first, second)
    for script in (REPLY, [BROKEN], [BROKEN], REPLY, [BROKEN], [BROKEN]):
        first.script = script
        await told(way, 2)
    assert (way.status()[0].state, way.status()[0].failures) == ("degraded", 2)


async def test_a_client_that_leaves_during_the_trial_leaves_it_to_the_next() -> None:
    clock = Clock()
    bad = Scripted([BROKEN])
    way = router(bad, Scripted(REPLY), clock=clock)
    for _ in range(THRESHOLD):
        await told(way, 2)
    clock.now += LONGEST_WAIT_SECONDS
    bad.script = [TextDelta("")] * 1000
    bad.begun.clear()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(told(way, 2))
        await bad.begun.wait()
        assert way.status()[0].state == "trying"
        asking.cancel()
    assert way.status()[0].state == "half_open"


def rejects(cause: ErrorClass) -> UpstreamFailed:
    return UpstreamFailed("No.", metadata={"upstream_status": 400}).caused_by(cause)


@each_of("cause", ErrorClass)
async def test_what_a_target_rejects_of_everybody_puts_it_behind_others(cause: ErrorClass) -> None:
    bad = Scripted([rejects(cause)])
    way = router(bad, Scripted(REPLY))
    for _ in range(THRESHOLD):
        assert (await told(way, 2))[-1] == Usage(PROMPT, 7)
    [status, _] = way.status()
    assert (status.state == "rejecting") is cause.is_rejection
    assert status.failed == {cause.value: THRESHOLD}
    if cause.is_rejection:
        assert status.reason == cause.value
        await told(way, 2)
        assert len(bad.asked) == THRESHOLD


async def test_a_model_that_a_client_makes_up_takes_a_wildcard_from_nobody() -> None:
    """Below a wildcard clients name the models; but one that never answered may be a wrong path."""
    missing = rejects(ErrorClass.MODEL_NOT_FOUND)
    answers, silent = Scripted(REPLY), Scripted([missing])
    targets = {"north/*": answers, "south/*": silent}
    way = Router(targets, clock=Clock(), chance=middle)

    async def ask(name: str) -> None:
        async with begun(way.generate([Candidate(name)], ASK)) as execution:
            await streamed(execution)

    await ask("north/*")
    answers.script = [missing]
    for name in [*targets] * THRESHOLD:
        with pytest.raises(UpstreamFailed):
            await ask(name)
    assert [each.breaker.rejecting for each in way.target_states()] == [False, True]


async def test_a_call_that_is_none_takes_a_target_from_nobody() -> None:
    """A client brings it about with a stop sequence, and has others served at their usual place."""
    first = Scripted([UnusableOutput("The provider broke its reply off amid a call.")])
    way = router(first, Scripted(REPLY))
    for _ in range(2 * THRESHOLD):
        assert (await told(way, 2))[-1] == Usage(PROMPT, 7)
    [status, _] = way.status()
    assert (status.state, status.failures) == ("up", 0)
    assert status.failed == {ErrorClass.UNUSABLE_OUTPUT.value: 2 * THRESHOLD}
    assert len(first.asked) == 2 * THRESHOLD


async def test_one_request_a_minute_tries_a_rejecting_target() -> None:
    clock = Clock()
    bad = Scripted([rejects(ErrorClass.QUOTA)])
    way = router(bad, Scripted(REPLY), clock=clock)
    for _ in range(THRESHOLD):
        await told(way, 2)
    [state, _] = way.target_states()
    for round in range(3):
        assert (state.state(), state.breaker.rejecting) == ("rejecting", True)
        clock.now += LONGEST_WAIT_SECONDS
        assert (state.state(), state.breaker.rejecting) == ("half_open", True)
        await told(way, 2)
        assert len(bad.asked) == THRESHOLD + round + 1
    clock.now += LONGEST_WAIT_SECONDS
    bad.script = REPLY
    await told(way, 2)
    assert (state.breaker.state(), state.breaker.rejecting, state.breaker.well) == (
        "up",
        False,
        True,
    )
    assert state.state() == "degraded"  # of its recent requests most were rejected


async def test_a_check_that_succeeds_does_not_end_a_rejection() -> None:
    way = router(Scripted([rejects(ErrorClass.REJECTED_KEY)]), Scripted(REPLY))
    for _ in range(THRESHOLD):
        await told(way, 2)
    [state, _] = way.target_states()
    state.breaker.back()
    state.failed(InvalidRequest("No.", metadata={"upstream_status": 400}))
    assert state.breaker.rejecting


async def test_rejections_that_are_not_in_a_row_are_none() -> None:
    bad = Scripted(())
    way = router(bad, Scripted(REPLY))
    for _ in range(THRESHOLD):
        for script in ([rejects(ErrorClass.FORBIDDEN)], [rejects(ErrorClass.QUOTA)], REPLY):
            bad.script = script
            await told(way, 2)
    [state, _] = way.target_states()
    assert not state.breaker.rejecting


async def test_a_lone_rejecting_target_is_asked_and_its_refusal_is_final() -> None:
    way = router(bad := Scripted([rejects(ErrorClass.REJECTED_KEY)]))
    for _ in range(2 * THRESHOLD):
        with pytest.raises(UpstreamFailed) as refused:
            await told(way, 1)
        assert (refused.value.status, refused.value.retryable) == (502, False)
        assert "Try again" not in refused.value.message
        assert "t0: No." in refused.value.message
    assert len(bad.asked) == 2 * THRESHOLD


async def test_a_failure_that_passes_is_told_before_one_that_stays() -> None:
    broken, rejecting = Scripted([BROKEN]), Scripted([rejects(ErrorClass.QUOTA)])
    for targets in ((broken, rejecting), (rejecting, broken)):
        with pytest.raises(UpstreamFailed) as refused:
            await told(router(*targets), 2)
        assert refused.value.retryable
        assert refused.value.error_class is not ErrorClass.QUOTA


@pytest.mark.parametrize(("length", "asked"), [(8192, 0), (8193, 1), (None, 1)])
async def test_a_prompt_that_is_too_long_goes_to_longer_contexts_only(
    length: int | None, asked: int
) -> None:
    short = ContextLengthExceeded(prompt_tokens=9000, max_tokens=None, context_length=8192)
    other, longest = Scripted([short]), Scripted(REPLY)
    way = router(Scripted([short]), other, longest)
    candidates = in_turn(3)
    candidates[1] = structs.replace(candidates[1], bounds=TokenBounds(length))
    async with begun(way.generate(candidates, ASK)) as execution:
        await streamed(execution)
    assert (execution.served_by, len(other.asked)) == ("t2", asked)
