"""Counts of several processes: the same as those of one, whoever is killed and when."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from limitkit import Clock
from member import PLACES, SCOPES
from memberkit import MemberProcess, memory_of
from waiting import eventually

from causerie.access.quota import Tokens
from causerie.access.windows import MemoryCounters, MemoryLease
from causerie.errors import RateLimited, StoreUnavailable
from causerie.workers.counters import SharedCounters
from causerie.workers.layout import MINUTE, WORDS
from causerie.workers.shared_memory import MEMBERS, SharedMemory

STEPS = 150
MEMBERS_AT, RING_AT = 8, 8 + MEMBERS


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_three_processes_count_as_one_while_they_are_killed(seed: int) -> None:
    chance, clock = random.Random(seed), Clock()
    one = MemoryCounters(clock)
    outcomes: Counter[str] = Counter()
    with memory_of(WORDS) as memory:
        parent = SharedCounters(memory, 0, PLACES, clock)
        members = [MemberProcess(memory, number) for number in (1, 2, 3)]
        leases: list[tuple[MemberProcess, int, MemoryLease]] = []
        for _ in range(STEPS):
            clock.pass_ms(chance.choice([0, 7, 180, 4_000, 15_000]))
            member = chance.choice(members)
            what = chance.choices(["take", "end", "kill"], [12, 6, 1])[0]
            outcomes[what] += 1
            if what == "take":
                outcomes["let in"] += take(member, one, leases, chance, clock)
            elif what == "end" and leases:
                there, number, lease = leases.pop(chance.randrange(len(leases)))
                used = chance.randrange(60), chance.randrange(60)
                there.do("end", clock(), number, *used)
                lease.release(*used)
            elif what == "kill":
                member.kill()
                parent.forget(member.member)
                for ended in [each for each in leases if each[0] is member]:
                    leases.remove(ended)
                    for part in ended[2].parts:
                        part[1].running -= 1  # all that was foreseen stays used
                members[members.index(member)] = MemberProcess(memory, member.member)
        for member in members:
            member.kill()
    assert outcomes["kill"] >= 3
    assert outcomes["let in"] >= 10


def take(
    member: MemberProcess,
    one: MemoryCounters,
    leases: list[tuple[MemberProcess, int, MemoryLease]],
    chance: random.Random,
    clock: Clock,
) -> bool:
    """Ask the process and the oracle; both let it in, or both refuse with the same words."""
    scopes = chance.choice([[0], [1], [0, 1]])
    need = Tokens(chance.randrange(50), chance.randrange(50))
    answer = member.do("take", clock(), scopes, need.input, need.output)
    outcome = of_oracle(one, scopes, need)
    if isinstance(outcome, str):
        assert answer == outcome
        return False
    assert isinstance(answer, int)
    leases.append((member, answer, outcome))
    return True


def of_oracle(one: MemoryCounters, scopes: list[int], need: Tokens) -> MemoryLease | str:
    """The lease, or the words of the refusal."""
    try:
        return one.take_now([SCOPES[number] for number in scopes], lambda: need)
    except RateLimited as refused:
        return refused.message


@pytest.mark.parametrize("writes", [1, 2, 4, 5, 7, 9])
@pytest.mark.parametrize("what", ["take", "end"])
def test_who_dies_in_the_middle_leaves_whole_counts(what: str, writes: int) -> None:
    clock = Clock()
    with memory_of(WORDS) as memory:
        parent = SharedCounters(memory, 0, PLACES, clock)
        member = MemberProcess(memory, 1)
        assert member.do("take", clock(), [0, 1], 10, 20) == 0
        clock.pass_ms(300)
        step = ["take", clock(), [0, 1], 3, 4] if what == "take" else ["end", clock(), 0, 12, 25]
        with pytest.raises(EOFError):
            member.do("die", writes, *step)
        member.kill()
        parent.forget(1)
        with parent.take_now(SCOPES, lambda: Tokens(1, 1)):
            for at in PLACES.values():
                check(memory, at)
                assert list(memory.numbers[at + MEMBERS_AT : at + RING_AT]) == [1] + [0] * 63
        requests = memory.numbers[PLACES[SCOPES[0].id] + 1]
        assert requests in ((2, 3) if what == "take" else (2,))


async def test_a_lease_ends_also_while_another_process_holds_the_lock() -> None:
    clock = Clock()
    with memory_of(WORDS) as memory:
        parent = SharedCounters(memory, 0, PLACES, clock)
        lease = parent.take_now(SCOPES, lambda: Tokens(5, 5))
        member = MemberProcess(memory, 1)
        assert member.do("stop", 3, "take", clock(), [0, 1], 1, 1) is None
        await eventually(lambda: asyncio.to_thread(member.stopped))
        lease.release(4, 4)
        with pytest.raises(StoreUnavailable):
            parent.take_now(SCOPES, lambda: Tokens(1, 1))
        member.kill()
        parent.forget(1)
        with parent.take_now(SCOPES, lambda: Tokens(1, 1)):
            for at in PLACES.values():
                check(memory, at)
                assert memory.numbers[at + 4] == 1


def check(memory: SharedMemory, at: int) -> None:
    """Every sum is that of its parts."""
    numbers = memory.numbers
    for number in range(3):
        start = at + RING_AT + number * MINUTE
        assert numbers[at + 1 + number] == sum(numbers[start : start + MINUTE])
    assert numbers[at + 4] == sum(numbers[at + MEMBERS_AT : at + RING_AT])
