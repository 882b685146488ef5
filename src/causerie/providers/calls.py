"""Calls put together from their pieces, whatever servers leave out or repeat.

Seen: no index, no id, the same index for every call (without ids, too), several calls in one
piece, a whole call in one piece, the name in pieces, or repeated in every piece, with a new id
each time, arguments as an object, several objects one behind the other, a call that comes
again, ids that an earlier turn of the conversation has already used, or that are too long.

A call that goes out has the name of a function of the request and one JSON object as arguments,
or the reply failed. Arguments go out as they arrive; what may be more of a name or the
repetition of a call is held until that is decided.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from causerie.errors import UnusableOutput
from causerie.protocol.body import is_object
from causerie.protocol.body_types import MAX_NAME
from causerie.protocol.events import Event, ReasoningDelta, ToolCallDelta, ToolCallStarted
from causerie.protocol.reasoning import seal_of
from causerie.protocol.request import Message
from causerie.protocol.sse import Brackets
from causerie.providers.wire import ProviderCall

_encode = msgspec.json.Encoder(order="sorted").encode
_NO_ARGUMENTS = b"none"  # as a meaning
_MOST = 1024  # calls of a choice, those that only repeat others included
_MOST_COMPARED = 128 * 1024


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class ConversationCallIds(Struct, eq=False):
    """Ids that are unique within the conversation, and that are accepted when they come back."""

    _messages: Iterable[Message]
    _new_id: Callable[[], str] = new_call_id
    _used_ids: set[str] | None = None

    def take(self, given: str | None) -> str:
        """Return the id that was given, or a new one if there is none, or it cannot be used."""
        if self._used_ids is None:
            calls = (call for message in self._messages for call in message.tool_calls)
            self._used_ids = {call.id for call in calls}
        if given is None or len(given) > MAX_NAME or not given.strip():
            given = self._new_id()
        while given in self._used_ids:
            given = self._new_id()
        self._used_ids.add(given)
        return given


@dataclass(slots=True, eq=False)
class _PendingCall:
    # `index` is ours, once the call has started for the client.
    given: str | None = None
    place: int | None = None  # the server's index
    name: str = ""
    index: int | None = None
    extra: dict[str, Any] | None = None
    repeats: _PendingCall | None = None
    """A call whose repetition this one may be: nothing of it goes out until that is known."""
    text: list[str] = field(default_factory=list)
    sent: int = 0  # pieces of `text` that have gone out
    opened: bool = False  # the arguments begin as an object does
    whole: bool = False
    meaning: bytes = b""  # of the whole arguments, once it was asked for
    brackets: Brackets = field(default_factory=Brackets)

    @property
    def ended(self) -> bool:
        """Return true if the arguments are whole, or have not begun."""
        return self.whole or self.brackets.empty

    def read(self, text: str) -> int:
        """Read arguments up to the end of their object; return how much that is."""
        brackets = self.brackets
        blank = brackets.empty
        end = brackets.read(text)
        if blank and not brackets.empty:
            self.opened = text.lstrip().startswith("{")
        self.text.append(text if end == len(text) else text[:end])
        if brackets.closed:
            if not is_object("".join(self.text)):
                raise UnusableOutput("The provider sent a call whose arguments are no JSON object.")
            self.whole = True
        return end

    @property
    def meant(self) -> tuple[str, bytes]:
        """Return the name and a digest of the arguments, of a call that is whole or has none."""
        if self.whole and not self.meaning:
            self.meaning = _arguments_digest("".join(self.text))
        return self.name, self.meaning or _NO_ARGUMENTS


class ChoiceCalls(Struct, eq=False):
    """The calls of one choice; ``functions`` are those of the request."""

    _choice_index: int
    _call_ids: ConversationCallIds
    _function_names: Collection[str]
    _open_calls: list[_PendingCall] = []
    _unstarted: list[_PendingCall] = []  # without those that may be repetitions
    _begun_calls: int = 0
    _compared_calls: int = 0  # calls that the calls of messages were compared with
    _by_id: dict[str, _PendingCall] = {}
    _by_index: dict[int, _PendingCall] = {}
    started: int = 0
    size: int = 0  # characters of names and arguments that have gone out

    def feed(self, calls: Iterable[ProviderCall], events: list[Event]) -> None:
        """Read pieces of calls; raises :class:`UnusableOutput` for what can be none."""
        for call in calls:
            found = self._call_by_id_or_index(call)
            if found is None or not self._continues_call(found, call):
                found = self._open_call(call)
            self._advance_call(found, call, events)

    def feed_whole(self, calls: Iterable[ProviderCall], events: list[Event]) -> None:
        """Read the calls of a message; those that have come before are passed over."""
        self._compared_calls += len(self._open_calls)
        if self._compared_calls > _MOST_COMPARED:
            raise UnusableOutput("The provider repeated its calls too often.")
        before = Counter(each.meant for each in self._open_calls if each.ended)
        for call in calls:
            meant = _call_name(call), _arguments_digest(_call_arguments(call))
            known = self._by_id.get(call.id or "")
            if before[meant]:
                before[meant] -= 1
            elif known is None or not known.ended or known.meant != meant:
                self._advance_call(self._open_call(call), call, events)

    def arguments(self) -> str:
        return "".join("".join(each.text) for each in self._open_calls)

    def finish(self, events: list[Event], *, cut: bool) -> None:
        """End all calls, which are whole unless ``cut``; raises :class:`UnusableOutput`."""
        for current in self._open_calls:
            if current.brackets.empty:
                current.text.clear()
            elif not current.opened:
                current.text[:] = [] if cut else _quoted_object("".join(current.text))
                current.opened = current.whole = bool(current.text)
            if not cut:
                if current.name not in self._function_names:
                    raise UnusableOutput("The provider sent a call that names no function.")
                if current.text and not current.whole:
                    raise UnusableOutput("The provider broke its reply off amid a call.")
            elif current.repeats is not None and "".join(current.repeats.text).startswith(
                "".join(current.text)
            ):
                continue  # it may be a repetition
            current.repeats = None
            if current.index is None and not self._emit_call_start(current, events, ended=True):
                continue
            self._emit_unsent_arguments(current, events)
            if not current.text and not cut:
                events.append(ToolCallDelta(current.index or 0, "{}", self._choice_index))

    def _call_by_id_or_index(self, call: ProviderCall) -> _PendingCall | None:
        if call.id and (same := self._by_id.get(call.id)) is not None:
            return same
        last = self._open_calls[-1] if self._open_calls else None
        if call.index is None:
            return last
        found = self._by_index.get(call.index)
        nameless = not call.id and not _call_name(call)
        return last if found is None and nameless and last and not last.whole else found

    def _continues_call(self, found: _PendingCall, call: ProviderCall) -> bool:
        name = _call_name(call)
        other = bool(call.id and found.given and call.id != found.given)
        if name and found.name and name != found.name:
            return not other and found.brackets.empty and bool(self._longer_name_of(found, name))
        if not other:
            return True
        if not found.ended:  # older servers give each piece an id of its own
            return found.brackets.quoted or not _call_arguments(call).lstrip().startswith("{")
        return not name and (found.brackets.empty or not _call_arguments(call).strip())

    def _longer_name_of(self, found: _PendingCall, name: str) -> str:
        if found.index is None:
            for joined in (found.name + name, name if name.startswith(found.name) else ""):
                if joined and any(each.startswith(joined) for each in self._function_names):
                    return joined
        return ""

    def _open_call(self, call: ProviderCall) -> _PendingCall:
        made = self._register_call(_PendingCall(place=call.index))
        self._unstarted.append(made)
        if call.index is not None:
            self._by_index[call.index] = made
        return made

    def _register_call(self, made: _PendingCall) -> _PendingCall:
        self._begun_calls += 1
        if self._begun_calls > _MOST:
            raise UnusableOutput(f"The provider made more than {_MOST} calls in one reply.")
        self._open_calls.append(made)
        return made

    def _open_next_object(self, whole: _PendingCall) -> _PendingCall:
        made = self._register_call(_PendingCall(None, whole.place, whole.name, repeats=whole))
        self._redirect_pieces(whole, made)
        return made

    def _redirect_pieces(self, before: _PendingCall, now: _PendingCall) -> None:
        self._by_id.update({key: now for key, each in self._by_id.items() if each is before})
        self._by_index.update({key: now for key, each in self._by_index.items() if each is before})

    def _advance_call(self, current: _PendingCall, call: ProviderCall, events: list[Event]) -> None:
        if call.id and current.given is None and current.repeats is None:
            current.given = call.id
            self._by_id[call.id] = current
        if call.index is not None:
            self._by_index.setdefault(call.index, current)
        name = _call_name(call)
        if name and (name != current.name or name not in self._function_names):
            current.name = self._longer_name_of(current, name) if current.name else name
            if not any(each.startswith(current.name) for each in self._function_names):
                raise UnusableOutput("The provider called a function that the request has not.")
        current.extra = call.extra_content or current.extra
        text = _call_arguments(call)
        if not text:
            self._emit_known_calls(current, events)
        while text and (not current.whole or (text := text.lstrip())):
            if current.whole:
                current = self._open_next_object(current.repeats or current)
            text = text[current.read(text) :]
            if current.whole and current.repeats is not None:
                current = self._resolve_repetition(current, current.repeats)
            self._emit_known_calls(current, events)

    def _resolve_repetition(self, current: _PendingCall, repeated: _PendingCall) -> _PendingCall:
        if repeated.meant == current.meant:
            self._open_calls.remove(current)
            self._redirect_pieces(current, repeated)
            return repeated
        current.repeats = None
        self._unstarted.append(current)
        return current

    def _emit_known_calls(self, current: _PendingCall, events: list[Event]) -> None:
        if current.index is not None:
            self._emit_unsent_arguments(current, events)
            return
        while self._unstarted and self._emit_call_start(self._unstarted[0], events, ended=False):
            self._emit_unsent_arguments(self._unstarted.pop(0), events)

    def _emit_unsent_arguments(self, current: _PendingCall, events: list[Event]) -> None:
        if current.opened and current.sent < len(current.text):
            text = "".join(current.text[current.sent :])
            current.sent = len(current.text)
            self.size += len(text)
            events.append(ToolCallDelta(current.index or 0, text, self._choice_index))

    def _emit_call_start(self, current: _PendingCall, events: list[Event], *, ended: bool) -> bool:
        name = current.name
        if current.repeats is not None or name not in self._function_names:
            return False
        longer = (each for each in self._function_names if each.startswith(name) and each != name)
        if not ended and current.brackets.empty and any(longer):
            return False
        current.index = self.started
        self.started += 1
        self.size += len(name)
        identifier = self._call_ids.take(current.given)
        extra = current.extra or None
        if extra:  # said as reasoning too: some clients keep that and nothing alongside a call
            events.append(ReasoningDelta("", self._choice_index, (seal_of(identifier, extra),)))
        events.append(ToolCallStarted(current.index, identifier, name, self._choice_index, extra))
        return True


def _call_name(call: ProviderCall) -> str:
    return (call.function.name or "").strip() if call.function is not None else ""


def _call_arguments(call: ProviderCall) -> str:
    arguments = call.function.arguments if call.function is not None else None
    if isinstance(arguments, dict):
        return msgspec.json.encode(arguments).decode()
    return arguments or ""


def _arguments_digest(arguments: str) -> bytes:
    if arguments.strip() in ("", "{}", "null"):
        return _NO_ARGUMENTS
    value = _parsed_json(arguments)
    plain = arguments.encode("utf-8", "replace") if value is None else _encode(value)
    return hashlib.blake2b(plain, digest_size=16).digest()


def _parsed_json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _quoted_object(arguments: str) -> list[str]:
    value = _parsed_json(arguments)
    if isinstance(value, str) and is_object(value):
        return [value]
    if arguments.strip() == "null" or (isinstance(value, str) and not value.strip()):
        return []
    raise UnusableOutput("The provider sent a call whose arguments are no JSON object.")
