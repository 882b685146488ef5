"""Map names of functions that clients' tool servers chose to names that every target takes.

A name like ``files.read/v2`` becomes ``files_read_v2`` on the way in; the request's
``function_names`` map it back in the reply. Two names never become the same one.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from causerie.protocol.parsing.fields import ObjectReader
from causerie.protocol.request import Message, Tool

_TAKEN_BY_ALL = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_OTHERS = re.compile(r"[^a-zA-Z0-9_-]", re.ASCII)
_MOST = 64  # characters
_DIGITS = 8
_MAX_REPORTED = 16

Names = Mapping[str, str]


def names_for_all(tools: Iterable[Tool], messages: Iterable[Message]) -> Names:
    """Return the name that takes the place of each name that some targets do not take."""
    names = {tool.name for tool in tools}
    for message in messages:
        for call in message.tool_calls:
            names.add(call.name)
        if message.name is not None and message.role == "tool":
            names.add(message.name)
    others = sorted(name for name in names if not _TAKEN_BY_ALL.fullmatch(name))
    if not others:
        return {}
    taken = names.difference(others)
    shared = Counter(map(_plain, others))
    made: dict[str, str] = {}
    for name in others:
        plain = _plain(name)
        if len(name) > _MOST or shared[plain] > 1 or plain in taken:
            plain = _distinct(name, plain, taken)
        taken.add(plain)
        made[name] = plain
    return made


def _plain(name: str) -> str:
    return _OTHERS.sub("_", name)[:_MOST]


def _distinct(name: str, plain: str, taken: set[str]) -> str:
    """Return the name with digits that no other name has."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    digits = (digest[at : at + _DIGITS] for at in range(len(digest) - _DIGITS))
    made = (f"{plain[: _MOST - _DIGITS - 1]}_{each}" for each in digits)
    return next(each for each in made if each not in taken)


def with_names(fields: ObjectReader, names: Names) -> ObjectReader:
    """Return the fields of a request, which were read without an error, with other names."""
    values: dict[str, Any] = dict(fields.values)
    values["messages"] = [_renamed_message(each, names) for each in values["messages"]]
    if values.get("tools"):
        values["tools"] = [_renamed(tool, names) for tool in values["tools"]]
    choice: Any = values.get("tool_choice")
    if isinstance(choice, dict):
        values["tool_choice"] = _renamed_choice(choice, names)
    return ObjectReader(values, fields.path)


def name_changes(tools: Sequence[Tool], names: Names) -> Sequence[str]:
    """Return the report of the names; those of functions that are only called come last."""
    places = {tool.name: f"tools[{at}].function.name" for at, tool in enumerate(tools)}
    called = [name for name in names if name not in places]
    places |= {name: f"function {quote(name[:_MOST], safe='')}" for name in called}
    changes = [f"{place}->{names[name]}" for name, place in places.items() if name in names]
    more = len(changes) - _MAX_REPORTED
    return [*changes[:_MAX_REPORTED], f"{more} more names of functions"] if more > 0 else changes


def _renamed_message(message: Any, names: Names) -> Any:
    if message["role"] == "tool" and message.get("name") in names:
        return {**message, "name": names[message["name"]]}
    if message["role"] == "assistant" and message.get("tool_calls"):
        calls = [_renamed(call, names) for call in message["tool_calls"]]
        return {**message, "tool_calls": calls}
    return message


def _renamed_choice(choice: Any, names: Names) -> Any:
    allowed = choice.get("allowed_tools")
    if choice.get("type") != "allowed_tools" or not isinstance(allowed, dict):
        return _renamed(choice, names)
    tools = allowed.get("tools")
    if not isinstance(tools, list):
        return choice
    renamed = [_renamed(tool, names) for tool in tools]
    return {**choice, "allowed_tools": {**allowed, "tools": renamed}}


def _renamed(holder: Any, names: Names) -> Any:
    function: Any = holder.get("function") if isinstance(holder, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or name not in names:
        return holder
    return {**holder, "function": {**function, "name": names[name]}}
