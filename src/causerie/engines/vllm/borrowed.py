"""An engine of vLLM that another process of the service keeps.

That process watches the servers, and chooses one for each generation. Text becomes tokens here,
and tokens become text here; they go to the server and come from it without that process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from causerie.engines.base import EngineFailed, ModelFacts, Output, TextRequest, Token
from causerie.engines.grammar_matcher import Admitted
from causerie.engines.pool.generation import generated
from causerie.engines.token_engine import TokenEngine
from causerie.engines.vllm.client import VllmClient
from causerie.engines.vllm.completion import Completion, completion, of_admitted, sampled
from causerie.engines.vllm.folder import ServedFolder
from causerie.engines.vllm.lent import LentEngine, LentServer, VllmPlace
from causerie.engines.vocabulary import IndexedVocabulary
from causerie.engines.watchdog import Pulse
from causerie.engines.weights.errors import WeightsError
from causerie.transport.client import Reach


class BorrowedServer(Protocol):
    """A server that was chosen for one generation; its ``pulse`` beats with what comes from it."""

    @property
    def server(self) -> LentServer: ...
    @property
    def pulse(self) -> Pulse: ...

    def answered(self) -> None:
        """The first token has come."""
        ...

    def end(self, made: Sequence[int] | None = None, failure: str = "") -> None:
        """As :meth:`causerie.engines.pool.turn.Turn.end`."""
        ...


Borrow = Callable[[Sequence[int], str, Collection[str]], Awaitable[BorrowedServer]]
"""Asks for a server for a prompt in a scope, none that was tried; raises :class:`EngineFailed`."""


@dataclass(frozen=True, slots=True)
class _Connected:
    """The client of the server of one generation, with its pulse."""

    client: VllmClient
    pulse: Pulse


class BorrowedVllm(TokenEngine[_Connected]):
    """A model whose servers are asked for with ``borrow``, and reached as ``reach`` says.

    It is usable once :meth:`learn` has been told of it.
    """

    def __init__(self, borrow: Borrow, reach: Callable[[VllmPlace], Awaitable[Reach]]) -> None:
        super().__init__()
        self._borrow = borrow
        self._reach = reach
        self._lent: LentEngine | None = None
        self._folder: ServedFolder | None = None
        self._files = ""  # digest of the folder's
        self._reading = asyncio.Lock()
        self._clients: dict[VllmPlace, VllmClient] = {}

    def learn(self, lent: LentEngine) -> None:
        """Go by this from now on."""
        self._lent = lent

    @property
    def known(self) -> ModelFacts | None:
        """Return the facts of the model; ``None`` where nothing was told yet."""
        return None if self._lent is None else self._lent.facts

    async def facts(self) -> ModelFacts:
        """Return the facts; read the tokenizer before, the first time."""
        lent = self._told()
        if self._files != lent.files:
            async with self._reading:
                if self._files != lent.files:
                    self._folder = await asyncio.to_thread(_folder, lent)
                    self._words_read, self._guidance = self._folder.words()[1], None
                    self._files = lent.files
        return lent.facts

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        """Return the token ids, as :meth:`ServedFolder.tokenize` reads them."""
        context = (await self.facts()).context_length
        assert self._folder is not None
        return await self._folder.tokenize(pieces, special=special, context=context)

    @asynccontextmanager
    async def generate(self, request: TextRequest) -> AsyncIterator[AsyncIterator[Output]]:
        """Yield one generation, by one server or by several in turn."""
        ends = (await self.facts()).end_tokens
        async with generated(self._turn, request, ends, self._told().members) as outputs:
            yield outputs

    async def close(self) -> None:
        """Close all connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    async def _turn(
        self, prompt: Sequence[int], scope: str, tried: Collection[str]
    ) -> _BorrowedTurn:
        borrowed = await self._borrow(prompt, scope, tried)
        try:
            client = await self._client(borrowed.server.place)
        except BaseException:
            borrowed.end()
            raise
        return _BorrowedTurn(self, client, borrowed)

    async def _client(self, place: VllmPlace) -> VllmClient:
        client = self._clients.get(place)
        if client is None:
            reach = await self._reach(place)
            self._clients = {at: one for at, one in self._clients.items() if one.connected}
            made = VllmClient(place.address, reach, place.key, model=place.model)
            client = self._clients.setdefault(place, made)
        return client

    def _told(self) -> LentEngine:
        if self._lent is None:
            raise EngineFailed("the engine is not known here yet", loading=True)
        return self._lent

    def _read(self) -> IndexedVocabulary:
        assert self._folder is not None
        return self._folder.words()[1]

    def _in_thread(self) -> Callable[[str], list[int]]:
        assert self._folder is not None
        tokenizer, _ = self._folder.words()
        return lambda text: tokenizer.ids([text], special=False)

    def _run(
        self, client: _Connected, words: IndexedVocabulary, request: TextRequest
    ) -> Completion:
        return completion(client.client, words, request, client.pulse)

    async def _sample(
        self,
        client: _Connected,
        words: IndexedVocabulary,
        request: TextRequest,
        admitted: Admitted,
    ) -> Token:
        return await sampled(self._run(client, words, of_admitted(request, admitted)))


class _BorrowedTurn:
    """A generation at a server that was borrowed for it."""

    def __init__(self, engine: BorrowedVllm, client: VllmClient, borrowed: BorrowedServer) -> None:
        self._engine = engine
        self._connected = _Connected(client, borrowed.pulse)
        self._context = borrowed.server.context
        self.member = borrowed.server.member
        self.answered, self.end = borrowed.answered, borrowed.end

    def generate(self, request: TextRequest) -> AbstractAsyncContextManager[AsyncIterator[Output]]:
        """Return the generation by the server."""
        return self._engine.completion(self._connected, self._context, request)


def _folder(lent: LentEngine) -> ServedFolder:
    """Return the folder of the engine with its tokenizer read. Blocks.

    Raises :class:`EngineFailed`, also if its files are others than those that were loaded.
    """
    folder = ServedFolder(Path(lent.folder), weights=lent.weights)
    if folder.files.digest != lent.files:
        raise EngineFailed(
            f"the files in {lent.folder} have changed since the model was loaded; "
            "start the service again"
        )
    try:
        folder.words()
    except (WeightsError, OSError) as error:
        raise EngineFailed(str(error)) from error
    return folder
