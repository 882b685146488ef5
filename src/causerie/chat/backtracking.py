"""One run of an engine from which is taken back what breaks a rule that no grammar has.

No grammar compares two items. So tokens are held from the comma before an item until the item is
complete. One that repeats an earlier item is taken back: the array ends before it where the
grammar lets it, for a model that repeats itself has nothing new to add. Elsewhere the last token of
the item for which there is another is drawn again, without those that led to a repetition, and the
run goes on behind it.

A value that the check may refuse is held until it is complete, too. Where it is refused, its last
token is drawn again; if that does not help, one further ahead, and in the end its first one. What
has been handed on is never taken back.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace

from msgspec import structs

from causerie.chat.document_watch import BrokenRule, Repeat
from causerie.chat.watched_documents import WatchedDocuments
from causerie.engines.base import Output, Started, Stopped, TextEngine, TextRequest, Token
from causerie.errors import ConstraintNotKept

_OF_AN_ITEM = 16  # draws for one item
_AT_A_PLACE = 6  # draws at one place of a value
_OF_A_RUN = 128
_NEVER, _SURELY = -100.0, 100.0  # biases


@asynccontextmanager
async def without_faults(
    engine: TextEngine, request: TextRequest, read: Callable[[], WatchedDocuments]
) -> AsyncIterator[AsyncIterator[Output]]:
    """Yield the outputs as if of one run; ``read`` makes a reader that has read all before it.

    Iteration raises :class:`ConstraintNotKept` where nothing else was found.
    """
    async with aclosing(_Backtracking(engine, request, read).outputs()) as outputs:
        yield outputs


@dataclass(slots=True)
class _Attempts:
    """Places from which a value is written anew, with a few draws at each."""

    places: list[int] = field(default_factory=list)
    _level: int = 0
    _draws: int = 0

    @property
    def place(self) -> int | None:
        """The place whose turn it is."""
        return self.places[self._level] if self._level < len(self.places) else None

    def made(self, *, other: bool) -> None:
        """Count a draw, which gave another token or not."""
        self._draws += 1
        if not other or self._draws == _AT_A_PLACE:
            self._level, self._draws = self._level + 1, 0


@dataclass(slots=True)
class _Backtracking:
    engine: TextEngine
    request: TextRequest
    read: Callable[[], WatchedDocuments]
    _documents: WatchedDocuments = field(init=False)
    _tokens: list[Token] = field(init=False, default_factory=list)
    _given: int = field(init=False, default=0)
    _stopped: Stopped | None = field(init=False, default=None)
    _unreported: int = field(init=False, default=0)
    _cached: int | None = field(init=False, default=None)
    _banned: dict[int, set[int]] = field(init=False, default_factory=dict)
    """Ids by position: each led to a fault behind the tokens before it."""
    _draws: dict[int, int] = field(init=False, default_factory=dict)
    """For one item each, by the number of tokens before it."""
    _attempts: dict[tuple[int, int | None], _Attempts] = field(init=False, default_factory=dict)
    """By the first token of a value, and of the part that a fault is about."""
    _drawn: int = field(init=False, default=0)
    """For values."""
    _open: set[int] = field(init=False, default_factory=set)
    """Positions behind which an array cannot end, as has been tried."""

    def __post_init__(self) -> None:
        self._documents = self.read()

    async def outputs(self) -> AsyncGenerator[Output, None]:
        while self._stopped is None and len(self._tokens) < self.request.max_tokens:
            async with aclosing(self._run()) as outputs:
                async for output in outputs:
                    yield output
            while (fault := self._documents.fault) is not None:
                self._stopped, self._unreported = None, 0
                if isinstance(fault, Repeat):
                    await self._take_back(fault)
                else:
                    await self._mend(fault)
        for token in self._tokens[self._given :]:
            yield token
        made = len(self._tokens) + self._unreported
        reason = self._stopped.reason if self._stopped is not None else "length"
        yield Stopped(reason, len(self.request.prompt), made, self._cached or 0)

    async def _run(self) -> AsyncGenerator[Output, None]:
        """Yield what the engine begins with, and its final tokens, up to a fault."""
        before = len(self._tokens)
        async with self.engine.generate(self._rest()) as outputs:
            async for output in outputs:
                if isinstance(output, Token):
                    self._add(output)
                    if self._documents.fault is not None:
                        return
                    for token in self._ready():
                        yield token
                    continue
                if isinstance(output, Started) and self._cached is None:
                    yield output
                if self._cached is None:
                    self._cached = output.cached_tokens
                if isinstance(output, Stopped):
                    reported = len(self._tokens) - before
                    self._stopped = output
                    self._unreported = max(output.completion_tokens - reported, 0)
                    return

    def _add(self, token: Token) -> None:
        self._tokens.append(token)
        self._documents.feed(token.text)

    def _ready(self) -> Iterator[Token]:
        """Yield the tokens that nothing will take back any more."""
        while self._given < self._documents.final:
            self._given += 1
            yield self._tokens[self._given - 1]

    async def _take_back(self, repeat: Repeat) -> None:
        """Replace the repeated item by the end of its array, or by the beginning of another."""
        written = list(self._tokens)
        content = [at for at in self._documents.content if at >= self._given]
        if await self._close(repeat):
            return
        while content and self._may_draw():
            at = content[-1]
            self._forbid(written, at)
            self._draws[self._given] = self._draws.get(self._given, 0) + 1
            token = await self._draw(dict.fromkeys(self._banned[at], _NEVER))
            if token is None or token.id in self._banned[at]:
                content.pop()
            elif token.text.isspace():  # it would only put the same off
                self._banned[at].add(token.id)
            else:
                self._add(token)
                return
        raise ConstraintNotKept(
            f"The answer does not have the form asked for: items at {repeat.pointer} have to "
            "differ, and the model found no other item in the attempts that it had."
        )

    async def _mend(self, broken: BrokenRule) -> None:
        """Write the value that breaks a rule anew, from one of its tokens on."""
        written = list(self._tokens)
        start = max(broken.start, self._given)
        attempts = self._attempts.setdefault(
            (start, broken.blamed and broken.blamed[0]), _Attempts()
        )
        attempts.places = attempts.places or list(_places(broken, start, len(written)))
        while (at := attempts.place) is not None and self._draws_left > 0:
            at = min(at, len(written) - 1)
            self._forbid(written, at)
            self._drawn += 1
            token = await self._draw(dict.fromkeys(self._banned[at], _NEVER))
            other = token is not None and token.id not in self._banned[at]
            attempts.made(other=other)
            if token is None or not other:
                continue
            if not token.text.isspace():  # white space would only put the same off
                self._add(token)
                return
            self._banned[at].add(token.id)
        raise ConstraintNotKept(
            "The answer does not have the form asked for, and the model found no other in the "
            f"attempts that it had: {broken.reason}"
        )

    def _forbid(self, written: Sequence[Token], at: int) -> None:
        """Take back all from a position on, and let what was there not come again."""
        self._return_to(list(written[:at]))
        self._banned.setdefault(at, set()).add(written[at].id)

    @property
    def _draws_left(self) -> int:
        return _OF_A_RUN - self._drawn - sum(self._draws.values())

    def _may_draw(self) -> bool:
        return self._draws.get(self._given, 0) < _OF_AN_ITEM and self._draws_left > 0

    async def _close(self, repeat: Repeat) -> bool:
        """End the array before the item; return whether the grammar lets it end there."""
        place = repeat.separated
        if place < self._given or place in self._open:
            return False
        self._return_to(self._tokens[:place])
        self._open.add(place)
        for id in await self.engine.tokenize([f"{repeat.head}]"], special=False):
            token = await self._draw({id: _SURELY})
            if token is None or token.id != id:
                return False
            self._add(token)
        return self._documents.fault is None

    async def _draw(self, bias: Mapping[int, float]) -> Token | None:
        """Return one token behind those that there are."""
        rest = self._rest()
        sampling = rest.sampling
        biased = structs.replace(sampling, logit_bias={**sampling.logit_bias, **bias})
        async with self.engine.generate(replace(rest, max_tokens=1, sampling=biased)) as outputs:
            async for output in outputs:
                if isinstance(output, Token):
                    return output
        return None

    def _return_to(self, tokens: list[Token]) -> None:
        """Take back all tokens but these, the first ones."""
        self._tokens = tokens
        self._banned = {at: ids for at, ids in self._banned.items() if at <= len(tokens)}
        self._open = {at for at in self._open if at <= len(tokens)}
        self._documents = self.read()
        for token in tokens:
            self._documents.feed(token.text)

    def _rest(self) -> TextRequest:
        """Return what is asked of the engine behind the tokens that there are."""
        if not self._tokens:
            return self.request
        request, ids = self.request, tuple(token.id for token in self._tokens)
        sampling = request.sampling
        if sampling.seed is not None:
            seed = (sampling.seed + len(ids) + _OF_A_RUN - self._draws_left) % 2**32
            sampling = structs.replace(sampling, seed=seed)
        return replace(
            request,
            prompt=(*request.prompt, *ids),
            max_tokens=request.max_tokens - len(ids),
            accepted=(*request.accepted, *ids),
            sampling=sampling,
        )


def _places(broken: BrokenRule, start: int, end: int) -> Iterator[int]:
    """Yield the places from which a value is written anew, each further ahead than the last.

    The part that the fault is about comes first, then the value around it.
    """
    spans = [(start, end)]
    if broken.blamed is not None:
        first, last = broken.blamed
        spans.insert(0, (max(first, start), last + 1))
    for first, last in spans:
        distance, near = 1, min(first + 3, last)
        while last - distance >= near:
            yield last - distance
            distance *= 2
        yield from reversed(range(first, near))
