"""Who holds the beginning of a prompt, against a model of the same; and whom a prompt goes to."""

from __future__ import annotations

import math
from itertools import takewhile

import pytest
from casekit import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from causerie.engines.pool import kv_events as prefix_index
from causerie.engines.pool.kv_events import BLOCK, PrefixIndex, chain, extended, root
from causerie.engines.pool.members import MemberLoad, least_cost

NAMES = st.sampled_from(["a", "b", "c", "d"])
# Few tokens, so that beginnings are shared.
TOKENS = st.lists(st.integers(0, 1), max_size=5).map(
    lambda bits: [bit for bit in bits for _ in range(BLOCK)]
)


@given(st.lists(st.integers(0, 200_000), max_size=100), st.integers(0, 100))
def test_a_chain_goes_on_from_its_beginning(tokens: list[int], cut: int) -> None:
    whole = chain(tokens)
    assert len(whole) == len(tokens) // BLOCK
    begun = chain(tokens[:cut])
    rest = extended(begun[-1] if begun else root(""), tokens[len(begun) * BLOCK :])
    assert [*begun, *rest] == whole


@given(st.lists(st.integers(0, 2), max_size=80), st.lists(st.integers(0, 2), max_size=80))
def test_chains_are_equal_as_far_as_their_tokens_are(one: list[int], other: list[int]) -> None:
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))
    blocks = zip(chain(one), chain(other), strict=False)
    assert len([True for left, right in blocks if left == right]) == same // BLOCK


class Holding(RuleBasedStateMachine):
    """An index without a bound that matters, and sets of blocks in its place."""

    @initialize()
    def begin(self) -> None:
        self.index = PrefixIndex(1_000_000)
        self.held: dict[str, set[int]] = {}

    @rule(name=NAMES, tokens=TOKENS)
    def add(self, name: str, tokens: list[int]) -> None:
        self.index.add(name, chain(tokens))
        self.held.setdefault(name, set()).update(chain(tokens))

    @rule(name=NAMES, tokens=TOKENS, at=st.integers(0, 4))
    def remove(self, name: str, tokens: list[int], at: int) -> None:
        self.index.remove(name, chain(tokens)[at:])
        self.held.get(name, set()).difference_update(chain(tokens)[at:])

    @rule(name=NAMES)
    def forget(self, name: str) -> None:
        self.index.forget(name)
        self.held.pop(name, None)

    @rule(tokens=TOKENS)
    def ask(self, tokens: list[int]) -> None:
        wanted = {
            name: run
            for name, held in self.held.items()
            if (run := len(list(takewhile(held.__contains__, chain(tokens)))))
        }
        assert self.index.runs(chain(tokens)) == wanted

    @invariant()
    def bounded(self) -> None:
        assert len(self.index) <= 1_000_000


TestHolding = Holding.TestCase
TestHolding.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)


def test_what_is_not_used_is_forgotten_and_what_is_used_is_not() -> None:
    index = PrefixIndex(64 * 64)
    kept = chain(range(BLOCK * 8))
    for at in range(2000):
        index.add("a", kept)
        index.add("b", chain([at, *range(BLOCK * 8)]))
        assert index.runs(kept) == {"a": 8}
        assert len(index) <= 64 * 64 + 64
    assert index.runs(chain([0, *range(BLOCK * 8)])) == {}
    assert index.runs(chain([1999, *range(BLOCK * 8)])) == {"b": 8}


def test_members_that_come_and_go_for_ever_leave_nothing_behind() -> None:
    index = PrefixIndex(10_000)
    blocks = chain(range(BLOCK * 2))
    index.add("stays", blocks)
    widest = 1 << (prefix_index._MOST_BITS + 2)
    for at in range(1000):
        index.add("stays", blocks)
        index.add(f"m{at}", blocks)
        assert index.runs(blocks)[f"m{at}"] == 2
        assert max(index._names_by_bit) < widest
        index.forget(f"m{at}")
    assert index.runs(blocks) in ({"stays": 2}, {})


LOADS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 100_000)), min_size=1, max_size=64
)  # fmt: skip


def members(loads: list[tuple[int, int]]) -> list[MemberLoad]:
    made = [MemberLoad(str(at)) for at in range(len(loads))]
    for member, (running, unread) in zip(made, loads, strict=True):
        member.running, member.unread = running, unread
    return made


@given(LOADS)
def test_without_a_common_beginning_the_one_with_least_to_do_is_chosen(
    loads: list[tuple[int, int]],
) -> None:
    every = members(loads)
    chosen = least_cost(every, 1000, {})
    assert not any(one.running < chosen.running and one.unread < chosen.unread for one in every)


@given(LOADS, st.booleans(), st.data())
def test_more_than_a_share_is_carried_only_for_what_no_other_member_holds(
    loads: list[tuple[int, int]], alone: bool, data: st.DataObject
) -> None:
    every = members(loads)
    holder, other = data.draw(st.tuples(st.sampled_from(every), st.sampled_from(every)))
    alone = alone or other is holder
    share = max(8, math.ceil(1.25 * (sum(one.running for one in every) + 1) / len(every)))
    held = {holder.name: 6000} | ({} if alone else {other.name: 6000})
    chosen = least_cost(every, 100_000, held)
    if chosen is holder and holder.running >= (2 * share if alone else share):
        # What it holds counted for nothing, as what the other one does beyond its share.
        counts = not alone and other.running < share
        assert chosen is least_cost(every, 100_000, {other.name: 6000} if counts else {})


def test_a_conversation_stays_with_a_member_that_has_more_than_its_share() -> None:
    holder, idle = members([(12, 0), (0, 0)])
    beginning = {holder.name: 100, idle.name: 100}
    assert least_cost([holder, idle], 3_000, beginning) is idle
    assert least_cost([holder, idle], 3_000, beginning | {holder.name: 150}) is holder


@pytest.mark.parametrize(("wait", "again"), [(1_900, False), (2_100, True)])
def test_a_beginning_is_read_again_where_waiting_takes_twice_as_long(
    wait: int, again: bool
) -> None:
    holder, idle = members([(0, wait), (0, 0)])
    chosen = least_cost([holder, idle], 1_500, {holder.name: 1_000 // BLOCK})
    assert (chosen is idle) is again


def test_a_beginning_that_everybody_sends_spreads() -> None:
    every = members([(0, 0)] * 16)
    index = PrefixIndex(100_000)
    for at in range(16 * 40):
        blocks = chain([*range(BLOCK * 100), at])
        member = least_cost(every, BLOCK * 100 + 1, index.runs(blocks))
        member.chosen = at
        member.running += 1
        index.add(member.name, blocks)
    assert max(one.running for one in every) <= 1.25 * 40 + 1
    assert sum(one.running > 0 for one in every) >= 12
    few = members([(0, 0)] * 16)
    for _ in range(6):  # few requests stay together: nothing is gained by reading it again
        member = least_cost(few, BLOCK * 100 + 1, {few[3].name: 100})
        member.running += 1
    assert few[3].running == 6
