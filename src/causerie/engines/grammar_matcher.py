"""Grammars continued in the middle of an output, for engines that can only begin them anew.

The state of the grammar is followed here: the engine generates freely, and of its tokens only
those that the grammar admits are used. If it samples another one, that one token is sampled again
from just those that are admitted. An engine with a grammar of its own does the same, so both give
the same distribution.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from msgspec import structs

from causerie.engines import base
from causerie.engines.weights.vocabulary import TokenTable, TokenType

Generation = AbstractAsyncContextManager[AsyncGenerator[base.Output, None]]
Sample = Callable[[base.TextRequest, "Admitted"], Awaitable[base.Token]]

_RUN = re.compile("1+")
_SEED_STEP, _SEEDS = 1_000_003, 2**31  # seeds of one request must only differ
_RESUMED = 3  # tokens at most that begin a character and do not end it
_HIDDEN = (TokenType.CONTROL, TokenType.UNKNOWN)


class _GuidanceVocabulary:
    def __init__(self, vocabulary: TokenTable, tokenize: Callable[[str], list[int]]) -> None:
        self.tokens = list(vocabulary.tokens)
        self.special_token_ids = list(vocabulary.control.values())
        end = vocabulary.end[0] if vocabulary.end else len(self.tokens) - 1
        self.eos_token_id = self.bos_token_id = end
        self._tokenize = lru_cache(maxsize=1024)(tokenize)

    def __call__(self, text: bytes | str) -> list[int]:
        return self._tokenize(text if isinstance(text, str) else text.decode("utf-8", "replace"))


def guidance_tokenizer(vocabulary: TokenTable, tokenize: Callable[[str], list[int]]) -> LLTokenizer:
    """Return the vocabulary as llguidance knows it; takes a tenth of a second for 50,000 tokens."""
    return LLTokenizer(TokenizerWrapper(_GuidanceVocabulary(vocabulary, tokenize)))


@dataclass(frozen=True, slots=True)
class Admitted:
    """Tokens that a grammar admits next."""

    spans: tuple[tuple[int, int], ...]  # of ids, first and last, without the end of the text
    ends: bool  # the text may end

    def ids(self) -> Iterator[int]:
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
        self.end = vocabulary.end
        taken = [*words.greedy_tokenize(resumed), *accepted]
        self._matcher = LLMatcher(words, grammar, log_level=0)
        if self._matcher.try_consume_tokens(taken) == len(taken):
            return
        self._matcher.compute_bitmask()
        if not self._matcher.is_error():
            raise base.NotAdmitted
        # It gave up: the work between two masks is bounded, and all tokens at once took more.
        self._matcher = LLMatcher(words, grammar, log_level=0)
        for token in taken:
            self._matcher.compute_bitmask()
            if not self._matcher.consume_token(token):
                raise base.NotAdmitted

    def accept(self, token: int) -> bool:
        if token in self.end and self._matcher.is_accepting():
            return True
        if not has_bit(self._matcher.compute_bitmask(), token):
            return False
        return self._matcher.consume_token(token)

    def admitted(self) -> Admitted:
        mask = self._matcher.compute_bitmask()
        spans = tuple(_admitted_spans(mask, self.end))
        return Admitted(spans, not spans or any(has_bit(mask, id) for id in self.end))


class Spelling:
    """Decodes tokens to the text they add: complete characters, and control tokens if visible.

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
        self._hidden_tokens = hidden
        self._visible_control_token_texts = frozenset(visible)
        self.pending = b""
        for token in behind[-_RESUMED:]:
            _ = self(token)

    def __call__(self, token: int) -> str:
        written = self.raw(token)
        if not written or self._is_control(token):
            return written.decode("utf-8", "replace")
        whole, self.pending = self.pending + written, b""
        try:
            return whole.decode()
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                return whole.decode("utf-8", "replace")
            self.pending = whole
            return ""

    def raw(self, token: int) -> bytes:
        """Return the bytes of a token, even incomplete characters; empty if it is not visible."""
        if token >= len(self._vocabulary.tokens):  # a model may have more rows than words
            return b""
        raw = self._vocabulary.tokens[token]
        if not self._is_control(token):
            return raw
        return raw if raw.decode("utf-8", "replace") in self._visible_control_token_texts else b""

    def _is_control(self, token: int) -> bool:
        return token in self._hidden_tokens or self._vocabulary.types[token] in _HIDDEN


@dataclass(eq=False)
class Guided:
    """Generates under a grammar: the engine runs freely; a token refused is sampled again."""

    _start_generation: Callable[[base.TextRequest], Generation]  # a generation of the engine's
    _sample_admitted: Sample  # draws one of the tokens admitted
    _request: base.TextRequest
    _matcher: GrammarMatcher
    _spelling: Spelling

    def __post_init__(self) -> None:
        self._request = replace(self._request, grammar=None, accepted=(), resumed="")
        self._output_tokens: list[int] = []
        self._never_delivered_token_count = 0  # of a character that the engine did not come to end
        self._cached_token_count: int | None = None
        self._stop_reason: Literal["stop", "length"] | None = None

    async def outputs(self) -> AsyncGenerator[base.Output, None]:
        while self._stop_reason is None:
            if not self._spelling.pending:  # a stream cannot begin in the middle of a character
                async with aclosing(self._generate_until_grammar_rejects()) as outputs:
                    async for output in outputs:
                        yield output
            if self._stop_reason is None:
                yield await self._draw_admitted_token()
        yield base.Stopped(
            self._stop_reason,
            len(self._request.prompt),
            len(self._output_tokens) + self._never_delivered_token_count,
            cached_tokens=self._cached_token_count or 0,
        )

    async def _generate_until_grammar_rejects(self) -> AsyncGenerator[base.Output, None]:
        before = len(self._output_tokens)
        async with self._start_generation(self._remaining_request()) as outputs:
            async for output in outputs:
                if isinstance(output, base.Token):
                    if not await asyncio.to_thread(self._matcher.accept, output.id):
                        return
                    yield self._append_and_spell_token(output)
                    continue
                if self._cached_token_count is None:
                    self._cached_token_count = output.cached_tokens
                    if isinstance(output, base.Started):
                        yield output
                if isinstance(output, base.Stopped):
                    seen = len(self._output_tokens) - before
                    self._never_delivered_token_count = max(output.completion_tokens - seen, 0)
                    self._stop_reason = output.reason

    async def _draw_admitted_token(self) -> base.Token:
        admitted = await asyncio.to_thread(self._matcher.admitted)
        token = await self._sample_admitted(self._remaining_request(drawn=True), admitted)
        if not await asyncio.to_thread(self._matcher.accept, token.id):
            raise base.EngineFailed("the engine did not keep to its grammar")
        if token.id in self._matcher.end:
            self._stop_reason = "stop"
        elif len(self._output_tokens) + 1 == self._request.max_tokens:
            self._stop_reason = "length"
        return self._append_and_spell_token(token)

    def _remaining_request(self, *, drawn: bool = False) -> base.TextRequest:
        # Each run has a seed of its own. With the same seed, the second draw of a token would use
        # the random number with which the first one was rejected, and so not be independent of it.
        sampling = self._request.sampling
        if sampling.seed is not None:
            turn = 2 * len(self._output_tokens) + drawn
            seed = (sampling.seed + turn * _SEED_STEP) % _SEEDS if turn else sampling.seed
            sampling = structs.replace(sampling, seed=seed)
        return replace(
            self._request,
            prompt=(*self._request.prompt, *self._output_tokens),
            max_tokens=self._request.max_tokens - len(self._output_tokens),
            sampling=sampling,
        )

    def _append_and_spell_token(self, token: base.Token) -> base.Token:
        self._output_tokens.append(token.id)
        # An engine that was asked for one token alone knows nothing of a character around it.
        raw = b"" if self._request.logprobs is None else self._spelling.raw(token.id)
        return structs.replace(token, text=self._spelling(token.id), raw=raw)


def has_bit(mask: bytes, id: int) -> bool:
    """Return whether a mask of llguidance admits a token."""
    return id // 8 < len(mask) and bool(mask[id // 8] >> (id % 8) & 1)


def _admitted_spans(mask: bytes, excluded_ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    bits = "".join(f"{byte:08b}"[::-1] for byte in mask)
    for run in _RUN.finditer(bits):
        first = run.start()
        for id in sorted(excluded_ids):
            if first <= id < run.end():
                if first < id:
                    yield first, id - 1
                first = id + 1
        if first < run.end():
            yield first, run.end() - 1


def request_spelling(vocabulary: TokenTable, request: base.TextRequest) -> Spelling:
    """Return the spelling of a request's output; tokens that end the text are hidden."""
    return Spelling(vocabulary, frozenset(vocabulary.end), request.visible, request.prompt)


async def first_token(run: Generation) -> base.Token:
    """Return the first token of a generation; raise :class:`EngineFailed` if there is none."""
    async with run as outputs, aclosing(outputs):
        async for output in outputs:
            if isinstance(output, base.Token):
                return output
    raise base.EngineFailed("the engine drew no token")
