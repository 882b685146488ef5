"""In which order targets are asked."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from routingkit import (
    ASK,
    REPLY,
    Clock,
    Scripted,
    begun,
    middle,
    router,
    streamed,
)

from causerie.protocol.request import ChatRequest, Message, TextPart
from causerie.protocol.targets import Candidate
from causerie.routing.circuit_breaker import THRESHOLD, CircuitBreaker
from causerie.routing.target_selector import LastTargets, order
from causerie.routing.target_state import TargetState


def target_states(*loads: int) -> dict[str, TargetState]:
    made = {}
    for number, load in enumerate(loads):
        target_state = TargetState(
            f"t{number}", Scripted(REPLY), None, CircuitBreaker(Clock(), middle)
        )
        target_state.in_flight = load
        made[target_state.name] = target_state
    return made


def group(*weights: float) -> list[Candidate]:
    return [Candidate(f"t{number}", weight=weight) for number, weight in enumerate(weights)]


def talk(number: int) -> ChatRequest:
    return ChatRequest(model="m", messages=(Message("user", f"Question {number}"),))


def test_a_conversation_stays_where_it_began() -> None:
    there = target_states(0, 0, 0)
    long = ChatRequest(
        model="m",
        messages=(Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "More")),
    )
    first = order(group(1, 1, 1), there, ASK, middle)[0]
    assert order(group(1, 1, 1), there, long, middle)[0] is first


def test_a_line_that_changes_at_every_turn_does_not_move_a_conversation() -> None:
    there = target_states(*[0] * 8)
    system = "You are an agent.\nBe brief."

    def turn(number: int, *, parted: bool) -> ChatRequest:
        line = f"x-anthropic-billing-header: cc_version=2.1; cch={number:05x};"
        apart = (TextPart(line), TextPart(system))
        content = apart if parted else f"{line}\n{system}"
        asked = Message("user", "Hi"), Message("assistant", "Yes"), Message("user", str(number))
        return ChatRequest(model="m", messages=(Message("system", content), *asked[: number + 1]))

    for parted in (False, True):
        turns = [turn(number, parted=parted) for number in range(20)]
        assert len({order(group(*[1] * 8), there, one, middle)[0].name for one in turns}) == 1


def test_a_session_stays_whatever_is_said() -> None:
    there = target_states(0, 0, 0, 0)
    asked = [
        ChatRequest(model="m", messages=(Message("user", str(n)),), session_id="s")
        for n in range(20)
    ]
    assert len({order(group(1, 1, 1, 1), there, one, middle)[0].name for one in asked}) == 1


def test_a_conversation_stays_with_who_answered_it_last_unless_that_is_full() -> None:
    there = target_states(0, 0, 0)
    home = order(group(1, 1, 1), there, ASK, middle)[0]
    other = next(one for one in there.values() if one is not home)
    assert order(group(1, 1, 1), there, ASK, middle, other.name)[0] is other
    other.in_flight = 9
    assert order(group(1, 1, 1), there, ASK, middle, other.name)[0] is home
    for _ in range(THRESHOLD):
        home.breaker.failed("x")
    assert order(group(1, 1, 1), there, ASK, middle, home.name)[0] is not home


async def test_a_conversation_does_not_go_back_to_a_target_that_has_nothing_of_it() -> None:
    clock = Clock()
    targets = [Scripted(REPLY) for _ in range(3)]
    way = router(*targets, clock=clock)
    states = {state.name: state for state in way.target_states()}

    async def served() -> str:
        async with begun(way.generate([Candidate(name) for name in states], ASK)) as execution:
            await streamed(execution)
            return execution.served_by

    home = await served()
    states[home].in_flight = 9  # it has its fill
    other = await served()
    assert other != home
    states[home].in_flight = 0
    assert await served() == other
    [first, *_] = way.explain([Candidate(name) for name in states], ASK)
    assert (first.candidate.name, first.decided) == (other, "home")
    clock.now += 601
    assert await served() == home


def test_few_conversations_are_remembered() -> None:
    known = LastTargets(most=2)
    for number in range(3):
        known.note(f"c{number}", "t", 0.0)
    known.note("c1", "u", 5.0)
    assert [known.of(f"c{number}", 10.0) for number in range(3)] == ["", "u", "t"]


def test_conversations_are_spread_by_weight() -> None:
    there = target_states(0, 0)
    found = Counter(
        order(group(3, 1), there, talk(number), middle)[0].name for number in range(4000)
    )
    assert 0.70 < found["t0"] / 4000 < 0.80


@given(st.lists(st.integers(0, 50), min_size=2, max_size=6), st.integers())
def test_staying_never_overloads(loads: list[int], number: int) -> None:
    there = target_states(*loads)
    chosen = order(group(*[1.0] * len(loads)), there, talk(number), middle)[0]
    assert chosen.in_flight <= 1.25 * (sum(loads) + 1) / len(loads)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=2, max_size=8))
def test_one_that_is_up_always_comes_before_one_that_is_down(
    kinds: list[tuple[int, bool]],
) -> None:
    there = target_states(*[0] * len(kinds))
    candidates = []
    for number, (priority, up) in enumerate(kinds):
        candidates.append(Candidate(f"t{number}", priority))
        if not up:
            for _ in range(THRESHOLD):
                there[f"t{number}"].breaker.failed("x")
    found = [int(target_state.name[1:]) for target_state in order(candidates, there, ASK, middle)]
    ups = [kinds[number][1] for number in found]
    assert ups == sorted(ups, reverse=True)
    assert ups.count(False) <= 1
    assert ups.count(True) == sum(up for _, up in kinds)
    groups = [kinds[number][0] for number in found if kinds[number][1]]
    assert groups == sorted(groups)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 99))
def test_nobody_who_is_up_is_starved(weights: list[int], seed: int) -> None:
    """Requests that all stay under way are everywhere, nowhere more than a share and a quarter."""
    there = target_states(*[0] * len(weights))
    candidates = group(*map(float, weights))
    chance = random.Random(seed).random
    total = 20 * sum(weights)
    for number in range(total):
        order(candidates, there, talk(number), chance)[0].in_flight += 1
    for number, weight in enumerate(weights):
        assert 0 < there[f"t{number}"].in_flight <= 26 * weight


def test_one_conversation_that_asks_much_is_spread() -> None:
    there = target_states(0, 0, 0, 0)
    for _ in range(100):
        order(group(1, 1, 1, 1), there, ASK, middle)[0].in_flight += 1
    assert max(target_state.in_flight for target_state in there.values()) <= 32


def test_most_conversations_stay_when_a_target_comes() -> None:
    there = target_states(0, 0, 0, 0)
    before = [order(group(1, 1, 1), there, talk(n), middle)[0].name for n in range(1000)]
    after = [order(group(1, 1, 1, 1), there, talk(n), middle)[0].name for n in range(1000)]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {"t3"}
    assert len(moved) < 350
