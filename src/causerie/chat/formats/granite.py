"""IBM's Granite."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    CallSection,
    JsonArguments,
    Literal,
    ModelFormat,
    Name,
    Reasoning,
    ThinkingSwitch,
)
from causerie.chat.formats.hermes import HERMES_CALLS, JSON_CALL

GRANITE_4 = ModelFormat(
    "granite-4",
    detect=(("<|start_of_role|>", "<tool_call>"),),
    reasoning=Reasoning(),
    calls=HERMES_CALLS,
)

GRANITE_3 = ModelFormat(
    "granite-3",
    detect=(("<|start_of_role|>",),),
    reasoning=Reasoning(after_open="", before_close="", after_close=""),
    calls=CallSection(
        begin="<|tool_call|>[",
        call=JSON_CALL,
        separator=", ",
        end="]",
        triggers=("<|tool_call|>",),
        lead_ins=("<tool_call>[",),
    ),
)

GRANITE_3_3 = replace(
    GRANITE_3,
    name="granite-3.3",
    detect=(("<|start_of_role|>", "<response>"),),
    thinking=ThinkingSwitch(on={"thinking": True}, off={"thinking": False}, default="off"),
    answer_open="<response>",
    answer_close="</response>",
)

# Its template asks for a call of `no_function` where no function is needed: tools are told here.
GRANITE_20B = ModelFormat(
    "granite-20b",
    detect=(("<function_call>", "<|function_call_library|>"),),
    reasoning=Reasoning(),
    calls=CallSection(
        call=(
            Literal('<function_call> {"name": "'),
            Name(),
            Literal('", "arguments": '),
            JsonArguments(),
            Literal("}"),
        ),
    ),
    native_tools=False,
)

FORMATS = (GRANITE_20B, GRANITE_4, GRANITE_3_3, GRANITE_3)
