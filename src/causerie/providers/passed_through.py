"""A reader of replies that pass through: of usage, and of texts and ends of completions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from causerie.errors import ServiceError, UpstreamFailed
from causerie.protocol.events import Event, Finished, PassedBytes, TextDelta, Usage
from causerie.protocol.operations import members
from causerie.protocol.request import ChatRequest
from causerie.providers.finish import finish_reason, later
from causerie.providers.incoming import UNSHOWN, estimated_tokens, most_of_prompt
from causerie.providers.refusal import failure_in_reply
from causerie.providers.wire import ProviderUsage, is_nothing, merged

_CONTENT: Mapping[str, tuple[str, ...]] = {
    "embeddings": ("data", "embeddings"),
    "rerank": ("results", "data"),
    "completions": ("choices",),
}
"""Members of which a reply has one."""
_UNREADABLE = (ValueError, RecursionError)  # msgspec's errors are among them


class _Choice(Struct, gc=False):
    text: str | None = None
    index: int = 0
    finish_reason: str | None = None


_UNITS_BELIEVED = 100  # times as many as estimated: long documents are split by who ranks them
_BYTES_OF_CHARACTER = 4
_Count = Annotated[float, Meta(ge=0, le=1_000_000)]  # some servers write whole numbers with ".0"


class _Units(Struct, gc=False):
    search_units: _Count | None = None
    input_tokens: _Count | None = None


class _Meta(Struct, gc=False):
    billed_units: _Units | None = None
    tokens: _Units | None = None


_decode_choices = msgspec.json.Decoder(list[_Choice]).decode


class PassedReader(Struct, eq=False):
    """Reads one reply to ``request``, as :class:`~causerie.providers.incoming.Incoming` does."""

    request: ChatRequest
    ended: bool = False
    fingerprint: str | None = None
    _ends: dict[int, str | None] = {}  # by choice; None until it has ended
    _pieces: int = 0  # with text
    _size: int = 0  # of the text, in characters
    _told: ProviderUsage | None = None
    _units: int = 0

    @property
    def complete(self) -> bool:
        return len(self._ends) >= self.request.n and None not in self._ends.values()

    @property
    def usage(self) -> Usage:
        request, told = self.request, self._told or ProviderUsage()
        completion = told.completion_tokens or told.output_tokens or 0
        prompt = told.prompt_tokens or told.input_tokens
        prompt = prompt or max((told.total_tokens or 0) - completion, 0)
        impossible = prompt > most_of_prompt(request)
        unsure = impossible or not prompt
        if unsure and request.passed is not None:
            prompt = request.passed.tokens
        most, units = self._most_completion, self._units
        impossible = impossible or completion > most
        if not 0 < completion <= most:
            completion = estimated_tokens(self._pieces, self._size)
            unsure = unsure or bool(self._size)
        if request.passed is not None and units > _UNITS_BELIEVED * (request.passed.units + 1):
            impossible, units = True, request.passed.units
        unsure = unsure or impossible
        details = told.prompt_tokens_details
        cached = 0 if details is None else min(details.cached_tokens or 0, prompt)
        return Usage(prompt, completion, cached, 0, unsure, impossible=impossible, units=units)

    @property
    def _most_completion(self) -> int:
        # A token makes a byte or more, but for a few that show nowhere.
        if self.request.operation != "completions":
            return 0
        shown = _BYTES_OF_CHARACTER * self._size + UNSHOWN
        limit = self.request.max_tokens
        return shown if limit is None else min(limit * self.request.n, shown)

    def feed(self, stream: Iterable[bytes], events: list[Event]) -> None:
        for data in stream:
            if self.ended:
                return
            if data.strip() == b"[DONE]":
                self._end(events)
                return
            events += self._read(data)

    def goes_on(self, data: bytes) -> None:
        """Return ``None``: every chunk is read by :meth:`feed`."""

    def whole(self, body: bytes) -> list[Event]:
        operation = self.request.operation
        if body.lstrip()[:1] == b"[" and operation != "completions":
            events: list[Event] = [PassedBytes(body)]  # which reports nothing
        else:
            fields = self._members(body)
            if not any(name in fields for name in _CONTENT[operation]):
                raise self._unreadable(f"no {operation}")
            text, _ = self._choices(fields)
            self._record_usage(fields)
            events = _passed(text, body)
        if operation != "completions":
            self._units = self._units or 1
            self._ends = {0: "stop"}
        self._end(events)
        return events

    def finish(self, events: list[Event]) -> None:
        if self.ended:
            return
        if not self.complete:
            raise UpstreamFailed("The provider ended its reply before it was complete.")
        self._end(events)

    def _read(self, data: bytes) -> Sequence[Event]:
        fields = self._members(data)
        text, listed = self._choices(fields)
        self._record_usage(fields)
        # A chunk without choices only reports.
        return _passed(text, data) if listed else ()

    def _members(self, data: bytes) -> dict[str, Raw]:
        try:
            fields = members(data)
            error = msgspec.json.decode(fields["error"]) if "error" in fields else None
        except _UNREADABLE as failure:
            raise self._unreadable("no JSON object") from failure
        if not is_nothing(error):
            raise failure_in_reply(error, started=self._pieces > 0)
        return fields

    def _choices(self, fields: Mapping[str, Raw]) -> tuple[str, int]:
        if self.request.operation != "completions" or "choices" not in fields:
            return "", 0
        try:
            choices = _decode_choices(fields["choices"])
        except _UNREADABLE as failure:
            raise self._unreadable("no choices of a completion") from failure
        for choice in choices:
            before = self._ends.setdefault(choice.index, None)
            if choice.finish_reason:
                self._ends[choice.index] = later(before, choice.finish_reason)
        text = "".join([choice.text or "" for choice in choices])
        self._pieces += bool(text)
        self._size += len(text)
        return text, len(choices)

    def _record_usage(self, fields: Mapping[str, Raw]) -> None:
        told = _converted(fields.get("usage"), ProviderUsage)
        if told is not None:
            self._told = told if self._told is None else merged(self._told, told)
        if self.request.operation != "rerank":
            return
        meta, units = _converted(fields.get("meta"), _Meta), _converted(fields.get("usage"), _Units)
        billed = None if meta is None else meta.billed_units
        for each in (units, billed):
            self._units = int((each and each.search_units) or self._units)
        tokens = meta and meta.tokens and meta.tokens.input_tokens
        if tokens and self._told is None:
            self._told = ProviderUsage(prompt_tokens=int(tokens))

    def _end(self, events: list[Event]) -> None:
        self.ended = True
        if not self._ends:
            raise UpstreamFailed("The provider ended its reply before it began.")
        for index, word in sorted(self._ends.items()):
            events.append(Finished(finish_reason(word, calls=False, said=True), index))
        events.append(self.usage)

    def _unreadable(self, what: str) -> ServiceError:
        return UpstreamFailed(f"The provider sent a reply that cannot be read ({what}).")


def _passed(text: str, data: bytes) -> list[Event]:
    return [TextDelta(text), PassedBytes(data)] if text else [PassedBytes(data)]


def _converted(found: Raw | None, kind: Any) -> Any:
    if found is None:
        return None
    try:
        return msgspec.json.decode(found, type=kind)
    except _UNREADABLE:
        return None
