"""Tool calls put together from their pieces, whatever servers leave out or repeat.

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
    _used_call_ids: set[str] | None = None

    def take(self, given: str | None) -> str:
        """Return the given id, or a new one if that is missing, unusable or already used."""
        if self._used_call_ids is None:
            calls = (call for message in self._messages for call in message.tool_calls)
            self._used_call_ids = {call.id for call in calls}
        if given is None or len(given) > MAX_NAME or not given.strip():
            given = self._new_id()
        while given in self._used_call_ids:
            given = self._new_id()
        self._used_call_ids.add(given)
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
        """Read arguments up to the end of their object; return how many characters it took."""
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
            self.meaning = _digest_arguments("".join(self.text))
        return self.name, self.meaning or _NO_ARGUMENTS


class ChoiceCalls(Struct, eq=False):
    """The tool calls of one choice of a reply, put together from their pieces."""

    _choice_index: int
    _call_id_allocator: ConversationCallIds
    _function_names: Collection[str]
    _open_calls: list[_PendingCall] = []
    _unstarted: list[_PendingCall] = []  # without those that may be repetitions
    _call_count_with_repeats: int = 0
    _compared_call_count: int = 0  # calls that the calls of messages were compared with
    _by_id: dict[str, _PendingCall] = {}
    _by_index: dict[int, _PendingCall] = {}
    started: int = 0
    size: int = 0  # characters of names and arguments that have gone out

    def feed(self, calls: Iterable[ProviderCall], events: list[Event]) -> None:
        """Read pieces of calls; raises :class:`UnusableOutput` for what cannot be a call."""
        for call in calls:
            found = self._find_probable_call_of_piece(call)
            if found is None or not self._may_continue(found, call):
                found = self._add_pending_call(call)
            self._read_piece(found, call, events)

    def feed_whole(self, calls: Iterable[ProviderCall], events: list[Event]) -> None:
        """Read the calls of a message; those that have come before are passed over."""
        self._compared_call_count += len(self._open_calls)
        if self._compared_call_count > _MOST_COMPARED:
            raise UnusableOutput("The provider repeated its calls too often.")
        before = Counter(each.meant for each in self._open_calls if each.ended)
        for call in calls:
            meant = _read_name(call), _digest_arguments(_read_arguments(call))
            known = self._by_id.get(call.id or "")
            if before[meant]:
                before[meant] -= 1
            elif known is None or not known.ended or known.meant != meant:
                self._read_piece(self._add_pending_call(call), call, events)

    def arguments(self) -> str:
        return "".join("".join(each.text) for each in self._open_calls)

    def finish(self, events: list[Event], *, cut: bool) -> None:
        """End all calls, which are whole unless ``cut``; raises :class:`UnusableOutput`."""
        for current in self._open_calls:
            if current.brackets.empty:
                current.text.clear()
            elif not current.opened:
                current.text[:] = [] if cut else _unquote_object_into_pieces("".join(current.text))
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
            if current.index is None and not self._try_emit_start(current, events, ended=True):
                continue
            self._emit_unsent_arguments(current, events)
            if not current.text and not cut:
                events.append(ToolCallDelta(current.index or 0, "{}", self._choice_index))

    def _find_probable_call_of_piece(self, piece: ProviderCall) -> _PendingCall | None:
        if piece.id and (same := self._by_id.get(piece.id)) is not None:
            return same
        last = self._open_calls[-1] if self._open_calls else None
        if piece.index is None:
            return last
        found = self._by_index.get(piece.index)
        nameless = not piece.id and not _read_name(piece)
        return last if found is None and nameless and last and not last.whole else found

    def _may_continue(self, pending: _PendingCall, piece: ProviderCall) -> bool:
        name = _read_name(piece)
        other = bool(piece.id and pending.given and piece.id != pending.given)
        if name and pending.name and name != pending.name:
            return not other and pending.brackets.empty and bool(self._compose_name(pending, name))
        if not other:
            return True
        if not pending.ended:  # older servers give each piece an id of its own
            return pending.brackets.quoted or not _read_arguments(piece).lstrip().startswith("{")
        return not name and (pending.brackets.empty or not _read_arguments(piece).strip())

    def _compose_name(self, pending: _PendingCall, name: str) -> str:
        if pending.index is None:
            for joined in (pending.name + name, name if name.startswith(pending.name) else ""):
                if joined and any(each.startswith(joined) for each in self._function_names):
                    return joined
        return ""

    def _add_pending_call(self, first_piece: ProviderCall) -> _PendingCall:
        made = self._append_to_open_calls(_PendingCall(place=first_piece.index))
        self._unstarted.append(made)
        if first_piece.index is not None:
            self._by_index[first_piece.index] = made
        return made

    def _append_to_open_calls(self, pending: _PendingCall) -> _PendingCall:
        self._call_count_with_repeats += 1
        if self._call_count_with_repeats > _MOST:
            raise UnusableOutput(f"The provider made more than {_MOST} calls in one reply.")
        self._open_calls.append(pending)
        return pending

    def _add_following_call(self, call: _PendingCall) -> _PendingCall:
        made = self._append_to_open_calls(_PendingCall(None, call.place, call.name, repeats=call))
        self._redirect_pieces(call, made)
        return made

    def _redirect_pieces(self, old: _PendingCall, new: _PendingCall) -> None:
        self._by_id.update({key: new for key, each in self._by_id.items() if each is old})
        self._by_index.update({key: new for key, each in self._by_index.items() if each is old})

    def _read_piece(self, pending: _PendingCall, piece: ProviderCall, events: list[Event]) -> None:
        if piece.id and pending.given is None and pending.repeats is None:
            pending.given = piece.id
            self._by_id[piece.id] = pending
        if piece.index is not None:
            self._by_index.setdefault(piece.index, pending)
        name = _read_name(piece)
        if name and (name != pending.name or name not in self._function_names):
            pending.name = self._compose_name(pending, name) if pending.name else name
            if not any(each.startswith(pending.name) for each in self._function_names):
                raise UnusableOutput("The provider called a function that the request has not.")
        pending.extra = piece.extra_content or pending.extra
        text = _read_arguments(piece)
        if not text:
            self._emit_ready_calls(pending, events)
        while text and (not pending.whole or (text := text.lstrip())):
            if pending.whole:
                pending = self._add_following_call(pending.repeats or pending)
            text = text[pending.read(text) :]
            if pending.whole and pending.repeats is not None:
                pending = self._resolve_repetition(pending, pending.repeats)
            self._emit_ready_calls(pending, events)

    def _resolve_repetition(self, pending: _PendingCall, earlier: _PendingCall) -> _PendingCall:
        if earlier.meant == pending.meant:
            self._open_calls.remove(pending)
            self._redirect_pieces(pending, earlier)
            return earlier
        pending.repeats = None
        self._unstarted.append(pending)
        return pending

    def _emit_ready_calls(self, pending: _PendingCall, events: list[Event]) -> None:
        if pending.index is not None:
            self._emit_unsent_arguments(pending, events)
            return
        while self._unstarted and self._try_emit_start(self._unstarted[0], events, ended=False):
            self._emit_unsent_arguments(self._unstarted.pop(0), events)

    def _emit_unsent_arguments(self, pending: _PendingCall, events: list[Event]) -> None:
        if pending.opened and pending.sent < len(pending.text):
            text = "".join(pending.text[pending.sent :])
            pending.sent = len(pending.text)
            self.size += len(text)
            events.append(ToolCallDelta(pending.index or 0, text, self._choice_index))

    def _try_emit_start(self, pending: _PendingCall, events: list[Event], *, ended: bool) -> bool:
        name = pending.name
        if pending.repeats is not None or name not in self._function_names:
            return False
        longer = (each for each in self._function_names if each.startswith(name) and each != name)
        if not ended and pending.brackets.empty and any(longer):
            return False
        pending.index = self.started
        self.started += 1
        self.size += len(name)
        identifier = self._call_id_allocator.take(pending.given)
        extra = pending.extra or None
        if extra:  # said as reasoning too: some clients keep that and nothing alongside a call
            events.append(ReasoningDelta("", self._choice_index, (seal_of(identifier, extra),)))
        events.append(ToolCallStarted(pending.index, identifier, name, self._choice_index, extra))
        return True


def _read_name(piece: ProviderCall) -> str:
    return (piece.function.name or "").strip() if piece.function is not None else ""


def _read_arguments(piece: ProviderCall) -> str:
    arguments = piece.function.arguments if piece.function is not None else None
    if isinstance(arguments, dict):
        return msgspec.json.encode(arguments).decode()
    return arguments or ""


def _digest_arguments(arguments: str) -> bytes:
    if arguments.strip() in ("", "{}", "null"):
        return _NO_ARGUMENTS
    value = _parse_json_or_none(arguments)
    plain = arguments.encode("utf-8", "replace") if value is None else _encode(value)
    return hashlib.blake2b(plain, digest_size=16).digest()


def _parse_json_or_none(json_text: str) -> object:
    try:
        return msgspec.json.decode(json_text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _unquote_object_into_pieces(arguments: str) -> list[str]:
    value = _parse_json_or_none(arguments)
    if isinstance(value, str) and is_object(value):
        return [value]
    if arguments.strip() == "null" or (isinstance(value, str) and not value.strip()):
        return []
    raise UnusableOutput("The provider sent a call whose arguments are no JSON object.")
