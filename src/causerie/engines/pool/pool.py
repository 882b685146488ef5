"""Several servers of one model as one engine.

Each is supervised by itself, and rests after failures. A request goes where most of its prompt
lies, unless there is much to do there (:mod:`causerie.engines.pool.choice`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from causerie.engines.base import (
    EngineFailed,
    EngineState,
    EngineStatus,
    ModelFacts,
    Output,
    TextRequest,
)
from causerie.engines.pool.discovery import Discovery, Lookup, MemberAddress, lookup
from causerie.engines.pool.generation import MOST_MEMBERS, generated
from causerie.engines.pool.kv_subscriber import KvEndpoint
from causerie.engines.pool.member_turn import MemberTurn
from causerie.engines.pool.members import Members
from causerie.engines.supervised import SupervisedEngine

_BEST_FIRST = (EngineState.READY, EngineState.LOADING, EngineState.FAILED)


class EnginePool:
    """Of the servers at ``addresses``; ``make`` builds the engine of one, without starting it.

    An address without a scheme is the name of one that is started here.

    A host name among the addresses may stand for several servers, which ``lookup`` finds.
    ``events`` says where a server publishes what its caches hold. ``close`` frees what the members
    share, once they have stopped.
    """

    def __init__(
        self,
        model: str,
        addresses: Sequence[str],
        make: Callable[[MemberAddress], SupervisedEngine[Any]],
        lookup: Lookup = lookup,
        events: Callable[[MemberAddress], Sequence[KvEndpoint]] = lambda _: (),
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._model = model
        self._close = close
        self._members = Members(make, events)
        self._news = asyncio.Event()
        self._started = False
        self._discovery = Discovery(self._renewed, lookup)
        self._discovery.renew(addresses)
        self._facts: ModelFacts | None = None
        self._facts_of: object = None

    @property
    def slots(self) -> int:
        """Return the number of concurrent requests of all members that can generate now."""
        return sum(member.engine.slots for member in self._members.ready())

    @property
    def memory_bytes(self) -> int:
        """Return the memory of all members in bytes; those that others run take none."""
        return sum(member.engine.memory_bytes for member in self._members.every())

    def renew(self, addresses: Sequence[str]) -> None:
        """Have these members from now on; those that leave finish what they have started."""
        self._discovery.renew(addresses)

    async def start(self) -> None:
        """Load the members, and return when one is ready; raise if all have failed.

        A name that stands for no server yet is waited for.
        """
        self._started = True
        self._discovery.start()
        self._begin()
        while not self._members.ready():
            members = self._members.every()
            if members and all(member.failure for member in members):
                raise EngineFailed(str(self._members.nobody()))
            self._news.clear()
            await self._news.wait()

    async def stop(self) -> None:
        """Have no more to do with any member."""
        self._started = False
        try:
            await self._discovery.stop()
            await self._members.stop()
        finally:
            self._close()

    def status(self) -> EngineStatus:
        """Return the status of the pool as of one engine, and of its members."""
        members = tuple(member.status() for member in self._members.every())
        ready = [one for one in members if one.state is EngineState.READY]
        states = {one.state for one in members}
        return EngineStatus(
            model=self._model,
            state=next((one for one in _BEST_FIRST if one in states), self._without_members()),
            slots=self.slots,
            busy=sum(one.busy for one in members),
            restarts=sum(one.restarts for one in members),
            idle_seconds=min((one.idle_seconds or 0.0 for one in ready), default=None),
            memory_bytes=self.memory_bytes,
            context=min((one.context or 0 for one in ready), default=None),
            detail="; ".join(filter(None, (_described(members), self._discovery.detail))),
            members=members,
        )

    async def facts(self) -> ModelFacts:
        """Return the facts that hold for every member: of contexts the least."""
        ready = self._members.ready()
        if not ready:
            raise self._members.nobody()
        facts_of = [(member.name, member.restarts) for member in ready]
        if self._facts is not None and facts_of == self._facts_of:
            return self._facts
        facts = replace(
            await ready[0].engine.facts(),
            context_length=min(member.engine.context for member in ready),
            parallel=sum(member.engine.slots for member in self._members.every()),
        )
        if self._facts is None or facts != self._facts:  # the chat knows them by identity
            self._facts = facts
        self._facts_of = facts_of
        return self._facts

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        """Return the token ids; no beginning-of-text token is added."""
        return await self.any().tokenize(pieces, special=special)

    async def texts(self, tokens: Sequence[int], *, visible: Sequence[str] = ()) -> list[str]:
        """Return the text that each token adds to the output."""
        return await self.any().texts(tokens, visible=visible)

    @asynccontextmanager
    async def generate(self, request: TextRequest) -> AsyncIterator[AsyncIterator[Output]]:
        """Yield one generation, by one member or by several in turn."""
        ends = (await self.facts()).end_tokens
        made = generated(self._members.choose, request, ends, MOST_MEMBERS)
        async with made as outputs:
            yield outputs

    def enter(self, prompt: Sequence[int], scope: str, tried: Collection[str]) -> MemberTurn:
        """Give a prompt to a member, for a generation that another process runs."""
        return self._members.enter(prompt, scope, tried)

    def any(self) -> SupervisedEngine[Any]:
        """Return the engine of a member that is ready; raise :class:`EngineFailed`."""
        ready = self._members.ready()
        if not ready:
            raise self._members.nobody()
        return ready[0].engine

    def _without_members(self) -> EngineState:
        return EngineState.LOADING if self._started else EngineState.ABSENT

    def _renewed(self, addresses: Sequence[MemberAddress]) -> None:
        """Have these members, now that their names are resolved."""
        self._members.renew(addresses)
        if self._started:
            self._begin()
            self._news.set()

    def _begin(self) -> None:
        for member in self._members.every():
            member.begin(self._news)


def _described(members: Sequence[EngineStatus]) -> str:
    """Return how many are ready, and what is known of one that is not."""
    away = [one for one in members if one.state is not EngineState.READY]
    if not away:
        return ""
    why = next((f": {one.model}: {one.detail}" for one in away if one.detail), "")
    return f"{len(away)} of {len(members)} members away{why}"
