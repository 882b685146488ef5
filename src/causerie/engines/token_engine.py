"""Text engines whose tokens are read here: a vocabulary, and constraints that resume in the
middle.

An engine's own constraints begin at the start. If a grammar has accepted a part already, its
state is followed here: the engine generates freely, and of its tokens only those that the
grammar admits are used. If it samples another one, that one token is sampled again from just
those that are admitted. The engine itself does the same with a grammar of its own (it samples
first and checks then), so both give the same distribution.

Knows llguidance and the vocabulary; knows neither HTTP nor how a server is started or watched.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, Literal, TypeVar

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from msgspec import structs

from causerie.engines.base import (
    EngineFailed,
    ModelFacts,
    NotAdmitted,
    Output,
    PromptTooLong,
    Started,
    Stopped,
    TextRequest,
    Token,
)
from causerie.engines.weights.vocabulary import TokenTable, TokenType


@dataclass(frozen=True, slots=True)
class IndexedVocabulary:
    """A ``vocabulary``, the bytes of its ``longest`` token, and a ``digest`` of its contents."""

    vocabulary: TokenTable
    longest: int
    digest: str

    @staticmethod
    def of(vocabulary: TokenTable) -> IndexedVocabulary:
        """Return the index of the vocabulary; takes some ten milliseconds."""
        digest = hashlib.blake2b(bytes(vocabulary.types), digest_size=8)
        for token in vocabulary.tokens:
            digest.update(len(token).to_bytes(4, "big") + token)
        longest = max(map(len, vocabulary.tokens), default=1)
        return IndexedVocabulary(vocabulary, longest, digest.hexdigest())

    def text(self, id: int | None) -> str:
        """Return the text of a token; empty if there is no such token."""
        if id is None or not 0 <= id < len(self.vocabulary.tokens):
            return ""
        return self.vocabulary.tokens[id].decode("utf-8", "replace")

    def least(self, pieces: Sequence[str | int]) -> int:
        """Return the fewest tokens that the texts among the pieces can be."""
        return characters(pieces) // self.longest


def characters(pieces: Sequence[str | int]) -> int:
    """Return the total length of the texts among the pieces, in characters."""
    return sum(len(piece) for piece in pieces if isinstance(piece, str))


Run = Callable[[TextRequest], AbstractAsyncContextManager[AsyncGenerator[Output, None]]]
Sample = Callable[[TextRequest, "Admitted"], Awaitable[Token]]

_RUN = re.compile("1+")
_SEED_STEP, _SEEDS = 1_000_003, 2**31  # seeds of one request must only differ
_RESUMED = 3  # tokens at most that begin a character and do not end it
_HIDDEN = (TokenType.CONTROL, TokenType.UNKNOWN)


class _Words:
    def __init__(self, vocabulary: TokenTable, tokenize: Callable[[str], list[int]]) -> None:
        self.tokens = list(vocabulary.tokens)
        self.special_token_ids = list(vocabulary.control.values())
        end = vocabulary.end[0] if vocabulary.end else len(self.tokens) - 1
        self.eos_token_id = self.bos_token_id = end
        self._tokenize = lru_cache(maxsize=1024)(tokenize)

    def __call__(self, text: bytes | str) -> list[int]:
        return self._tokenize(text if isinstance(text, str) else text.decode("utf-8", "replace"))


def words(vocabulary: TokenTable, tokenize: Callable[[str], list[int]]) -> LLTokenizer:
    """Return the vocabulary as llguidance knows it; takes a tenth of a second for 50,000 tokens."""
    return LLTokenizer(TokenizerWrapper(_Words(vocabulary, tokenize)))


@dataclass(frozen=True, slots=True)
class Admitted:
    """Tokens that a grammar admits next: ``spans`` of ids, first and last, without the end.

    ``ends``: the text may end.
    """

    spans: tuple[tuple[int, int], ...]
    ends: bool

    def ids(self) -> Iterator[int]:
        """Yield the ids, from the least."""
        for first, last in self.spans:
            yield from range(first, last + 1)

    def grammar(self) -> str:
        """Return an llguidance grammar of these tokens, and of the end where that is admitted."""
        spans = [f"{first}-{last}" for first, last in self.spans]
        options = [f"<[{','.join(spans)}]>"] if spans else []
        options += ['""'] if self.ends else []
        return "%llguidance {}\nstart: " + " | ".join(options)


class GrammarMatcher:
    """A grammar's state; used in threads, for it may ask the engine how a text is tokenised.

    Raises :class:`NotAdmitted` where it cannot go on behind ``resumed`` and ``accepted``.
    """

    def __init__(
        self,
        words: LLTokenizer,
        vocabulary: TokenTable,
        grammar: str,
        accepted: Sequence[int],
        resumed: str = "",
    ) -> None:
        self._end = vocabulary.end
        self._matcher = _behind(words, grammar, [*words.greedy_tokenize(resumed), *accepted])

    def takes(self, token: int) -> bool:
        """Go on behind a token, if it is admitted."""
        if token in self._end and self._matcher.is_accepting():
            return True
        if not _holds(self._matcher.compute_bitmask(), token):
            return False
        return self._matcher.consume_token(token)

    def is_end(self, token: int) -> bool:
        """Return whether a token ends a text."""
        return token in self._end

    def admitted(self) -> Admitted:
        """Return the tokens that are admitted next."""
        mask = self._matcher.compute_bitmask()
        spans = tuple(_spans(mask, self._end))
        return Admitted(spans, not spans or any(_holds(mask, id) for id in self._end))


def _behind(words: LLTokenizer, grammar: str, taken: list[int]) -> LLMatcher:
    matcher = LLMatcher(words, grammar, log_level=0)
    if matcher.try_consume_tokens(taken) == len(taken):
        return matcher
    matcher.compute_bitmask()
    if not matcher.is_error():
        raise NotAdmitted
    # It gave up: the work between two masks is bounded, and all tokens at once took more.
    matcher = LLMatcher(words, grammar, log_level=0)
    for token in taken:
        matcher.compute_bitmask()
        if not matcher.consume_token(token):
            raise NotAdmitted
    return matcher


class Spelling:
    """Text that tokens add to the output: complete characters, and control tokens if visible.

    The tokens ``behind`` are the output so far; a character that they begin is
    completed by the next tokens.
    """

    def __init__(
        self,
        vocabulary: TokenTable,
        hidden: frozenset[int],
        visible: Sequence[str],
        behind: Sequence[int] = (),
    ) -> None:
        self._vocabulary = vocabulary
        self._hidden = hidden
        self._visible = frozenset(visible)
        self._pending = b""
        for token in behind[-_RESUMED:]:
            _ = self(token)

    @property
    def whole(self) -> bool:
        """Return whether no character is incomplete."""
        return not self._pending

    def __call__(self, token: int) -> str:
        written = self.raw(token)
        if not written or self._is_control(token):
            return written.decode("utf-8", "replace")
        return self._written(self._pending + written)

    def raw(self, token: int) -> bytes:
        """Return the bytes of a token, even incomplete characters; empty if it is not visible."""
        if token >= len(self._vocabulary.tokens):  # a model may have more rows than words
            return b""
        raw = self._vocabulary.tokens[token]
        shown = not self._is_control(token) or raw.decode("utf-8", "replace") in self._visible
        return raw if shown else b""

    def _is_control(self, token: int) -> bool:
        return token in self._hidden or self._vocabulary.types[token] in _HIDDEN

    def _written(self, raw: bytes) -> str:
        self._pending = b""
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                self._pending = raw
                return ""
            return raw.decode("utf-8", "replace")


class Guided:
    """One generation under a grammar that has accepted a part.

    ``run`` is a generation of the engine's, ``sample`` draws one of the tokens admitted.
    """

    def __init__(
        self,
        run: Run,
        sample: Sample,
        request: TextRequest,
        guide: GrammarMatcher,
        spelling: Spelling,
    ) -> None:
        self._run = run
        self._sample = sample
        self._request = replace(request, grammar=None, accepted=(), resumed="")
        self._guide = guide
        self._spelling = spelling
        self._made: list[int] = []
        self._untold = 0  # tokens of a character that the engine did not come to end
        self._cached: int | None = None
        self._reason: Literal["stop", "length"] | None = None

    async def outputs(self) -> AsyncGenerator[Output, None]:
        """Yield the outputs as if of one run."""
        while self._reason is None:
            if self._spelling.whole:  # a stream cannot begin in the middle of a character
                async with aclosing(self._freely()) as outputs:
                    async for output in outputs:
                        yield output
            if self._reason is None:
                yield await self._drawn()
        yield Stopped(
            self._reason,
            len(self._request.prompt),
            len(self._made) + self._untold,
            cached_tokens=self._cached or 0,
        )

    async def _freely(self) -> AsyncGenerator[Output, None]:
        before = len(self._made)
        async with self._run(self._rest()) as outputs:
            async for output in outputs:
                if isinstance(output, Token):
                    if not await asyncio.to_thread(self._guide.takes, output.id):
                        return
                    yield self._taken(output)
                    continue
                if self._cached is None:
                    self._cached = output.cached_tokens
                    if isinstance(output, Started):
                        yield output
                if isinstance(output, Stopped):
                    told = len(self._made) - before
                    self._untold = max(output.completion_tokens - told, 0)
                    self._reason = output.reason

    async def _drawn(self) -> Token:
        admitted = await asyncio.to_thread(self._guide.admitted)
        token = await self._sample(self._rest(drawn=True), admitted)
        if not await asyncio.to_thread(self._guide.takes, token.id):
            raise EngineFailed("the engine did not keep to its grammar")
        if self._guide.is_end(token.id):
            self._reason = "stop"
        elif len(self._made) + 1 == self._request.max_tokens:
            self._reason = "length"
        return self._taken(token)

    def _rest(self, *, drawn: bool = False) -> TextRequest:
        # Each run has a seed of its own. With the same seed, the second draw of a token would use
        # the random number with which the first one was rejected, and so not be independent of it.
        sampling = self._request.sampling
        if sampling.seed is not None:
            turn = 2 * len(self._made) + drawn
            seed = (sampling.seed + turn * _SEED_STEP) % _SEEDS if turn else sampling.seed
            sampling = structs.replace(sampling, seed=seed)
        return replace(
            self._request,
            prompt=(*self._request.prompt, *self._made),
            max_tokens=self._request.max_tokens - len(self._made),
            sampling=sampling,
        )

    def _taken(self, token: Token) -> Token:
        self._made.append(token.id)
        # An engine that was asked for one token alone knows nothing of a character around it.
        raw = b"" if self._request.logprobs is None else self._spelling.raw(token.id)
        return structs.replace(token, text=self._spelling(token.id), raw=raw)


def _holds(mask: bytes, id: int) -> bool:
    return id // 8 < len(mask) and bool(mask[id // 8] >> (id % 8) & 1)


def _spans(mask: bytes, without: Sequence[int]) -> Iterator[tuple[int, int]]:
    bits = "".join(f"{byte:08b}"[::-1] for byte in mask)
    for run in _RUN.finditer(bits):
        first = run.start()
        for id in sorted(without):
            if first <= id < run.end():
                if first < id:
                    yield first, id - 1
                first = id + 1
        if first < run.end():
            yield first, run.end() - 1


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
        # The event loop answers the thread meanwhile, so no second thread is needed.
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
