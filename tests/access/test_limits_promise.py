"""The promise of limits that replicas share, however requests of several replicas run and replicas
die: never more than the limit, and nobody is refused while there is room.

A book is kept alongside, the slow and obvious way. What a replica asked for as it died may count or
not: nobody is let in because of it, and a refusal may be its doing.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from secrets import token_hex

from casekit import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from limitkit import MINUTE, TENTH, Book, Clock, Seen, key, model, replica
from valkey.asyncio import Valkey
from valkeyserver import ValkeyServer

from causerie.access.limits import Lease, RateScope, Tokens
from causerie.distributed.limits import DistributedCounters, DistributedLease
from causerie.errors import RateLimited, UpstreamFailed

KEY = key(requests_per_minute=6, tokens_per_minute=120, concurrent=2)
MODEL = model(requests_per_minute=9, input_tokens_per_minute=70, output_tokens_per_minute=80)
numbers = st.integers(0, 100)
groups = st.sampled_from([(KEY,), (MODEL,), (KEY, MODEL)])
needs = st.one_of(st.just(Tokens(1, 1)), st.builds(Tokens, st.integers(0, 60), st.integers(0, 40)))


@dataclass
class Running:
    lease: Lease
    seen: Seen


@dataclass
class Member:
    """A replica and the requests that run in it."""

    counters: DistributedCounters
    stack: AsyncExitStack
    running: list[Running] = field(default_factory=list)


class Promise(RuleBasedStateMachine):
    """Replicas that limit a key and a model together."""

    server: ValkeyServer

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.began = self.clock()
        self.prefix = token_hex(8)
        self.members: list[Member] = []
        self.book, self.perhaps = Book(), Book()
        self.dead: list[str] = []  # processes whose running requests count still
        self.dead_seen: list[Seen] = []

    def teardown(self) -> None:
        for member in self.members:
            self.runner.run(member.stack.aclose())
        self.runner.close()

    @initialize(count=st.integers(1, 3))
    def begin(self, count: int) -> None:
        for _ in range(count):
            self.members.append(self.runner.run(self._joined()))

    async def _joined(self) -> Member:
        stack = AsyncExitStack()
        made = await stack.enter_async_context(replica(self.server, prefix=self.prefix))
        return Member(DistributedCounters(made, now=lambda: self.clock() // 1000), stack)

    @property
    def now(self) -> int:
        return (self.clock() - self.began) // 1_000_000

    def _member(self, number: int) -> Member:
        return self.members[number % len(self.members)]

    def _let_in(
        self, member: Member, scopes: tuple[RateScope, ...], need: Tokens, lease: Lease
    ) -> None:
        seen = Seen(self.now, scopes, need, [(self.now, need)])
        self.book.seen.append(seen)
        member.running.append(Running(lease, seen))

    def _room(self, scopes: tuple[RateScope, ...], need: Tokens) -> bool:
        """Return whether a refusal is wrong: there is room whatever the dead had taken."""
        return Book(self.book.seen + self.perhaps.seen).fits(scopes, need, self.now, MINUTE)

    @rule(milliseconds=st.one_of(st.integers(0, 300), st.integers(0, 30_000), st.just(MINUTE)))
    def wait(self, milliseconds: int) -> None:
        self.clock.pass_ms(milliseconds)

    @rule(asked=st.lists(numbers, min_size=1, max_size=8), scopes=groups, need=needs)
    def ask(self, asked: list[int], scopes: tuple[RateScope, ...], need: Tokens) -> None:
        """One request, or several of several replicas at the same time."""
        members = [self._member(number) for number in asked]

        async def gathered() -> list[Lease | BaseException]:
            found = [each.counters.take(scopes, lambda: need) for each in members]
            return await asyncio.gather(*found, return_exceptions=True)

        refused, last = False, None
        for member, found in zip(members, self.runner.run(gathered()), strict=True):
            if isinstance(found, DistributedLease):
                self._let_in(member, scopes, need, found)
                last = self.book.seen[-1]
            else:
                assert isinstance(found, RateLimited), found
                refused = True
        assert not (refused and self._room(scopes, need)), "refused while there is room"
        if last is not None:
            others = Book([each for each in self.book.seen if each is not last])
            assert others.fits(scopes, need, self.now, MINUTE - TENTH), (
                "let in although it was full"
            )

    @precondition(lambda self: any(each.running for each in self.members))
    @rule(number=numbers, truth=needs, fails=st.booleans())
    def end(self, number: int, truth: Tokens, fails: bool) -> None:
        running = [(member, one) for member in self.members for one in member.running]
        member, one = running[number % len(running)]
        member.running.remove(one)
        seen = one.seen
        if fails:  # before a target was reached, so it does not count
            one.lease.__exit__(None, UpstreamFailed("away"), None)
            self.book.seen.remove(seen)
        else:
            one.lease.release(truth.input, truth.output)
            need = seen.reserved
            within = Tokens(min(truth.input, need.input), min(truth.output, need.output))
            more = Tokens(truth.input - within.input, truth.output - within.output)
            seen.counts = [(seen.at, within), (self.now, more)]
            seen.running = False
        self.runner.run(self._told(member))

    async def _told(self, member: Member) -> None:
        """Wait until what was given back in the background is there: an answer comes after it."""
        (await member.counters.take((), Tokens)).release(0, 0)

    @rule(
        number=numbers, asking=st.integers(0, 3), scopes=groups, need=needs, steps=st.integers(0, 8)
    )
    def crash(
        self, number: int, asking: int, scopes: tuple[RateScope, ...], need: Tokens, steps: int
    ) -> None:
        """A replica dies while it asks for something; another one comes in its place."""
        member = self._member(number)

        async def die() -> list[Lease | BaseException]:
            tasks = [
                asyncio.ensure_future(member.counters.take(scopes, lambda: need))
                for _ in range(asking)
            ]
            for _ in range(steps):
                await asyncio.sleep(0)
            await member.stack.aclose()
            return await asyncio.gather(*tasks, return_exceptions=True)

        for found in self.runner.run(die()):
            known = self.book if isinstance(found, DistributedLease) else self.perhaps
            known.seen.append(Seen(self.now, scopes, need, [(self.now, need)]))
            self.dead_seen.append(known.seen[-1])
        self.dead.append(member.counters.replica.process)
        self.dead_seen += [one.seen for one in member.running]
        self.members[self.members.index(member)] = self.runner.run(self._joined())

    @precondition(lambda self: self.dead)
    @rule()
    def bury(self) -> None:
        """The lives of dead replicas end in the server."""

        async def ended() -> None:
            processes = self.members[0].counters.replica.key("processes")
            async with Valkey.from_url(self.server.url) as client:
                await client.zadd(processes, dict.fromkeys(self.dead, 1))

        self.runner.run(ended())
        for seen in self.dead_seen:
            seen.running = False
        self.dead.clear()
        self.dead_seen.clear()


def test_the_promise_holds_however_requests_run_and_replicas_die(valkey: ValkeyServer) -> None:
    class Case(Promise):
        server = valkey

    run_state_machine_as_test(  # type: ignore[no-untyped-call]  # hypothesis leaves it untyped
        Case,
        settings=settings(
            max_examples=examples(60),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
