"""Takes back generated tokens that break a rule which no grammar can express, and draws others."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import takewhile
from types import MethodType
from typing import Any, TypeVar, cast

from msgspec import structs

from causerie.chat.document_watch import BrokenRule, Repeat, WatchedDocuments
from causerie.engines.base import Output, Started, Stopped, TextEngine, TextRequest, Token
from causerie.errors import ConstraintNotKept
from causerie.http.event_loop import Turns, offload

_T = TypeVar("_T")
_OURS = "causerie."


def fork(reader: _T) -> _T:
    """Return a copy of a reader; neither of the two sees what the other reads from now on.

    Lists and sets are copied, and objects of this program that change. Dictionaries are not: in
    readers they are schemas. An object that can be copied faster, or not in this way, has a
    ``__copy__``.
    """
    return cast(_T, _copied_state(reader, {}))


def _copied_state(value: Any, known: dict[int, Any]) -> Any:
    kind: type = type(value)
    if kind is list:
        return [_copied_state(item, known) for item in value]
    if kind is set:
        return set(value)
    if kind is MethodType:
        return MethodType(value.__func__, _copied_state(value.__self__, known))
    foreign = not kind.__module__.startswith(_OURS)
    if foreign or issubclass(kind, Enum) or kind.__setattr__ is not object.__setattr__:
        return value
    if id(value) not in known:
        known[id(value)] = _forked_object(value, known)
    return known[id(value)]


def _forked_object(value: Any, known: dict[int, Any]) -> Any:
    kind = type(value)
    if hasattr(kind, "__copy__"):
        return copy(value)
    other = known[id(value)] = object.__new__(kind)
    slots = [name for each in kind.__mro__ for name in each.__dict__.get("__slots__", ())]
    for name in (*slots, *getattr(value, "__dict__", ())):
        if hasattr(value, name):
            object.__setattr__(other, name, _copied_state(getattr(value, name), known))
    return other


# No grammar compares two items. So tokens are held back from the comma before an item until the
# item is complete. If it repeats an earlier one, the array ends before it where the grammar allows
# that; otherwise the last of its tokens for which there is another is drawn again.
#
# A value that the check may refuse is held back until it is complete, too. If it is refused, its
# last token is drawn again, then one further ahead, and in the end its first one. Tokens that have
# been sent are never taken back.

_OF_AN_ITEM = 16  # draws for one item
_AT_A_PLACE = 6  # draws at one place of a value
_OF_A_RUN = 128
_NEVER, _SURELY = -100.0, 100.0  # biases


@dataclass(slots=True)
class Backtracking:
    """Runs an engine; :meth:`outputs` break no checked rule. ``documents`` has read all before it.

    ``discard`` is called with the number of tokens that were taken back since its last call.
    """

    engine: TextEngine
    request: TextRequest
    documents: WatchedDocuments
    discard: Callable[[int], None]
    _checkpoints: list[WatchedDocuments] = field(init=False, default_factory=list)
    """Copies of the reader by tokens read; the first precedes all tokens that may be taken back."""
    _loop_turns: Turns = field(init=False, default_factory=Turns)
    _tokens: list[Token] = field(init=False, default_factory=list)
    _generated_count: int = field(init=False, default=0)
    """Tokens that the engine has generated, including those that were taken back."""
    _discarded_count: int = field(init=False, default=0)  # reported to ``discard``
    _sent_count: int = field(init=False, default=0)
    _stop_output: Stopped | None = field(init=False, default=None)
    _unreported_count: int = field(init=False, default=0)
    _cached_tokens: int | None = field(init=False, default=None)
    _banned_ids: dict[int, set[int]] = field(init=False, default_factory=dict)
    """Ids by position: each led to a fault behind the tokens before it."""
    _draws_at: dict[int, int] = field(init=False, default_factory=dict)
    """For one item each, by the number of tokens before it."""
    _attempts: dict[tuple[int, int | None], list[int]] = field(init=False, default_factory=dict)
    """Places yet to be tried, by the first token of a value and of the part that is at fault."""
    _draws_made: int = field(init=False, default=0)  # for values
    _unclosable_positions: set[int] = field(init=False, default_factory=set)
    """Positions behind which an array cannot end, as has been tried."""

    async def outputs(self) -> AsyncGenerator[Output, None]:
        """Yield the outputs as if of one run.

        Raises :class:`ConstraintNotKept` if the model found no other reply.
        """
        for _ in self.documents.read_before():
            await self._loop_turns.pause()
        self._checkpoints = [fork(self.documents)]
        try:
            while self._stop_output is None and len(self._tokens) < self.request.max_tokens:
                async with aclosing(self._outputs_until_fault()) as outputs:
                    async for output in outputs:
                        yield output
                while (fault := self.documents.fault) is not None:
                    self._stop_output, self._unreported_count = None, 0
                    if isinstance(fault, Repeat):
                        await self._replace_repeated_item(fault)
                    else:
                        await self._rewrite_value(fault)
        finally:
            self._note_discarded()
        for token in self._tokens[self._sent_count :]:
            yield token
        made = len(self._tokens) + self._unreported_count
        reason = self._stop_output.reason if self._stop_output is not None else "length"
        yield Stopped(reason, len(self.request.prompt), made, self._cached_tokens or 0)

    async def _outputs_until_fault(self) -> AsyncGenerator[Output, None]:
        before = len(self._tokens)
        async with self.engine.generate(self._remaining_request()) as outputs:
            async for output in outputs:
                if isinstance(output, Token):
                    self._generated_count += 1
                    await self._add_token(output)
                    if self.documents.fault is not None:
                        return
                    while self._sent_count < self.documents.final:
                        self._sent_count += 1
                        yield self._tokens[self._sent_count - 1]
                    continue
                if isinstance(output, Started) and self._cached_tokens is None:
                    yield output
                if self._cached_tokens is None:
                    self._cached_tokens = output.cached_tokens
                if isinstance(output, Stopped):
                    reported = len(self._tokens) - before
                    self._stop_output = output
                    self._unreported_count = max(output.completion_tokens - reported, 0)
                    if output.reason == "stop" and self.documents.document is not None:
                        self.documents.document.end()
                        await self._catch_up()
                    return

    async def _add_token(self, token: Token) -> None:
        self._tokens.append(token)
        await self._read_token(token)

    async def _read_token(self, token: Token) -> None:
        documents = self.documents
        if documents.read - self._checkpoints[-1].read >= documents.cost_of_copy:
            self._checkpoints.append(fork(documents))
            while len(self._checkpoints) > 1 and self._checkpoints[1].read <= self._sent_count:
                del self._checkpoints[0]
        documents.feed(token.text)
        await self._catch_up()

    async def _catch_up(self) -> None:
        document = self.documents.document
        if document is not None and document.is_behind:
            await offload(document.catch_up)  # it may take a second

    async def _replace_repeated_item(self, repeat: Repeat) -> None:
        written = list(self._tokens)
        content = self.documents.content_behind(self._sent_count)
        if await self._end_array(repeat):
            return
        while (
            content
            and self._draws_at.get(self._sent_count, 0) < _OF_AN_ITEM
            and self._draws_left > 0
        ):
            self._draws_at[self._sent_count] = self._draws_at.get(self._sent_count, 0) + 1
            is_other, is_added = await self._draw_other(written, content[-1])
            if is_added:
                return
            if not is_other:
                content.pop()
        raise ConstraintNotKept(
            f"The answer does not have the form asked for: items at {repeat.pointer} have to "
            "differ, and the model found no other item in the attempts that it had."
        )

    async def _rewrite_value(self, broken: BrokenRule) -> None:
        written = list(self._tokens)
        start = max(broken.start, self._sent_count)
        key = start, broken.blamed and broken.blamed[0]
        if key not in self._attempts:
            places = _places_to_rewrite(broken, start, len(written))
            self._attempts[key] = [at for at in places for _ in range(_AT_A_PLACE)]
        attempts = self._attempts[key]
        while attempts and self._draws_left > 0:
            place = attempts.pop(0)
            self._draws_made += 1
            is_other, is_added = await self._draw_other(written, min(place, len(written) - 1))
            while not is_other and attempts[:1] == [place]:
                attempts.pop(0)
            if is_added:
                return
        raise ConstraintNotKept(
            "The answer does not have the form asked for, and the model found no other in the "
            f"attempts that it had: {broken.reason}"
        )

    async def _draw_other(self, written: Sequence[Token], at: int) -> tuple[bool, bool]:
        # Whether there is another token in the place of that one, and whether it was added.
        await self._return_to(list(written[:at]))
        banned = self._banned_ids.setdefault(at, set())
        banned.add(written[at].id)
        token = await self._draw_token(dict.fromkeys(banned, _NEVER))
        if token is None or token.id in banned:
            return False, False
        if token.text.isspace():  # it would only put the same off
            banned.add(token.id)
            return True, False
        await self._add_token(token)
        return True, True

    @property
    def _draws_left(self) -> int:
        return _OF_A_RUN - self._draws_made - sum(self._draws_at.values())

    async def _end_array(self, repeat: Repeat) -> bool:
        place = repeat.separated
        if place < self._sent_count or place in self._unclosable_positions:
            return False
        await self._return_to(self._tokens[:place])
        self._unclosable_positions.add(place)
        for id in await self.engine.tokenize([f"{repeat.head}]"], special=False):
            token = await self._draw_token({id: _SURELY})
            if token is None or token.id != id:
                return False
            await self._add_token(token)
        return self.documents.fault is None

    async def _draw_token(self, bias: Mapping[int, float]) -> Token | None:
        rest = self._remaining_request()
        sampling = rest.sampling
        biased = structs.replace(sampling, logit_bias={**sampling.logit_bias, **bias})
        async with self.engine.generate(replace(rest, max_tokens=1, sampling=biased)) as outputs:
            async for output in outputs:
                if isinstance(output, Token):
                    self._generated_count += 1
                    return output
        return None

    async def _return_to(self, tokens: list[Token]) -> None:
        pairs = zip(self._tokens[self._sent_count :], tokens[self._sent_count :], strict=False)
        same = self._sent_count + sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
        self._tokens, end = tokens, len(tokens)
        self._note_discarded()
        self._banned_ids = {at: ids for at, ids in self._banned_ids.items() if at <= end}
        self._unclosable_positions = {at for at in self._unclosable_positions if at <= end}
        self._checkpoints = [copy for copy in self._checkpoints if copy.read <= same]
        self.documents = fork(self._checkpoints[-1])
        for token in tokens[self.documents.read :]:
            await self._read_token(token)
            await self._loop_turns.pause()

    def _note_discarded(self) -> None:
        discarded = self._generated_count - len(self._tokens)
        self.discard(discarded - self._discarded_count)
        self._discarded_count = discarded

    def _remaining_request(self) -> TextRequest:
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


def _places_to_rewrite(broken: BrokenRule, start: int, end: int) -> Iterator[int]:
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
