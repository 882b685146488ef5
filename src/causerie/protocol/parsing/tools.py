"""The functions a model may call, and which of them it must."""

from __future__ import annotations

from typing import Literal

from causerie.protocol.body_types import MAX_FUNCTION_NAME, MAX_TOOLS
from causerie.protocol.parsing.fields import (
    ObjectReader,
    as_object,
    missing,
    shown,
    unsupported,
    wrong_type,
    wrong_value,
)
from causerie.protocol.request import Tool, ToolChoice

_TOOL = 'an object like {"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}'
_NAMED = '{"type": "function", "function": {"name": NAME}}'
_MODES: dict[str, Literal["none", "auto", "required"]] = {
    "none": "none",
    "auto": "auto",
    "required": "required",
}


def read_tools(body: ObjectReader) -> tuple[Tool, ...]:
    """The functions in order, with unique names."""
    tools: dict[str, Tool] = {}
    for fields in body.objects("tools", most=MAX_TOOLS, expected=_TOOL):
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
    """Read which calls may or must come; without ``tools`` none."""
    value = body.get("tool_choice")
    if value is None:
        return ToolChoice()
    if isinstance(value, str):
        mode = _MODES.get(value)
        if mode is None:
            raise wrong_value(
                "tool_choice", f"must be none, auto, required or {_NAMED}, not {shown(value)}."
            )
        choice = ToolChoice(mode)
    elif isinstance(value, dict):
        choice = _choice(ObjectReader(value, "tool_choice"), {tool.name for tool in tools})
    else:
        raise wrong_type("tool_choice", f"a string or {_NAMED}", value)
    if choice.mode == "required" and not tools:
        raise wrong_value("tool_choice", "asks for a call, but `tools` defines no function.")
    return choice


def _choice(fields: ObjectReader, defined: set[str]) -> ToolChoice:
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
    names = [
        _allowed_name(as_object(entry, f"{allowed.param('tools')}[{index}]"), defined)
        for index, entry in enumerate(entries)
    ]
    return ToolChoice(_MODES[mode], tuple(dict.fromkeys(names)))


def _allowed_name(fields: ObjectReader, defined: set[str]) -> str:
    if fields.get("type") != "function":
        raise wrong_value(fields.param("type"), 'must be "function".')
    return _function_name(fields, defined)


def _function_name(fields: ObjectReader, defined: set[str]) -> str:
    function = fields.required_object("function", "an object with a `name`")
    name = function.required_string("name")
    if name not in defined:
        raise wrong_value(
            function.param("name"), f"is {shown(name)}, which `tools` does not define."
        )
    return name
