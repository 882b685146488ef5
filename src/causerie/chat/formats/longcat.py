"""Meituan's LongCat: calls in tags of its own, first as JSON, then parameter by parameter."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    CallSection,
    JsonArguments,
    Literal,
    ModelFormat,
    Name,
    ParameterList,
    Reasoning,
)
from causerie.chat.formats.switches import OFF_BY_DEFAULT

_THINK = Reasoning("<longcat_think>", "</longcat_think>", after_close="\n")

LONGCAT_FLASH = ModelFormat(
    "longcat-flash",
    detect=(("<longcat_tool_call>",),),
    reasoning=_THINK,
    thinking=OFF_BY_DEFAULT,
    calls=CallSection(
        call=(
            Literal('<longcat_tool_call>\n{"name": "'),
            Name(),
            Literal('", "arguments": '),
            JsonArguments(),
            Literal("}\n</longcat_tool_call>"),
        ),
        separator="\n",
    ),
)

# From Flash Thinking 2601 on.
LONGCAT_2 = replace(
    LONGCAT_FLASH,
    name="longcat-2",
    detect=(("<longcat_tool_call>", "<longcat_arg_key>"),),
    calls=CallSection(
        call=(
            Literal("<longcat_tool_call>"),
            Name(),
            Literal("\n"),
            ParameterList(
                "<longcat_arg_key>",
                "</longcat_arg_key>\n<longcat_arg_value>",
                "</longcat_arg_value>\n",
            ),
            Literal("</longcat_tool_call>"),
        ),
        separator="\n",
    ),
)

FORMATS = (LONGCAT_2, LONGCAT_FLASH)
