"""Writes a reply that broke off elsewhere into the prompt; checks what the parser reads of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct, structs

from causerie.chat.formats import format as forms
from causerie.chat.history import derived_id, segment_text
from causerie.chat.schema import WhiteSpace
from causerie.chat.taint import Traced, authored, joined
from causerie.protocol import events
from causerie.protocol.body import is_object


class ResumedReply(Struct, frozen=True):
    """A reply so far, from which generation continues."""

    tokens: tuple[int, ...]
    texts: tuple[str, ...]  # texts that the model's parser reads
    partial: events.Partial  # the part that was sent
    made: int
    """Tokens that count towards the limits; another model may have counted them in its own."""


class Diverged(Exception):
    """The parsed reply differs from what was sent to the client."""


class Given:
    """Compares a parsed reply with what was sent; ``new`` returns what goes beyond it."""

    def __init__(self, partial: events.Partial) -> None:
        self._unread_text_by_event = {
            events.ReasoningDelta: partial.reasoning,
            events.TextDelta: partial.text,
        }
        self._unread_call_names = [call.name for call in partial.calls]
        self._unread_arguments_by_call = {call.index: call.arguments for call in partial.calls}

    @property
    def all_seen(self) -> bool:
        """Return whether the model has repeated everything that was already sent."""
        left = (*self._unread_text_by_event.values(), *self._unread_arguments_by_call.values())
        return not (self._unread_call_names or any(left))

    def new(self, read: Iterable[events.ContentEvent]) -> list[events.ContentEvent]:
        """Return the read events without what was sent; raise :class:`Diverged` if that differs."""
        return [left for event in read if (left := self._cut_to_unsent_part(event)) is not None]

    def _cut_to_unsent_part(self, event: events.ContentEvent) -> events.ContentEvent | None:
        match event:
            case events.ReasoningDelta(text) | events.TextDelta(text):
                kind, known = type(event), self._unread_text_by_event[type(event)]
                self._unread_text_by_event[kind], left = _cut_common_start_of_both(known, text)
                return structs.replace(event, text=left) if left else None
            case events.ToolCallDelta(index, text):
                known = self._unread_arguments_by_call.get(index, "")
                self._unread_arguments_by_call[index], left = _cut_common_start_of_both(known, text)
                return structs.replace(event, arguments=left) if left else None
            case events.ToolCallStarted():
                if not self._unread_call_names:
                    return event
                if self._unread_call_names.pop(0) != event.name:
                    raise Diverged
                return None


def _cut_common_start_of_both(sent_text: str, read_text: str) -> tuple[str, str]:
    if sent_text.startswith(read_text):
        return sent_text[len(read_text) :], ""
    if read_text.startswith(sent_text):
        return "", read_text[len(sent_text) :]
    raise Diverged


# The texts are proposals: the model's parser reads each, and shows whether it says what the reply
# said.

_STRING = re.compile(r'"(?:[^"\\]|\\.)*("|$)', re.DOTALL)
_PRETTY_SPACE = re.compile(r"(?:\S|(?<=\S)(?: |\n{1,2}[ \t]{0,32})(?=\S|$))*")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def can_write(form: forms.ModelFormat, partial: events.Partial) -> bool:
    if not partial.calls:
        return True
    calls = form.calls
    if len(partial.calls) > 1 and not calls.parallel:
        return False
    whole = all(is_object(call.arguments) for call in partial.calls[:-1])
    return whole and (calls.writes_json or is_object(partial.calls[-1].arguments))


def answer_space(text: str) -> WhiteSpace:
    """Return the white space that the rest of a JSON answer may have after ``text``."""
    return WhiteSpace.PRETTY if _is_json_spaced_like_pretty_print(text) else WhiteSpace.ANY


def call_space(partial: events.Partial) -> WhiteSpace:
    """Return the white space that the arguments of calls may have after an interrupted reply."""
    alike = all(_is_json_spaced_like_pretty_print(call.arguments) for call in partial.calls)
    return WhiteSpace.PRETTY if alike else WhiteSpace.ANY


def _is_json_spaced_like_pretty_print(json_text: str) -> bool:
    return _PRETTY_SPACE.fullmatch(_STRING.sub("0", json_text)) is not None


def writings(
    form: forms.ModelFormat,
    partial: events.Partial,
    *,
    reasoning_open: bool,
    leading: str,
    earlier: int,
    between: str | None = None,
) -> Iterator[Traced]:
    """Yield possible texts of the reply so far, likeliest first; ``earlier`` counts older calls.

    ``between`` stands between a text and its calls; a line break where nobody knows.
    """
    if not can_write(form, partial):
        return
    thought = _write_reasoning(form, partial, reasoning_open, leading)
    opened = (partial.calls and form.said_open) or form.answer_open
    said = joined((authored(opened), partial.text)) if partial.text else Traced("")
    if not partial.calls:
        yield joined((thought, said))
        return
    gap = form.answer_close + "\n" if between is None else between
    before = authored(gap if partial.text else form.calls.lead)
    calls, made = form.calls, partial.calls
    offset = earlier if any(isinstance(s, forms.CallId) and s.continues for s in calls.call) else 1
    written = [_write_call(calls, one, offset + at, whole=True) for at, one in enumerate(made[:-1])]
    for whole in (False,) if calls.writes_json else (False, True):
        last = _write_call(calls, made[-1], offset + len(written), whole=whole)
        end = authored(calls.end if whole and calls.addressed else "")  # the message is
        section = authored(calls.separator).join([*written, last])
        yield joined((thought, said, before, authored(calls.begin), section, end))


def _write_reasoning(
    form: forms.ModelFormat, partial: events.Partial, is_open: bool, leading: str
) -> Traced:
    marks = form.reasoning
    ended = bool(partial.text or partial.calls)
    opened = leading if is_open else leading + marks.open + marks.after_open
    if partial.reasoning:
        closed = marks.before_close + marks.close + marks.after_close if ended else ""
        return joined((authored(opened), partial.reasoning, authored(closed)))
    if not is_open:
        return authored(leading)
    return authored(marks.close + marks.after_close if ended else "")


def _write_call(
    call_form: forms.CallSection, call: events.PartialCall, call_index: int, *, whole: bool
) -> Traced:
    parts: list[str] = []
    for segment in call_form.call:
        if isinstance(segment, forms.CallId):
            parts.append(authored(_choose_call_id(segment, call, call_index)))
        else:
            begun = isinstance(segment, forms.JsonArguments)
            arguments = call.arguments if begun else call.arguments or "{}"
            parts.append(segment_text(segment, call.name, arguments, call.id))
        if not whole and not isinstance(segment, forms.Literal | forms.Name | forms.CallId):
            break
    return joined(parts)


def _choose_call_id(segment: forms.CallId, call: events.PartialCall, call_index: int) -> str:
    pattern = segment.pattern.replace("{index}", "[0-9]+").replace("{name}", re.escape(call.name))
    if segment.kept and re.fullmatch(pattern, call.id):
        return call.id
    if "[" not in segment.pattern:
        written = segment.pattern.replace("\\", "").replace("{index}", str(call_index))
        return written.replace("{name}", call.name)
    size = int(segment.pattern.rpartition("{")[2].rstrip("}"))
    return derived_id(call.id, _LETTERS, size)
