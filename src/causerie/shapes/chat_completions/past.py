"""Repairs past messages of a conversation, which its client cannot change any more."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from causerie.errors import InvalidRequest
from causerie.protocol.body import ObjectReader, is_object
from causerie.protocol.body_types import MAX_NAME, MAX_PAST_CALLS
from causerie.protocol.known_fields import past_roles, role_of
from causerie.protocol.request import Message, Role
from causerie.shapes.chat_completions.messages import MAX_PARTS, PARTS, read_part

NO_RESULT = "No result was returned."  # added as the result of a call that has none
_UNKNOWN = "unknown"  # name of a function whose name is lost
_REPLACEMENT = "\ufffd"
_TEXTS = ("text", "input_text", "output_text")

Entry = dict[str, Any]


def needs_mending(messages: Sequence[Message], values: Sequence[Any]) -> bool:
    """Return true if messages that were read without an error need repair all the same.

    Each must have content, and each call an id of its own, an object as arguments, and its result
    behind it in the order of the calls.
    """
    ids: set[str] = set()
    made = 0
    expected: list[str] = []
    for index, message in enumerate(messages):
        calls = message.tool_calls
        if not message.content:
            content = values[index].get("content")
            if content != "" and not (calls and content is None):
                return True
        if expected:
            if message.tool_call_id != expected.pop():
                return True
        elif message.role == "tool":
            return True
        if calls:
            for call in calls:
                expected.insert(0, call.id)
                if not is_object(call.arguments):
                    return True
            ids.update(expected)
            made += len(expected)
    return bool(expected) or len(ids) < made


def mend(values: Sequence[Any], mark: str = "") -> tuple[list[tuple[int, Any]], Sequence[str]]:
    """Return all messages by index, past ones repaired, and the report of the repairs."""
    changes = Changes()
    mended: list[tuple[int, Any]] = []
    past = past_roles(values)
    for index, value in enumerate(values):
        role = past.get(index)
        if role is not None:
            mender = _MessageMender(f"messages[{index}]", role, changes)
            value = mender.mended(_replace_half_marks(value, index, mark, changes))
        mended.append((index, value))
    return _pair_results(mended, changes), changes.reported()


class Changes(Struct, eq=False):
    """A bounded list of changes to a request, to be reported in a header."""

    _named_changes: dict[str, None] = {}
    _unlisted_count: int = 0

    def note(self, change: str) -> None:
        """Note a change once; the first ones are named, the others counted."""
        if len(self._named_changes) < 32:
            self._named_changes[change] = None
        else:
            self._unlisted_count += 1

    def note_others(self, fields: ObjectReader, known: Collection[str]) -> None:
        for name in fields.values:
            if fields.has(name) and name not in known:
                self.note(f"{fields.param(quote(name[:64], safe=''))} dropped")

    def reported(self) -> Sequence[str]:
        more = [f"{self._unlisted_count} more repairs of messages"] if self._unlisted_count else []
        return (*self._named_changes, *more)


def _replace_half_marks(message: Entry, index: int, mark: str, changes: Changes) -> Entry:
    if not mark:
        return message
    whole: Entry = {name.replace(mark, _REPLACEMENT): each for name, each in message.items()}
    for name, each in whole.items():
        text = msgspec.json.encode(each)
        if mark.encode() in text:
            whole[name] = msgspec.json.decode(text.replace(mark.encode(), _REPLACEMENT.encode()))
            changes.note(f"messages[{index}].{name} repaired")
    return whole


class _MessageMender(Struct, eq=False):
    _place: str
    _role: Role
    _changes: Changes

    def mended(self, value: Entry) -> Entry:
        message = dict(value)
        self._drop_invalid_field(message, "name", str, MAX_NAME)
        if self._role == "assistant":
            for name in ("refusal", "reasoning_content", "reasoning"):
                self._drop_invalid_field(message, name, str)
            self._drop_invalid_field(message, "reasoning_details", list)
            blocks = message.get("reasoning_details")
            kept = [block for block in blocks or () if isinstance(block, dict)][:MAX_PARTS]
            if blocks is not None and len(kept) < len(blocks):
                message["reasoning_details"] = kept
                self._note_change("reasoning_details", "repaired")
            old = message.pop("function_call", None)
            if old is not None and not message.get("tool_calls"):
                message["tool_calls"] = [{"type": "function", "function": old}]
                self._note_change("function_call->tool_calls", "repaired")
            self._drop_invalid_field(message, "tool_calls", list)
            calls = message.get("tool_calls")
            if calls:
                made = [self._mend_call_or_none(call, at) for at, call in enumerate(calls)]
                message["tool_calls"] = [call for call in made if call is not None]
        self._mend_content(message)
        return message

    def _note_change(self, path: str, change: str) -> None:
        self._changes.note(f"{self._place}.{path} {change}")

    def _drop_invalid_field(
        self, message: Entry, name: str, kind: type[str] | type[list[Any]], most: int | None = None
    ) -> None:
        value = message.get(name)
        if value is None or (isinstance(value, kind) and (most is None or len(value) <= most)):
            return
        del message[name]
        self._note_change(name, "dropped")

    def _mend_call_or_none(self, call: Any, index: int) -> Entry | None:
        place = f"tool_calls[{index}]"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or index >= MAX_PAST_CALLS:
            self._note_change(place, "dropped")
            return None
        if call.get("type") != "function":
            call = {**call, "type": "function"}
            self._note_change(f"{place}.type", "repaired")
        if call.get("extra_content") is not None and not isinstance(call["extra_content"], dict):
            call = {**call, "extra_content": None}
            self._note_change(f"{place}.extra_content", "dropped")
        if not (isinstance(function.get("name"), str) and function["name"]):
            function = {**function, "name": _UNKNOWN}
            self._note_change(f"{place}.function.name", "repaired")
        if not is_object(function.get("arguments")):
            function = {**function, "arguments": _mend_arguments(function.get("arguments"))}
            self._note_change(f"{place}.function.arguments", "repaired")
        return {**call, "function": function}

    def _mend_content(self, message: Entry) -> None:
        content = message.get("content")
        if isinstance(content, str):
            return
        if content is None or content == []:
            if content is None and (message.get("tool_calls") or message.get("refusal")):
                return
            message["content"] = ""
            self._note_change("content", "emptied")
        elif isinstance(content, list):
            kept: list[Entry] = []
            for at, part in enumerate(content):
                made = self._mend_part_or_none(part) if at < MAX_PARTS else None
                if made is not part:
                    self._note_change(f"content[{at}]", "dropped" if made is None else "repaired")
                if made is not None:
                    kept.append(made)
            message["content"] = kept or ""
        else:
            message["content"] = msgspec.json.encode(content).decode()
            self._note_change("content", "repaired")

    def _mend_part_or_none(self, part: Any) -> Entry | None:
        if isinstance(part, str):
            return {"type": "text", "text": part}
        if not isinstance(part, dict):
            return None
        kind = part.get("type")
        if kind in _TEXTS or (kind == "refusal" and self._role == "assistant"):
            return _rebuild_text_part_or_none(part, "refusal" if kind == "refusal" else "text")
        if kind != "image_url":
            return None
        try:
            read_part(ObjectReader(part), self._role)
        except InvalidRequest:
            return None
        return part


def _rebuild_text_part_or_none(part: Entry, kind: str) -> Entry | None:
    text = part.get(kind)
    if not isinstance(text, str):
        return None
    if part["type"] == kind and all(part.get(name) is None for name in PARTS if name != kind):
        return part
    others = {name: each for name, each in part.items() if name not in PARTS}
    return {**others, "type": kind, kind: text}


def _mend_arguments(arguments: Any) -> str:
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return "{}"
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return text if is_object(text) else msgspec.json.encode({"malformed": text}).decode()


class _Call(Struct, eq=False):
    given: str | None
    id: str
    name: str
    result: tuple[int, Entry] | None = None


class _CallIds:
    def __init__(self) -> None:
        self._used_call_ids: set[str] = set()
        self._replacement_counts_by_id: Counter[str] = Counter()

    def take(self, given: str | None) -> str:
        made = given = given or ""
        while made in self._used_call_ids or not 0 < len(made) <= MAX_NAME:
            self._replacement_counts_by_id[given] += 1
            text = f"{self._replacement_counts_by_id[given]} {given}"
            made = f"call_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
        self._used_call_ids.add(made)
        return made


class _OpenCalls:
    def __init__(self) -> None:
        self._call_groups_by_id: dict[object, deque[deque[_Call]]] = {}
        self._newest_message_calls: deque[_Call] = deque()

    def add(self, calls: Iterable[_Call]) -> None:
        groups: dict[object, deque[_Call]] = {}
        self._newest_message_calls = deque(calls)
        for call in self._newest_message_calls:
            groups.setdefault(call.given, deque()).append(call)
        for given, group in groups.items():
            self._call_groups_by_id.setdefault(given, deque()).append(group)

    def take(self, given: str | None) -> _Call | None:
        if given is None:
            while self._newest_message_calls and self._newest_message_calls[0].result is not None:
                self._newest_message_calls.popleft()
            return self._newest_message_calls[0] if self._newest_message_calls else None
        return self.take_later(given, newest=True)

    def take_later(self, given: str | None, *, newest: bool = False) -> _Call | None:
        groups = self._call_groups_by_id.get(given)
        while groups:
            group = groups[-1 if newest else 0]
            while group:
                call = group.popleft()
                if call.result is None:
                    return call
            groups.pop() if newest else groups.popleft()
        return None


def _pair_results(messages: Sequence[tuple[int, Any]], changes: Changes) -> list[tuple[int, Any]]:
    ids = _CallIds()
    calls: dict[int, list[_Call]] = {}
    for index, message in messages:
        if role_of(message) == "assistant" and message.get("tool_calls"):
            for call in message["tool_calls"]:
                given = _string_or_none(call.get("id"))
                made = _Call(given, ids.take(given), call["function"]["name"])
                calls.setdefault(index, []).append(made)
    orphans = _set_call_results_and_list_orphans(messages, calls)
    names = {call.given: call.name for group in calls.values() for call in group}
    placed: list[tuple[int, Any]] = []
    for index, message in messages:
        if index in calls:
            placed += _yield_message_with_results(index, message, calls[index], changes)
        elif index in orphans:
            placed += _yield_made_up_call_and_result(index, message, ids, names, changes)
        elif role_of(message) != "tool":
            placed.append((index, message))
    return placed


def _set_call_results_and_list_orphans(
    messages: Sequence[tuple[int, Any]], calls_by_message: Mapping[int, Sequence[_Call]]
) -> Mapping[int, Entry]:
    unanswered = _OpenCalls()
    early: list[tuple[int, Entry]] = []
    for index, message in messages:
        if index in calls_by_message:
            unanswered.add(calls_by_message[index])
        elif role_of(message) == "tool":
            call = unanswered.take(_string_or_none(message.get("tool_call_id")))
            if call is None:
                early.append((index, message))
            else:
                call.result = index, message
    orphans: dict[int, Entry] = {}
    for index, message in early:
        call = unanswered.take_later(_string_or_none(message.get("tool_call_id")))
        if call is None:
            orphans[index] = message
        else:
            call.result = index, message
    return orphans


def _string_or_none(call_id: Any) -> str | None:
    return call_id if isinstance(call_id, str) else None


def _yield_message_with_results(
    index: int, message: Entry, calls: Sequence[_Call], changes: Changes
) -> Iterator[tuple[int, Entry]]:
    renamed: dict[str, str] = {}
    for at, call in enumerate(calls):
        if call.id != call.given:
            changes.note(f"messages[{index}].tool_calls[{at}].id rewritten")
            if call.given is not None:
                renamed[call.given] = call.id
    if any(call.id != call.given for call in calls):
        told = zip(message["tool_calls"], calls, strict=True)
        message = {**message, "tool_calls": [{**each, "id": call.id} for each, call in told]}
        if message.get("reasoning_details"):  # whose blocks may name the call that they belong to
            message["reasoning_details"] = [
                {**block, "id": renamed.get(block["id"], block["id"])}
                if isinstance(block.get("id"), str)
                else block
                for block in message["reasoning_details"]
            ]
    yield index, message
    before = index
    for at, call in enumerate(calls):
        if call.result is None:
            changes.note(f"messages[{index}].tool_calls[{at}] result added")
            yield index, {"role": "tool", "tool_call_id": call.id, "content": NO_RESULT}
            continue
        place, result = call.result
        if result.get("tool_call_id") != call.id:
            changes.note(f"messages[{place}].tool_call_id rewritten")
        if place != before + 1:
            changes.note(f"messages[{place}] moved")
        before = place
        yield place, {**result, "tool_call_id": call.id}


def _yield_made_up_call_and_result(
    index: int, result: Entry, ids: _CallIds, names: Mapping[str | None, str], changes: Changes
) -> Iterator[tuple[int, Entry]]:
    given = _string_or_none(result.get("tool_call_id"))
    name = result.get("name") or (given and names.get(given)) or _UNKNOWN
    call_id = ids.take(given)
    changes.note(f"messages[{index}] call added")
    function = {"name": name, "arguments": "{}"}
    call = {"id": call_id, "type": "function", "function": function}
    yield index, {"role": "assistant", "content": "", "tool_calls": [call]}
    yield index, {**result, "tool_call_id": call_id}
