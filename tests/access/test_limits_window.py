"""For any order of events: never more than the limit in a minute, nobody blocked without need."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from casekit import examples, first_of
from hypothesis import given, settings
from hypothesis import strategies as st
from limitkit import (
    MINUTE,
    PARTS,
    TENTH,
    Book,
    CountedIn,
    Seen,
    ServiceView,
    Used,
    key,
    model,
    open_service_view,
    told,
)

from causerie.access.limits import Lease, RateScope, Tokens
from causerie.errors import RateLimited

KEY = key(requests_per_minute=5, tokens_per_minute=100, concurrent=3)
MODEL = model(requests_per_minute=8, input_tokens_per_minute=60, output_tokens_per_minute=70)
SCOPES = (KEY, MODEL)


pauses = st.one_of(st.integers(0, 300), st.integers(0, 30_000), st.sampled_from([60_000, 60_100]))
needs = st.builds(Tokens, st.integers(0, 60), st.integers(0, 40))
truths = st.builds(Tokens, st.integers(0, 60), st.integers(0, 40))
groups = st.sampled_from([(KEY,), (MODEL,), SCOPES])
steps = st.lists(st.tuples(pauses, groups, needs, st.integers(0, 3), truths), max_size=60)


@settings(max_examples=examples(150), deadline=None)
@given(steps=steps, foreseen=st.booleans())
async def test_never_more_than_the_limit_and_nobody_blocked_while_there_is_room(
    limits_in: CountedIn,
    steps: list[tuple[int, tuple[RateScope, ...], Tokens, int, Tokens]],
    foreseen: bool,
) -> None:
    async with open_service_view(limits_in) as service_view:
        await _walk(service_view, steps, foreseen)


async def _walk(
    service_view: ServiceView,
    steps: list[tuple[int, tuple[RateScope, ...], Tokens, int, Tokens]],
    foreseen: bool,
) -> None:
    book, now = Book(), 0
    open_leases: list[tuple[ExitStack, Seen, Tokens]] = []
    for pause, scopes, need, ends, truth in steps:
        service_view.clock.pass_ms(pause)
        now += pause
        for _ in range(min(ends, len(open_leases))):
            stack, seen, used = open_leases.pop(0)
            stack.close()
            _settle(seen, used, now)
        stack = ExitStack()
        try:
            lease = stack.enter_context(
                await service_view.admit(*scopes, input=need.input, output=need.output)
            )
        except RateLimited:
            assert not book.fits(scopes, need, now, MINUTE), "blocked while there is room"
            continue
        assert book.fits(scopes, need, now, MINUTE - TENTH), "let in although it was full"
        used = _at_most(truth, need) if foreseen else truth
        lease.settle(Used(used.input, used.output))
        seen = Seen(now, scopes, need, [(now, need)])
        book.seen.append(seen)
        open_leases.append((stack, seen, used))
        if foreseen:
            for scope in SCOPES:
                for part in PARTS:
                    assert book.used(scope, part, now, MINUTE - TENTH) <= getattr(scope, part)
    for stack, _, _ in open_leases:
        stack.close()


def _at_most(truth: Tokens, need: Tokens) -> Tokens:
    return Tokens(min(truth.input, need.input), min(truth.output, need.output))


def _settle(seen: Seen, used: Tokens, now: int) -> None:
    """Count the estimate at its admission, and the rest at the time it became known."""
    within = _at_most(used, seen.reserved)
    more = Tokens(used.input - within.input, used.output - within.output)
    seen.counts = [(seen.at, within), (now, more)]
    seen.running = False


@settings(max_examples=examples(200), deadline=None)
@given(past=st.lists(st.tuples(pauses, needs), max_size=40), need=needs)
async def test_who_waits_as_long_as_told_is_let_in(
    limits_in: CountedIn, past: list[tuple[int, Tokens]], need: Tokens
) -> None:
    async with open_service_view(limits_in) as service_view:
        await _wait_as_told(service_view, past, need)


async def _wait_as_told(
    service_view: ServiceView, past: list[tuple[int, Tokens]], need: Tokens
) -> None:
    for pause, each in past:
        service_view.clock.pass_ms(pause)
        try:
            await service_view.pass_through(*SCOPES, input=each.input, output=each.output)
        except RateLimited:
            continue
    try:
        await service_view.pass_through(*SCOPES, input=need.input, output=need.output)
    except RateLimited as refused:
        wait = int(refused.headers["Retry-After"])
        assert 1 <= wait <= 60
        service_view.clock.pass_seconds(wait)
        await service_view.pass_through(*SCOPES, input=need.input, output=need.output)


@settings(max_examples=examples(100), deadline=None)
@given(pauses=st.lists(pauses, max_size=200), limit=st.integers(1, 20))
async def test_no_minute_has_more_requests_than_the_limit(
    limits_in: CountedIn, pauses: list[int], limit: int
) -> None:
    async with open_service_view(limits_in) as service_view:
        await _count(service_view, pauses, limit)


async def _count(service_view: ServiceView, pauses: list[int], limit: int) -> None:
    now = 0
    scope = key(requests_per_minute=limit)
    let_in: list[int] = []
    for pause in pauses:
        service_view.clock.pass_ms(pause)
        now += pause
        try:
            await service_view.pass_through(scope)
        except RateLimited:
            continue
        let_in.append(now)
    for start in let_in:
        assert sum(start <= each < start + MINUTE - TENTH for each in let_in) <= limit


@pytest.mark.parametrize(
    "step_ms", first_of([37, 99, 100, 101])
)  # 37 comes at every part of a tenth
async def test_a_steady_caller_gets_the_whole_limit(limits_in: CountedIn, step_ms: int) -> None:
    async with open_service_view(limits_in) as service_view:
        # Ten in each of five minutes; a sixth may have started, as each is a tenth of a second
        # early.
        assert 50 <= await _steady(service_view, step_ms) < 60


async def _steady(service_view: ServiceView, step_ms: int) -> int:
    scope = key(requests_per_minute=10)
    let_in = 0
    for _ in range(5 * MINUTE // step_ms):
        service_view.clock.pass_ms(step_ms)
        try:
            await service_view.pass_through(scope)
        except RateLimited:
            continue
        let_in += 1
    return let_in


@dataclass(frozen=True)
class Ask:
    """A request after so many milliseconds; ``outcome``: what is left, or a limit and a wait."""

    after_ms: int
    outcome: str
    input: int = 0
    output: int = 0


@dataclass(frozen=True)
class End:
    """The oldest request that runs ends after so many milliseconds, having used these tokens."""

    after_ms: int = 0
    input: int = 0
    output: int = 0


# The clock starts 23.456789 ms after the beginning of a tick.
TABLE: dict[str, tuple[dict[str, int], list[Ask | End]]] = {
    "a tick leaves a minute after it began": (
        {"requests_per_minute": 2},
        [Ask(0, "1"), Ask(30_000, "0"), Ask(0, "requests 30"), Ask(29_976, "requests 1"),
         Ask(1, "0"), Ask(0, "requests 30"), Ask(29_999, "requests 1"), Ask(1, "0")],
    ),
    "what came within one tick leaves together": (
        {"requests_per_minute": 3},
        [Ask(0, "2"), Ask(76, "1"), Ask(1, "0"), Ask(59_900, "1"), Ask(0, "0"),
         Ask(99, "requests 1"), Ask(1, "0")],
    ),
    "a refused request counts nothing": (
        {"requests_per_minute": 1, "tokens_per_minute": 10},
        [Ask(0, "0 5", 5), *[Ask(1_000, f"requests {60 - at}", 5) for at in range(1, 10)],
         Ask(51_000, "0 5", 5)],
    ),
    "a larger need waits for more ticks": (
        {"tokens_per_minute": 100},
        [Ask(0, "70", 30), Ask(10_000, "30", 40), Ask(10_000, "0", 30),
         Ask(10_000, "tokens 30", 30),
         Ask(0, "tokens 40", 31), Ask(0, "tokens 40", 70), Ask(0, "tokens 50", 71)],
    ),
    "tokens that were not used are given back": (
        {"tokens_per_minute": 100},
        [Ask(0, "0", 40, 60), End(1_000, 40, 10), Ask(0, "0", 50), Ask(0, "tokens 59", 1)],
    ),
    "tokens that were not foreseen count from the end": (
        {"tokens_per_minute": 100},
        [Ask(0, "90", 10), End(10_000, 70), Ask(0, "tokens 50", 31), Ask(0, "tokens 60", 91),
         Ask(50_000, "9", 31)],
    ),
    "what is given back after a minute frees nothing": (
        {"tokens_per_minute": 100},
        [Ask(0, "0", 100), Ask(60_000, "0", 100), End(0, 0), Ask(0, "tokens 60", 1)],
    ),
    "input and output have limits of their own": (
        {"input_tokens_per_minute": 50, "output_tokens_per_minute": 20},
        [Ask(0, "5", 40, 15), Ask(0, "input_tokens 60", 11), Ask(0, "output_tokens 60", 0, 6),
         Ask(0, "0", 10, 5)],
    ),
    "output beyond the whole limit reserves what is left beside the input": (
        {"tokens_per_minute": 100},
        [Ask(0, "0", 40, 1_000), End(0, 40, 10), Ask(0, "tokens 60", 40, 1_000), Ask(0, "0", 50)],
    ),
    "running requests have no window": (
        {"concurrent": 2},
        [Ask(0, ""), Ask(0, ""), Ask(90_000, "concurrent 1"), End(), Ask(0, "")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
async def test_a_window_counts_alike_in_memory_and_in_the_server(
    limits_in: CountedIn, case: str
) -> None:
    rates, steps = TABLE[case]
    scope = key(**rates)
    async with open_service_view(limits_in) as service_view:
        running: list[Lease] = []
        for step in steps:
            service_view.clock.pass_ms(step.after_ms)
            if isinstance(step, End):
                running.pop(0).release(step.input, step.output)
                continue
            try:
                lease = await service_view.admit(scope, input=step.input, output=step.output)
            except RateLimited as refused:
                outcome = f"{refused.metadata['limit']} {refused.headers['Retry-After']}"
            else:
                running.append(lease)
                headers = told(lease)
                names = ("x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens")
                outcome = " ".join(headers[name] for name in names if name in headers)
            assert outcome == step.outcome, step
        for lease in running:
            lease.release(0, 0)
