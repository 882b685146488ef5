"""One request on its way through the servers of a model: with one, or with several in turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace

from causerie.engines.base import EngineFailed, Output, Stopped, TextRequest, Token
from causerie.engines.pool.turn import Choose, Turn

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
    """``begin``, read the ``outputs``, and ``leave`` in any case."""

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
        """Leave the server; raise the failure where no other one can help."""
        await self._end(failure, "" if failure.refused else str(failure))
        if failure.refused or len(self._tried) >= self._most:
            raise failure

    def _rest(self) -> TextRequest:
        """Return what is left of the request: behind the tokens that have been made."""
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
        """Return the end of a generation that lacked nothing else when its server failed."""
        if self._made and self._made[-1] in self._ends and not self._request.ignore_eos:
            return Stopped("stop", len(self._request.prompt), len(self._made))
        if len(self._made) >= self._request.max_tokens:
            return Stopped("length", len(self._request.prompt), len(self._made))
        return None

    def _whole(self, stopped: Stopped) -> Stopped:
        """Return the end as if one server had made all of it."""
        return replace(
            stopped,
            prompt_tokens=len(self._request.prompt),
            completion_tokens=self._before + stopped.completion_tokens,
            cached_tokens=0,  # the first one did not come to tell
        )
