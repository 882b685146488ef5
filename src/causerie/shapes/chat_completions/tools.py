"""Read tools and the tool choice, and give functions names that every target accepts."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args
from urllib.parse import quote

from causerie.protocol.body import (
    ObjectReader,
    as_object,
    missing,
    shown,
    unsupported,
    wrong_type,
    wrong_value,
)
from causerie.protocol.body_types import MAX_FUNCTION_NAME, MAX_TOOLS
from causerie.protocol.request import Message, Tool, ToolChoice

_TOOL_FORM = 'an object like {"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}'
_NAMED_CHOICE = '{"type": "function", "function": {"name": NAME}}'
_Mode = Literal["none", "auto", "required"]
_CHOICE_MODES: dict[str, _Mode] = {mode: mode for mode in get_args(_Mode)}


def read_tools(body: ObjectReader) -> tuple[Tool, ...]:
    tools: dict[str, Tool] = {}
    for fields in body.objects("tools", most=MAX_TOOLS, expected=_TOOL_FORM):
        tool = _tool(fields)
        if tool.name in tools:
            raise wrong_value(
                f"{fields.path}.function.name",
                f"is {shown(tool.name)}, which an earlier tool has; names must be unique.",
            )
        tools[tool.name] = tool
    return tuple(tools.values())


def _tool(fields: ObjectReader) -> Tool:
    sort = fields.required_string("type", expected='"function"')
    if sort != "function":
        raise unsupported(fields.param("type"), f'It must be "function", not {shown(sort)}.')
    function = fields.required_object("function", "an object with `name` and `parameters`")
    name = function.required_string("name", most=MAX_FUNCTION_NAME)
    parameters = function.child("parameters")
    return Tool(
        name=name,
        parameters=parameters.values if parameters else {},
        description=function.string("description"),
        strict=function.boolean("strict"),
    )


def read_tool_choice(body: ObjectReader, tools: tuple[Tool, ...]) -> ToolChoice:
    value = body.get("tool_choice")
    if value is None:
        return ToolChoice()
    if isinstance(value, str):
        mode = _CHOICE_MODES.get(value)
        if mode is None:
            raise wrong_value(
                "tool_choice",
                f"must be none, auto, required or {_NAMED_CHOICE}, not {shown(value)}.",
            )
        choice = ToolChoice(mode)
    elif isinstance(value, dict):
        choice = _read_choice(ObjectReader(value, "tool_choice"), {tool.name for tool in tools})
    else:
        raise wrong_type("tool_choice", f"a string or {_NAMED_CHOICE}", value)
    if choice.mode == "required" and not tools:
        raise wrong_value("tool_choice", "asks for a call, but `tools` defines no function.")
    return choice


def _read_choice(fields: ObjectReader, defined: set[str]) -> ToolChoice:
    sort = fields.required_string("type", expected='"function"')
    if sort == "function":
        return ToolChoice("required", (_function_name(fields, defined),))
    if sort != "allowed_tools":
        raise wrong_value(
            "tool_choice.type",
            f"must be function or allowed_tools, not {shown(sort)}; none, auto and required are "
            "strings in place of the object.",
        )
    allowed = fields.required_object("allowed_tools")
    mode = allowed.word("mode", ("auto", "required"))
    if mode is None:
        raise missing(allowed.param("mode"), "auto or required")
    entries = allowed.array("tools", most=MAX_TOOLS)
    if not entries:
        raise missing(allowed.param("tools"), "an array of at least one function")
    names = []
    for index, entry in enumerate(entries):
        one = as_object(entry, f"{allowed.param('tools')}[{index}]")
        if one.get("type") != "function":
            raise wrong_value(one.param("type"), 'must be "function".')
        names.append(_function_name(one, defined))
    return ToolChoice(_CHOICE_MODES[mode], tuple(dict.fromkeys(names)))


def _function_name(fields: ObjectReader, defined: set[str]) -> str:
    function = fields.required_object("function", "an object with a `name`")
    name = function.required_string("name")
    if name not in defined:
        raise wrong_value(
            function.param("name"), f"is {shown(name)}, which `tools` does not define."
        )
    return name


_TAKEN_BY_ALL = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_MAX_NAME_LENGTH = 64  # characters
_DIGITS = 8
_MAX_REPORTED = 16

FunctionNames = Mapping[str, str]


def names_for_all(tools: Iterable[Tool], messages: Iterable[Message]) -> FunctionNames:
    """Return a replacement for each name that some targets do not accept; all are distinct."""
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
    shared = Counter(map(_plain_name, others))
    made: dict[str, str] = {}
    for name in others:
        plain = _plain_name(name)
        if len(name) > _MAX_NAME_LENGTH or shared[plain] > 1 or plain in taken:
            digest = hashlib.sha256(name.encode()).hexdigest()
            digits = (digest[at : at + _DIGITS] for at in range(len(digest) - _DIGITS))
            distinct = (f"{plain[: _MAX_NAME_LENGTH - _DIGITS - 1]}_{each}" for each in digits)
            plain = next(each for each in distinct if each not in taken)
        taken.add(plain)
        made[name] = plain
    return made


def _plain_name(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:_MAX_NAME_LENGTH]


def with_names(fields: ObjectReader, names: FunctionNames) -> ObjectReader:
    values: dict[str, Any] = dict(fields.values)
    values["messages"] = [_renamed_message(each, names) for each in values["messages"]]
    if values.get("tools"):
        values["tools"] = [_renamed(tool, names) for tool in values["tools"]]
    choice: Any = values.get("tool_choice")
    if isinstance(choice, dict):
        values["tool_choice"] = _renamed_choice(choice, names)
    return ObjectReader(values, fields.path)


def name_changes(tools: Sequence[Tool], names: FunctionNames) -> Sequence[str]:
    """Report the renamed functions; those that are only called come last."""
    places = {tool.name: f"tools[{at}].function.name" for at, tool in enumerate(tools)}
    called = [name for name in names if name not in places]
    places |= {name: f"function {quote(name[:_MAX_NAME_LENGTH], safe='')}" for name in called}
    changes = [f"{place}->{names[name]}" for name, place in places.items() if name in names]
    more = len(changes) - _MAX_REPORTED
    return [*changes[:_MAX_REPORTED], f"{more} more names of functions"] if more > 0 else changes


def _renamed_message(message: Any, names: FunctionNames) -> Any:
    if message["role"] == "tool" and message.get("name") in names:
        return {**message, "name": names[message["name"]]}
    if message["role"] == "assistant" and message.get("tool_calls"):
        calls = [_renamed(call, names) for call in message["tool_calls"]]
        return {**message, "tool_calls": calls}
    return message


def _renamed_choice(choice: Any, names: FunctionNames) -> Any:
    allowed = choice.get("allowed_tools")
    if choice.get("type") != "allowed_tools" or not isinstance(allowed, dict):
        return _renamed(choice, names)
    tools = allowed.get("tools")
    if not isinstance(tools, list):
        return choice
    renamed = [_renamed(tool, names) for tool in tools]
    return {**choice, "allowed_tools": {**allowed, "tools": renamed}}


def _renamed(holder: Any, names: FunctionNames) -> Any:
    function: Any = holder.get("function") if isinstance(holder, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or name not in names:
        return holder
    return {**holder, "function": {**function, "name": names[name]}}
