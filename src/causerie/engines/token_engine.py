"""Text engines whose tokens are read here: a vocabulary, and completions by a server.

Knows neither how a server is started nor who watches it.
"""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Generic, TypeVar

from llguidance import LLTokenizer

from causerie.engines.base import ModelFacts, Output, PromptTooLong, TextRequest, Token
from causerie.engines.grammar_matcher import Admitted, GrammarMatcher, Guided, Spelling, words
from causerie.engines.vocabulary import IndexedVocabulary
from causerie.engines.weights.vocabulary import TokenType

S = TypeVar("S")
"""What speaks to a server."""


class TokenEngine(ABC, Generic[S]):
    """One model, completed by servers that a client of type ``S`` speaks to.

    A subclass says where the vocabulary is read from, and how one generation goes.
    """

    keeps_grammars = True
    """Whether a server itself follows a grammar from its beginning."""

    def __init__(self) -> None:
        self._words_read: IndexedVocabulary | None = None
        self._guidance: LLTokenizer | None = None

    @abstractmethod
    async def facts(self) -> ModelFacts:
        """Return the facts of the loaded model."""

    @abstractmethod
    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        """Return the token ids; no beginning-of-text token is added."""

    @abstractmethod
    def _read(self) -> IndexedVocabulary:
        """Return the vocabulary. Blocks; raise :class:`WeightsError` or :class:`OSError`."""

    @abstractmethod
    def _run(
        self, client: S, words: IndexedVocabulary, request: TextRequest
    ) -> AbstractAsyncContextManager[AsyncGenerator[Output, None]]:
        """Yield one generation that begins with the grammar's beginning."""

    @abstractmethod
    async def _sample(
        self, client: S, words: IndexedVocabulary, request: TextRequest, admitted: Admitted
    ) -> Token:
        """Draw one of the tokens, also where it ends in the middle of a character."""

    async def texts(self, tokens: Sequence[int], *, visible: Sequence[str] = ()) -> list[str]:
        """Return the text that each token adds to the output."""
        spelling = await self._spelling(visible)
        return [spelling(token) for token in tokens]

    @asynccontextmanager
    async def completion(
        self, client: S, context: int, request: TextRequest
    ) -> AsyncIterator[AsyncGenerator[Output, None]]:
        """Yield one completion, by a server whose requests have ``context`` tokens at most.

        Leaving closes the connection, which frees the slot.
        """
        room = context - len(request.prompt)
        if room < 1:
            raise PromptTooLong(len(request.prompt), context)
        if request.max_tokens > room:
            request = replace(request, max_tokens=room)
        known = await self._words()
        held = request.grammar is not None and not self.keeps_grammars
        goes_on = held or request.accepted or request.resumed
        made = (
            self._guided(client, known, request) if goes_on else self._run(client, known, request)
        )
        async with made as outputs:
            yield outputs

    @asynccontextmanager
    async def _guided(
        self, client: S, known: IndexedVocabulary, request: TextRequest
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
        ids = (await self.facts()).control_tokens.values()
        hidden = {id for id in ids if vocabulary.types[id] != TokenType.USER_DEFINED}
        return Spelling(vocabulary, frozenset(hidden.union(vocabulary.end)), visible, behind)

    async def _words(self) -> IndexedVocabulary:
        if self._words_read is None:
            self._words_read = await asyncio.to_thread(self._read)
        return self._words_read
