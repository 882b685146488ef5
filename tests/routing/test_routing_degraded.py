"""A target that fails a third of its recent requests gets fewer of them."""

from __future__ import annotations

from msgspec import structs
from routingkit import ASK, BROKEN, REPLY, Clock, Scripted, left, middle

from causerie.protocol.request import ChatRequest, Message
from causerie.protocol.targets import Candidate
from causerie.routing.router import Router

ALIKE = [Candidate("t0"), Candidate("t1")]


class Way(Router):
    """Two targets of equal weight, of which the first does what ``fails`` says."""

    def __init__(self, clock: Clock) -> None:
        self.first = Scripted(REPLY)
        super().__init__({"t0": self.first, "t1": Scripted(REPLY)}, clock=clock, chance=middle)

    async def ask(self, *, fails: bool = False, at: str = "t0") -> None:
        self.first.script = (BROKEN,) if fails else REPLY
        execution = self.generate([Candidate(at), Candidate("t1", 1)], ASK)
        await execution.begin()
        await execution.stream(lambda _: None)
        await left(execution)

    def state(self) -> str:
        return self.status()[0].state


async def degraded(clock: Clock) -> Way:
    way = Way(clock)
    for _ in range(3):
        await way.ask()
        assert way.state() == "up"
        await way.ask(fails=True)
    await way.ask()
    return way


async def test_a_third_of_failures_degrades_a_target_until_they_are_old() -> None:
    clock = Clock()
    way = await degraded(clock)
    assert way.state() == "degraded"
    assert way.status()[0].recent_failures == (3, 7)
    stats = way.target_stats("t0")
    assert stats is not None
    assert (stats.up, stats.degraded) == (True, True)
    for _ in range(3):
        await way.ask()
    assert way.state() == "up"  # 3 of 10 are less than a third
    await way.ask(fails=True)
    assert way.state() == "degraded"
    clock.now += 360
    assert way.state() == "half_open"  # nothing proves it now; the last request failed
    await way.ask()
    assert way.state() == "up"


async def test_failures_in_a_row_are_of_the_breaker() -> None:
    way = Way(Clock())
    for _ in range(20):
        await way.ask()
    for _ in range(3):
        await way.ask(fails=True)
    assert way.state() == "down"


async def test_a_degraded_target_gets_a_tenth_of_its_share_and_keeps_no_conversation() -> None:
    way = await degraded(Clock())
    conversations = [replace_text(f"Conversation {number}") for number in range(400)]
    firsts = [way.explain(ALIKE, one)[0] for one in conversations]
    share = sum(one.candidate.name == "t0" for one in firsts) / len(firsts)
    assert 0.05 < share < 0.14  # 1 of 11
    of_t0 = next(one for one in way.explain(ALIKE, ASK) if one.candidate.name == "t0")
    assert round(of_t0.share, 3) == round(0.1 / 1.1, 3)
    way._shared_state.last_targets.note("Hi", "t0", 0.0)
    kept = [one for one in conversations if way.explain(ALIKE, one)[0].candidate.name == "t1"]
    for one in kept[:20]:
        way._shared_state.last_targets.note(one.messages[0].text, "t0", way._shared_state.clock())
        assert way.explain(ALIKE, one)[0].candidate.name == "t1"


async def test_it_is_asked_all_the_same_where_there_is_no_other() -> None:
    way = await degraded(Clock())
    await way.ask()
    assert way.status()[0].answered == 5


def replace_text(text: str) -> ChatRequest:
    return structs.replace(ASK, messages=(Message("user", text),))
