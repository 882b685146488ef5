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
    return cast(_T, _copy_mutables(reader, {}))


def _copy_mutables(state: Any, copies_by_id: dict[int, Any]) -> Any:
    kind: type = type(state)
    if kind is list:
        return [_copy_mutables(item, copies_by_id) for item in state]
    if kind is set:
        return set(state)
    if kind is MethodType:
        return MethodType(state.__func__, _copy_mutables(state.__self__, copies_by_id))
    foreign = not kind.__module__.startswith(_OURS)
    if foreign or issubclass(kind, Enum) or kind.__setattr__ is not object.__setattr__:
        return state
    if id(state) not in copies_by_id:
        copies_by_id[id(state)] = _copy_object(state, copies_by_id)
    return copies_by_id[id(state)]


def _copy_object(original: Any, copies_by_id: dict[int, Any]) -> Any:
    kind = type(original)
    if hasattr(kind, "__copy__"):
        return copy(original)
    other = copies_by_id[id(original)] = object.__new__(kind)
    slots = [name for each in kind.__mro__ for name in each.__dict__.get("__slots__", ())]
    for name in (*slots, *getattr(original, "__dict__", ())):
        if hasattr(original, name):
            object.__setattr__(other, name, _copy_mutables(getattr(original, name), copies_by_id))
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
    """Runs an engine, and draws tokens again until its :meth:`outputs` break no rule of a document.

    ``discard`` is called with the number of tokens that were taken back since its last call.
    """

    engine: TextEngine
    request: TextRequest
    documents: WatchedDocuments
    discard: Callable[[int], None]
    _checkpoints: list[WatchedDocuments] = field(init=False, default_factory=list)
    """Copies of the reader by tokens read; the first precedes all tokens that may be taken back."""
    _loop_turns: Turns = field(init=False, default_factory=Turns)
    _kept_tokens: list[Token] = field(init=False, default_factory=list)
    _generated_token_count: int = field(init=False, default=0)  # with those taken back
    _reported_discarded_count: int = field(init=False, default=0)  # reported to ``discard``
    _sent_count: int = field(init=False, default=0)
    _stop_report: Stopped | None = field(init=False, default=None)
    _engine_withheld_token_count: int = field(init=False, default=0)
    _cached_token_count: int | None = field(init=False, default=None)
    _banned_ids_by_position: dict[int, set[int]] = field(init=False, default_factory=dict)
    """Ids by position: each led to a fault behind the tokens before it."""
    _draws_at: dict[int, int] = field(init=False, default_factory=dict)
    """For one item each, by the number of tokens before it."""
    _attempts: dict[tuple[int, int | None], list[int]] = field(init=False, default_factory=dict)
    """Places yet to be tried, by the first token of a value and of the part that is at fault."""
    _total_value_draw_count: int = field(init=False, default=0)  # for values
    _unclosable_positions: set[int] = field(init=False, default_factory=set)
    """Positions behind which an array cannot end, as has been tried."""

    async def outputs(self) -> AsyncGenerator[Output, None]:
        """Yield the outputs as if of one run, without the tokens that were taken back.

        Raises :class:`ConstraintNotKept` if the model found no other reply.
        """
        for _ in self.documents.read_before():
            await self._loop_turns.pause()
        self._checkpoints = [fork(self.documents)]
        try:
            while self._stop_report is None and len(self._kept_tokens) < self.request.max_tokens:
                async with aclosing(self._yield_final_outputs_until_fault()) as outputs:
                    async for output in outputs:
                        yield output
                while (fault := self.documents.fault) is not None:
                    self._stop_report, self._engine_withheld_token_count = None, 0
                    if isinstance(fault, Repeat):
                        await self._replace_repeated_item(fault)
                    else:
                        await self._redraw_broken_value(fault)
        finally:
            self._report_discarded_tokens()
        for token in self._kept_tokens[self._sent_count :]:
            yield token
        made = len(self._kept_tokens) + self._engine_withheld_token_count
        reason = self._stop_report.reason if self._stop_report is not None else "length"
        yield Stopped(reason, len(self.request.prompt), made, self._cached_token_count or 0)

    async def _yield_final_outputs_until_fault(self) -> AsyncGenerator[Output, None]:
        before = len(self._kept_tokens)
        async with self.engine.generate(self._build_remaining_request()) as outputs:
            async for output in outputs:
                if isinstance(output, Token):
                    self._generated_token_count += 1
                    await self._append_token(output)
                    if self.documents.fault is not None:
                        return
                    while self._sent_count < self.documents.final:
                        self._sent_count += 1
                        yield self._kept_tokens[self._sent_count - 1]
                    continue
                if isinstance(output, Started) and self._cached_token_count is None:
                    yield output
                if self._cached_token_count is None:
                    self._cached_token_count = output.cached_tokens
                if isinstance(output, Stopped):
                    reported = len(self._kept_tokens) - before
                    self._stop_report = output
                    self._engine_withheld_token_count = max(output.completion_tokens - reported, 0)
                    if output.reason == "stop" and self.documents.document is not None:
                        self.documents.document.end()
                        await self._set_fault_by_late_checks()
                    return

    async def _append_token(self, token: Token) -> None:
        self._kept_tokens.append(token)
        await self._feed_and_checkpoint(token)

    async def _feed_and_checkpoint(self, token: Token) -> None:
        documents = self.documents
        if documents.read - self._checkpoints[-1].read >= documents.cost_of_copy:
            self._checkpoints.append(fork(documents))
            while len(self._checkpoints) > 1 and self._checkpoints[1].read <= self._sent_count:
                del self._checkpoints[0]
        documents.feed(token.text)
        await self._set_fault_by_late_checks()

    async def _set_fault_by_late_checks(self) -> None:
        document = self.documents.document
        if document is not None and document.is_behind:
            await offload(document.catch_up)  # it may take a second

    async def _replace_repeated_item(self, repeat: Repeat) -> None:
        written = list(self._kept_tokens)
        content = self.documents.content_behind(self._sent_count)
        if await self._try_to_close_array(repeat):
            return
        while (
            content
            and self._draws_at.get(self._sent_count, 0) < _OF_AN_ITEM
            and self._remaining_draws > 0
        ):
            self._draws_at[self._sent_count] = self._draws_at.get(self._sent_count, 0) + 1
            is_other, is_added = await self._redraw_token(written, content[-1])
            if is_added:
                return
            if not is_other:
                content.pop()
        raise ConstraintNotKept(
            f"The answer does not have the form asked for: items at {repeat.pointer} have to "
            "differ, and the model found no other item in the attempts that it had."
        )

    async def _redraw_broken_value(self, broken_rule: BrokenRule) -> None:
        written = list(self._kept_tokens)
        start = max(broken_rule.start, self._sent_count)
        key = start, broken_rule.blamed and broken_rule.blamed[0]
        if key not in self._attempts:
            places = _choose_redraw_positions(broken_rule, start, len(written))
            self._attempts[key] = [at for at in places for _ in range(_AT_A_PLACE)]
        attempts = self._attempts[key]
        while attempts and self._remaining_draws > 0:
            place = attempts.pop(0)
            self._total_value_draw_count += 1
            is_other, is_added = await self._redraw_token(written, min(place, len(written) - 1))
            while not is_other and attempts[:1] == [place]:
                attempts.pop(0)
            if is_added:
                return
        raise ConstraintNotKept(
            "The answer does not have the form asked for, and the model found no other in the "
            f"attempts that it had: {broken_rule.reason}"
        )

    async def _redraw_token(self, tokens: Sequence[Token], position: int) -> tuple[bool, bool]:
        # Whether there is another token in the place of that one, and whether it was added.
        await self._rewind_to(list(tokens[:position]))
        banned = self._banned_ids_by_position.setdefault(position, set())
        banned.add(tokens[position].id)
        token = await self._draw_token(dict.fromkeys(banned, _NEVER))
        if token is None or token.id in banned:
            return False, False
        if token.text.isspace():  # it would only put the same off
            banned.add(token.id)
            return True, False
        await self._append_token(token)
        return True, True

    @property
    def _remaining_draws(self) -> int:
        return _OF_A_RUN - self._total_value_draw_count - sum(self._draws_at.values())

    async def _try_to_close_array(self, repeat: Repeat) -> bool:
        place = repeat.separated
        if place < self._sent_count or place in self._unclosable_positions:
            return False
        await self._rewind_to(self._kept_tokens[:place])
        self._unclosable_positions.add(place)
        for id in await self.engine.tokenize([f"{repeat.head}]"], special=False):
            token = await self._draw_token({id: _SURELY})
            if token is None or token.id != id:
                return False
            await self._append_token(token)
        return self.documents.fault is None

    async def _draw_token(self, logit_bias: Mapping[int, float]) -> Token | None:
        rest = self._build_remaining_request()
        sampling = rest.sampling
        biased = structs.replace(sampling, logit_bias={**sampling.logit_bias, **logit_bias})
        async with self.engine.generate(replace(rest, max_tokens=1, sampling=biased)) as outputs:
            async for output in outputs:
                if isinstance(output, Token):
                    self._generated_token_count += 1
                    return output
        return None

    async def _rewind_to(self, tokens: list[Token]) -> None:
        pairs = zip(self._kept_tokens[self._sent_count :], tokens[self._sent_count :], strict=False)
        same = self._sent_count + sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
        self._kept_tokens, end = tokens, len(tokens)
        self._report_discarded_tokens()
        banned = self._banned_ids_by_position.items()
        self._banned_ids_by_position = {at: ids for at, ids in banned if at <= end}
        self._unclosable_positions = {at for at in self._unclosable_positions if at <= end}
        self._checkpoints = [copy for copy in self._checkpoints if copy.read <= same]
        self.documents = fork(self._checkpoints[-1])
        for token in tokens[self.documents.read :]:
            await self._feed_and_checkpoint(token)
            await self._loop_turns.pause()

    def _report_discarded_tokens(self) -> None:
        discarded = self._generated_token_count - len(self._kept_tokens)
        self.discard(discarded - self._reported_discarded_count)
        self._reported_discarded_count = discarded

    def _build_remaining_request(self) -> TextRequest:
        if not self._kept_tokens:
            return self.request
        request, ids = self.request, tuple(token.id for token in self._kept_tokens)
        sampling = request.sampling
        if sampling.seed is not None:
            seed = (sampling.seed + len(ids) + _OF_A_RUN - self._remaining_draws) % 2**32
            sampling = structs.replace(sampling, seed=seed)
        return replace(
            request,
            prompt=(*request.prompt, *ids),
            max_tokens=request.max_tokens - len(ids),
            accepted=(*request.accepted, *ids),
            sampling=sampling,
        )


def _choose_redraw_positions(broken_rule: BrokenRule, start: int, end: int) -> Iterator[int]:
    spans = [(start, end)]
    if broken_rule.blamed is not None:
        first, last = broken_rule.blamed
        spans.insert(0, (max(first, start), last + 1))
    for first, last in spans:
        distance, near = 1, min(first + 3, last)
        while last - distance >= near:
            yield last - distance
            distance *= 2
        yield from reversed(range(first, near))
