"""Several servers of one model as one engine.

A request goes on its way with one server, or with several in turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

from causerie.engines.base import (
    EngineFailed,
    EngineState,
    EngineStatus,
    ModelFacts,
    Output,
    Stopped,
    TextRequest,
    Token,
)
from causerie.engines.pool.discovery import Discovery, Lookup, MemberAddress, lookup
from causerie.engines.pool.kv_events import KvEndpoint
from causerie.engines.pool.members import Members, MemberTurn
from causerie.engines.supervised import SupervisedEngine


class Turn(Protocol):
    """A server that has been chosen for a generation, and counts it until its ``end``."""

    @property
    def member(self) -> str:
        """Return the name of the server in its pool."""
        ...

    def generate(self, request: TextRequest) -> AbstractAsyncContextManager[AsyncIterator[Output]]:
        """Return the generation there."""
        ...

    def answered(self) -> None:
        """The first token has come, so the prompt has been read."""
        ...

    def end(self, made: Sequence[int] | None = None, failure: str = "") -> None:
        """The server does no more for it.

        ``made`` are the tokens of a generation that is complete; ``failure`` is what the server
        failed by. With neither, the generation was left, or refused.
        """
        ...


Choose = Callable[[Sequence[int], str, Collection[str]], Awaitable[Turn]]
"""Chooses for a prompt in a scope, none of the members that were tried; raises
:class:`EngineFailed`.
"""


class SoleTurn:
    """A generation by the only server of a model, of which nothing is learnt."""

    member = ""

    def __init__(self, engine: SupervisedEngine[Any]) -> None:
        self.engine = engine

    def generate(self, request: TextRequest) -> AbstractAsyncContextManager[AsyncIterator[Output]]:
        """As in :class:`Turn`."""
        return self.engine.generate(request)

    def answered(self) -> None:
        """As in :class:`Turn`."""

    def end(self, made: Sequence[int] | None = None, failure: str = "") -> None:
        """As in :class:`Turn`."""


MOST_MEMBERS = 3  # that one request may try: it may be what they fail by


@asynccontextmanager
async def generated(
    choose: Choose, request: TextRequest, ends: Collection[int], most: int
) -> AsyncIterator[AsyncIterator[Output]]:
    """Yield one generation, by one server or by ``most`` in turn. ``ends`` are ids of end tokens.

    Where a server fails in the middle, another one goes on from the very same tokens.
    """
    generation = _Generation(choose, request, ends, most)
    try:
        await generation.begin()
        async with aclosing(generation.outputs()) as outputs:
            yield outputs
    except BaseException as failure:
        await generation.leave(failure)
        raise
    await generation.leave(None)


class _Generation:
    def __init__(
        self, choose: Choose, request: TextRequest, ends: Collection[int], most: int
    ) -> None:
        self._choose = choose
        self._request = request
        self._ends = ends
        self._most = most
        self._made: list[int] = []
        self._before = 0  # of those made, by servers that have failed
        self._tried: list[str] = []
        self._turn: Turn | None = None
        self._answered = False  # by the present server
        self._stack = AsyncExitStack()
        self._there: AsyncIterator[Output]

    async def begin(self) -> None:
        """Enter the server of choice, or the next one; raise :class:`EngineFailed`."""
        rest = self._rest()
        while True:
            turn = self._turn = await self._choose(rest.prompt, rest.scope, self._tried)
            self._answered = False
            self._tried.append(turn.member)
            try:
                self._there = await self._stack.enter_async_context(turn.generate(rest))
                return
            except EngineFailed as failure:
                await self._failed(failure)

    async def outputs(self) -> AsyncGenerator[Output, None]:
        """Yield what the servers make, as if they were one."""
        while True:
            try:
                async for output in self._there:
                    if isinstance(output, Token):
                        if not self._answered:
                            self._note_answer()
                        self._made.append(output.id)
                    elif isinstance(output, Stopped) and self._before:
                        output = self._whole(output)
                    yield output
                return
            except EngineFailed as failure:
                if self._turn is None:
                    raise
                await self._failed(failure)
            if stopped := self._complete():
                yield stopped
                return
            self._before = len(self._made)
            await self.begin()

    async def leave(self, failure: BaseException | None) -> None:
        """Free the server's slot; without a failure, the generation is complete."""
        await self._end(failure, "")

    async def _end(self, failure: BaseException | None, why: str) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        stack, self._stack = self._stack, AsyncExitStack()
        made = None
        try:
            if failure is None:
                await stack.aclose()
                made = self._made[self._before :]
            else:
                await stack.__aexit__(type(failure), failure, failure.__traceback__)
        finally:
            turn.end(made, why)

    def _note_answer(self) -> None:
        self._answered = True
        if self._turn is not None:
            self._turn.answered()

    async def _failed(self, failure: EngineFailed) -> None:
        await self._end(failure, "" if failure.refused else str(failure))
        if failure.refused or len(self._tried) >= self._most:
            raise failure

    def _rest(self) -> TextRequest:
        request, made = self._request, self._made
        if not made:
            return request
        return replace(
            request,
            prompt=[*request.prompt, *made],
            max_tokens=request.max_tokens - len(made),
            accepted=(*request.accepted, *made) if request.grammar is not None else (),
        )

    def _complete(self) -> Stopped | None:
        if self._made and self._made[-1] in self._ends and not self._request.ignore_eos:
            return Stopped("stop", len(self._request.prompt), len(self._made))
        if len(self._made) >= self._request.max_tokens:
            return Stopped("length", len(self._request.prompt), len(self._made))
        return None

    def _whole(self, stopped: Stopped) -> Stopped:
        return replace(
            stopped,
            prompt_tokens=len(self._request.prompt),
            completion_tokens=self._before + stopped.completion_tokens,
            cached_tokens=0,  # the first one did not come to tell
        )


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
        self._members.renew(addresses)
        if self._started:
            self._begin()
            self._news.set()

    def _begin(self) -> None:
        for member in self._members.every():
            member.begin(self._news)


def _described(members: Sequence[EngineStatus]) -> str:
    away = [one for one in members if one.state is not EngineState.READY]
    if not away:
        return ""
    why = next((f": {one.model}: {one.detail}" for one in away if one.detail), "")
    return f"{len(away)} of {len(members)} members away{why}"
