"""Common base of text engines behind servers: child processes of ours, or other servers."""

from __future__ import annotations

import asyncio
import functools
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from llguidance import LLTokenizer

from causerie.engines.base import (
    EngineFailed,
    EngineState,
    EngineStatus,
    ModelFacts,
    Output,
    PromptTooLong,
    TextRequest,
    Token,
)
from causerie.engines.files import Files
from causerie.engines.grammar_matcher import Admitted, GrammarMatcher, Guided, Spelling, words
from causerie.engines.process import C, EngineClient
from causerie.engines.supervisor import Supervisor
from causerie.engines.vocabulary import IndexedVocabulary
from causerie.engines.watchdog import Pulse
from causerie.engines.weights.errors import WeightsError
from causerie.engines.weights.vocabulary import TokenType

C_co = TypeVar("C_co", bound=EngineClient, covariant=True)


class Served(Protocol[C_co]):
    """A server that has loaded: a child of ours, or one that others run, which has no ``pid``."""

    @property
    def client(self) -> C_co: ...
    @property
    def pid(self) -> int | None: ...

    async def ended(self) -> str:
        """Wait for its end, or until it no longer answers; return why, in a few words."""
        ...

    async def stop(self) -> None:
        """Have no more to do with it; a child of ours has ended then."""
        ...


class SupervisedEngine(ABC, Generic[C]):
    """One model in a supervised server, which a client of type ``C`` speaks to.

    A subclass says how the server is started or found, what is read from the model's
    ``files``, and how one generation goes.
    """

    keeps_grammars = True
    """Whether the server itself follows a grammar from its beginning."""

    def __init__(self, model: str, files: Files, load_seconds: float) -> None:
        self._model = model
        self._files = files
        self._load_seconds = load_seconds
        self._supervisor = Supervisor(model, self._spawn)
        self._words_read: IndexedVocabulary | None = None
        self._guidance: LLTokenizer | None = None
        self._busy = 0
        self._pulse = Pulse()

    @property
    @abstractmethod
    def slots(self) -> int:
        """Return the number of concurrent requests."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Return the estimated memory, in bytes."""

    @property
    @abstractmethod
    def context(self) -> int:
        """Return the maximum tokens of one request, prompt and output together."""

    @property
    def cache_tokens(self) -> int | None:
        """Return the tokens of a cache that requests share, if it bounds them; else ``None``."""
        return None

    @abstractmethod
    async def facts(self) -> ModelFacts:
        """Return the facts of the loaded model."""

    @abstractmethod
    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        """Return the token ids; no beginning-of-text token is added."""

    @abstractmethod
    async def _child(self) -> Served[C]:
        """Return a server that has loaded; raise :class:`EngineFailed`."""

    @abstractmethod
    def _read(self) -> IndexedVocabulary:
        """Return the vocabulary. Blocks; raise :class:`WeightsError` or :class:`OSError`."""

    @abstractmethod
    def _run(
        self, client: C, words: IndexedVocabulary, request: TextRequest
    ) -> AbstractAsyncContextManager[AsyncGenerator[Output, None]]:
        """Yield one generation that begins with the grammar's beginning."""

    @abstractmethod
    async def _sample(
        self, client: C, words: IndexedVocabulary, request: TextRequest, admitted: Admitted
    ) -> Token:
        """Draw one of the tokens, also where it ends in the middle of a character."""

    @property
    def pid(self) -> int | None:
        """Return the process id of a child of ours, while it is ready."""
        child = self._supervisor.child
        return child.pid if child is not None else None

    @property
    def ready(self) -> bool:
        """Return whether it can generate now."""
        return self._supervisor.child is not None

    @property
    def restarts(self) -> int:
        """Return how often its server was started or reached again."""
        return self._supervisor.restarts

    async def start(self) -> None:
        """Load the model; raise :class:`EngineFailed` with the reason."""
        try:
            await self._words()
        except (WeightsError, OSError) as error:
            raise EngineFailed(str(error)) from error
        await self._supervisor.start()

    async def stop(self) -> None:
        """End the child process; an external server keeps running."""
        await self._supervisor.stop()

    def status(self) -> EngineStatus:
        """Return the current status."""
        supervisor = self._supervisor
        return EngineStatus(
            model=self._model,
            state=supervisor.state,
            slots=self.slots,
            busy=min(self._busy, self.slots),
            restarts=supervisor.restarts,
            idle_seconds=time.monotonic() - self._pulse.beat,
            memory_bytes=self.memory_bytes,
            context=self.context,
            cache_tokens=self.cache_tokens,
            pid=self.pid,
            detail=supervisor.detail,
        )

    async def texts(self, tokens: Sequence[int], *, visible: Sequence[str] = ()) -> list[str]:
        """Return the text that each token adds to the output."""
        spelling = await self._spelling(visible)
        return [spelling(token) for token in tokens]

    @asynccontextmanager
    async def generate(self, request: TextRequest) -> AsyncIterator[AsyncIterator[Output]]:
        """Yield one completion; leaving closes the connection, which frees the slot."""
        client = self._client()
        room = self.context - len(request.prompt)
        if room < 1:
            raise PromptTooLong(len(request.prompt), self.context)
        if request.max_tokens > room:
            request = replace(request, max_tokens=room)
        known = await self._words()
        held = request.grammar is not None and not self.keeps_grammars
        goes_on = held or request.accepted or request.resumed
        made = (
            self._guided(client, known, request) if goes_on else self._run(client, known, request)
        )
        self._busy += 1
        try:
            async with made as outputs:
                yield outputs
                self._supervisor.proved()  # left in peace: a piece of work is done
        finally:
            self._busy -= 1

    @asynccontextmanager
    async def _guided(
        self, client: C, known: IndexedVocabulary, request: TextRequest
    ) -> AsyncIterator[AsyncGenerator[Output, None]]:
        """Yield one under a grammar that goes on behind what it has accepted."""
        vocabulary = known.vocabulary
        if self._guidance is None:
            self._guidance = await asyncio.to_thread(words, vocabulary, self._in_thread())
        guide = await asyncio.to_thread(
            GrammarMatcher,
            self._guidance,
            vocabulary,
            request.grammar or "",
            request.accepted,
            request.resumed,
        )
        run = functools.partial(self._run, client, known)
        sample = functools.partial(self._sample, client, known)
        spelling = await self._spelling(request.visible, request.prompt)
        async with aclosing(Guided(run, sample, request, guide, spelling).outputs()) as outputs:
            yield outputs

    def _in_thread(self) -> Callable[[str], list[int]]:
        """Tokenisation for a thread; this loop answers it meanwhile, without another thread."""
        loop = asyncio.get_running_loop()

        def tokenize(text: str) -> list[int]:
            asked = self.tokenize([text], special=False)
            return asyncio.run_coroutine_threadsafe(asked, loop).result()

        return tokenize

    async def _spelling(self, visible: Sequence[str], behind: Sequence[int] = ()) -> Spelling:
        vocabulary = (await self._words()).vocabulary
        hidden = frozenset((await self.facts()).control_tokens.values())
        written = {id for id, kind in enumerate(vocabulary.types) if kind == TokenType.USER_DEFINED}
        return Spelling(vocabulary, (hidden - written).union(vocabulary.end), visible, behind)

    async def _words(self) -> IndexedVocabulary:
        if self._words_read is None:
            self._words_read = await asyncio.to_thread(self._read)
        return self._words_read

    async def _spawn(self) -> Served[C]:
        await asyncio.to_thread(self._files.same)
        child = await self._child()
        try:
            await asyncio.to_thread(self._files.same)  # all the time that it took to load them
        except BaseException:
            await child.stop()
            raise
        return child

    def _client(self) -> C:
        supervisor = self._supervisor
        if supervisor.child is not None:
            return supervisor.child.client
        raise EngineFailed(
            supervisor.detail or "the engine is not running",
            loading=supervisor.state is EngineState.LOADING or supervisor.restarting,
            retry_after=supervisor.retry_after(),
        )
