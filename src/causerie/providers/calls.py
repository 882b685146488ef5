"""Calls put together from their pieces, whatever servers leave out or repeat.

Seen: no index, no id, the same index for every call (without ids, too), several
calls in one piece, a whole call in one piece, the name repeated in every piece, with a new id
each time, arguments as an object, ids that an earlier turn of the conversation has already used.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from causerie.errors import UpstreamFailed
from causerie.protocol.events import Event, ReasoningDelta, ToolCallDelta, ToolCallStarted
from causerie.protocol.parsing.past import is_object
from causerie.protocol.reasoning import seal_of
from causerie.protocol.request import Message
from causerie.providers.wire import ProviderCall


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class ConversationCallIds:
    """Ids that are unique within the conversation."""

    __slots__ = ("_make", "_messages", "_used")

    def __init__(self, messages: Iterable[Message], make: Callable[[], str] = new_call_id) -> None:
        self._messages = messages
        self._make = make
        self._used: set[str] | None = None

    def take(self, given: str | None) -> str:
        """The id that was given, or a new one where there is none or it is taken."""
        if self._used is None:
            calls = (call for message in self._messages for call in message.tool_calls)
            self._used = {call.id for call in calls}
        identifier = given or self._make()
        while identifier in self._used:
            identifier = self._make()
        self._used.add(identifier)
        return identifier


_STRUCTURE = re.compile(r'[{}\[\]"]')
_END_OF_STRING = re.compile(r'(?:[^"\\]|\\.)*+"', re.DOTALL)


class Brackets:
    """Finds the end of an object's JSON text, which comes in pieces; each is read once.

    ``closed``: its last bracket has come, followed by nothing but white space.
    """

    __slots__ = ("_depth", "_escaped", "_quoted", "_spoiled", "closed")

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False  # in the middle of a string
        self._escaped = False  # behind a backslash in one
        self._spoiled = False  # something has followed the end
        self.closed = False

    def read(self, text: str) -> None:
        at = 0
        while at < len(text):
            at = self._string(text, at) if self._quoted else self._outside(text, at)

    def _string(self, text: str, at: int) -> int:
        """Read a string up to its end, or to that of the text."""
        if self._escaped:
            self._escaped = False
            return at + 1
        end = _END_OF_STRING.match(text, at)
        if end is not None:
            self._quoted = False
            return end.end()
        self._escaped = (len(text) - len(text.rstrip("\\"))) % 2 == 1
        return len(text)

    def _outside(self, text: str, at: int) -> int:
        """Read up to behind the next bracket or the beginning of a string."""
        found = _STRUCTURE.search(text, at)
        if self.closed and (found is not None or not text[at:].isspace()):
            self.closed, self._spoiled = False, True
        if found is None:
            return len(text)
        mark = found.group()
        self._quoted = mark == '"'
        self._depth += (mark in "{[") - (mark in "}]")
        self.closed = mark == "}" and self._depth == 0 and not self._spoiled
        return found.end()


@dataclass(slots=True)
class _Open:
    """A call under way; ``index`` is ours, once it has a name."""

    given: str | None
    name: str = ""
    index: int | None = None
    held: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    size: int = 0
    started: bool = False  # its arguments, with something else than white space
    _brackets: Brackets = field(default_factory=Brackets)
    _object: bool | None = None  # whether what has closed is one, once that was looked at

    def tell(self, text: str) -> None:
        """Note a piece of the arguments."""
        self.told.append(text)
        self.size += len(text)
        self.started = self.started or not text.isspace()
        self._brackets.read(text)

    def precedes(self, call: ProviderCall, name: str) -> bool:
        """Return true if the piece begins another call in this place, false if it repeats the name.

        Another call is recognized by its id, unless it comes amid the arguments of the same
        function; without ids by another name, and by arguments that were whole before.
        """
        if self.is_amid(name):
            return False
        if call.id and self.given:
            return call.id != self.given
        if name != self.name:
            return bool(self.name)
        more = call.function is not None and _text(call.function.arguments).strip()
        return bool(more and self.started)

    def is_amid(self, name: str) -> bool:
        """Return true if it is of this function, whose arguments have started and are not whole."""
        if name != self.name:
            return False
        return self.started and not self._is_whole()

    def _is_whole(self) -> bool:
        """Return true if the arguments are a whole object; they are joined for that once."""
        if self._brackets.closed and self._object is None:
            self._object = is_object("".join(self.told))
        return self._brackets.closed and bool(self._object)


class ChoiceCalls:
    """The calls of one choice."""

    __slots__ = ("_by_id", "_by_index", "_choice", "_ids", "_open", "size", "started")

    def __init__(self, choice: int, ids: ConversationCallIds) -> None:
        self._choice = choice
        self._ids = ids
        self._open: list[_Open] = []
        self._by_id: dict[str, _Open] = {}
        self._by_index: dict[int, _Open] = {}
        self.started = 0
        self.size = 0  # characters of names and arguments

    def feed(self, calls: list[ProviderCall], events: list[Event], *, whole: bool) -> None:
        """Pieces of calls, or with ``whole`` complete ones."""
        for call in calls:
            current = self._new(call) if whole else self._find(call)
            self._advance(current, call, events)

    def finish(self, events: list[Event], *, cut: bool) -> None:
        """The end of the reply; raises :class:`UpstreamFailed` for a call of no function."""
        for current in self._open:
            if current.index is None:
                raise UpstreamFailed("The provider sent a call that names no function.")
            if not current.size and not cut:
                events.append(ToolCallDelta(current.index, "{}", self._choice))

    def _find(self, call: ProviderCall) -> _Open:
        name = call.function.name if call.function is not None else None
        last = self._open[-1] if self._open else None
        if call.index is not None:
            found = self._by_index.get(call.index)
            if found is None or (name and found.precedes(call, name)):
                return self._new(call)
            return found
        if call.id:
            same = self._by_id.get(call.id)
            if same is None and last is not None and last.given is None and not name:
                self._name(last, call.id)
                return last
            return same or self._new(call)
        if last is None or (name and last.name and not last.is_amid(name)):
            return self._new(call)
        return last

    def _new(self, call: ProviderCall) -> _Open:
        made = _Open(None)
        self._open.append(made)
        if call.id:
            self._name(made, call.id)
        if call.index is not None:
            self._by_index[call.index] = made
        return made

    def _name(self, current: _Open, given: str) -> None:
        """Note the id that a call was given; the first one of an id has it."""
        current.given = given
        self._by_id.setdefault(given, current)

    def _advance(self, current: _Open, call: ProviderCall, events: list[Event]) -> None:
        function = call.function
        if call.id and current.given is None:
            self._name(current, call.id)
        if function is None:
            return
        if function.name and current.index is None:
            current.name, current.index = function.name, self.started
            self.started += 1
            self.size += len(function.name)
            identifier = self._ids.take(current.given)
            extra = call.extra_content
            if extra:  # said as reasoning too: some clients keep that and nothing alongside a call
                events.append(ReasoningDelta("", self._choice, (seal_of(identifier, extra),)))
            started = ToolCallStarted(
                current.index, identifier, function.name, self._choice, extra or None
            )
            events.append(started)
        text = _text(function.arguments)
        if not text:
            return
        if current.index is None:
            current.held.append(text)
            return
        if current.held:
            text = "".join([*current.held, text])
            current.held.clear()
        current.tell(text)
        self.size += len(text)
        events.append(ToolCallDelta(current.index, text, self._choice))


def _text(arguments: str | dict[str, Any] | None) -> str:
    if isinstance(arguments, dict):
        return msgspec.json.encode(arguments).decode()
    return arguments or ""
