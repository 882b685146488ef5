"""One request on its way through a pool: with one member, or with several in turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import AsyncExitStack
from dataclasses import replace
from time import monotonic

from causerie.engines.base import EngineFailed, Output, Stopped, TextRequest, Token
from causerie.engines.pool.member import Member
from causerie.engines.pool.members import Members
from causerie.engines.pool.prefix_index import chain

_MOST_MEMBERS = 3  # that one request may try: it may be what they fail by


class PoolGeneration:
    """``begin``, read the ``outputs``, and ``leave`` in any case. ``ends`` are ids of end tokens.

    Where a member fails in the middle, another one goes on from the very same tokens.
    """

    def __init__(self, members: Members, request: TextRequest, ends: Collection[int]) -> None:
        self._members = members
        self._request = request
        self._ends = ends
        self._blocks = chain(request.prompt)
        self._made: list[int] = []
        self._before = 0  # of those made, by members that have failed
        self._tried: list[Member] = []
        self._member: Member | None = None
        self._unread = 0
        self._read = 0  # by the present member, of the prompt
        self._since = 0.0  # when it got the prompt
        self._stack = AsyncExitStack()
        self._there: AsyncIterator[Output]

    async def begin(self) -> None:
        """Enter the member of choice, or the next one; raise :class:`EngineFailed`."""
        rest = self._rest()
        while True:
            member, self._unread = self._members.enter(rest.prompt, self._blocks, self._tried)
            self._member = member
            self._read, self._since = self._unread, monotonic()
            self._tried.append(member)
            try:
                generation = member.engine.generate(rest)
                self._there = await self._stack.enter_async_context(generation)
                return
            except EngineFailed as failure:
                await self._failed(member, failure)

    async def outputs(self) -> AsyncGenerator[Output, None]:
        """Yield what the members make, as if it were one."""
        while True:
            try:
                async for output in self._there:
                    if isinstance(output, Token):
                        if self._unread:
                            self._answered()
                        self._made.append(output.id)
                    elif isinstance(output, Stopped) and self._before:
                        output = self._whole(output)
                    yield output
                return
            except EngineFailed as failure:
                if self._member is None:
                    raise
                await self._failed(self._member, failure)
            if stopped := self._complete():
                yield stopped
                return
            self._before = len(self._made)
            await self.begin()

    async def leave(self, failure: BaseException | None) -> None:
        """Free the member's slot."""
        member, self._member = self._member, None
        if member is None:
            return
        stack, self._stack = self._stack, AsyncExitStack()
        try:
            if failure is None:
                await stack.aclose()
            else:
                await stack.__aexit__(type(failure), failure, failure.__traceback__)
        finally:
            self._members.leave(member, self._unread, self._blocks)
            self._unread = 0
        if failure is None:
            member.answered()
            member.cache.expect(self._read, self._since)
            # The reply is in its cache too, for the next turn of the conversation.
            blocks = chain([*self._request.prompt, *self._made], self._blocks)
            self._members.index.add(member.name, blocks[len(self._blocks) :])

    def _answered(self) -> None:
        if self._member is not None:
            self._member.unread -= self._unread
            self._member.answered()
        self._unread = 0

    async def _failed(self, member: Member, failure: EngineFailed) -> None:
        """Leave the member; raise the failure where no other one can help."""
        await self.leave(failure)
        if failure.refused:
            raise failure
        member.failed(str(failure))
        if len(self._tried) >= _MOST_MEMBERS:
            raise failure

    def _rest(self) -> TextRequest:
        """Return what is left of the request: behind the tokens that have been made."""
        request, made = self._request, self._made
        if not made:
            return request
        prompt = [*request.prompt, *made]
        self._blocks = chain(prompt, self._blocks)
        return replace(
            request,
            prompt=prompt,
            max_tokens=request.max_tokens - len(made),
            accepted=(*request.accepted, *made) if request.grammar is not None else (),
        )

    def _complete(self) -> Stopped | None:
        """Return the end of a generation that lacked nothing else when its member failed."""
        if self._made and self._made[-1] in self._ends and not self._request.ignore_eos:
            return Stopped("stop", len(self._request.prompt), len(self._made))
        if len(self._made) >= self._request.max_tokens:
            return Stopped("length", len(self._request.prompt), len(self._made))
        return None

    def _whole(self, stopped: Stopped) -> Stopped:
        """Return the end as if one member had made all of it."""
        return replace(
            stopped,
            prompt_tokens=len(self._request.prompt),
            completion_tokens=self._before + stopped.completion_tokens,
            cached_tokens=0,  # the first one did not come to tell
        )
