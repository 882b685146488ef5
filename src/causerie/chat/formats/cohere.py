"""Cohere's Command models."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    CallId,
    CallSection,
    JsonArguments,
    Literal,
    ModelFormat,
    Name,
    Reasoning,
    ThinkingSwitch,
)
from causerie.chat.formats.switches import OFF_BY_DEFAULT

COMMAND_R7B = ModelFormat(
    "command-r7b",
    detect=(("<|START_ACTION|>",),),
    reasoning=Reasoning(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        after_open="",
        before_close="",
        after_close="",
    ),
    thinking=OFF_BY_DEFAULT,
    calls=CallSection(
        begin="<|START_ACTION|>[\n    ",
        call=(
            Literal('{"tool_call_id": "'),
            CallId("{index}", continues=True, kept=False),
            Literal('", "tool_name": "'),
            Name(),
            Literal('", "parameters": '),
            JsonArguments(),
            Literal("}"),
        ),
        separator=",\n    ",
        end="\n]<|END_ACTION|>",
        triggers=("<|START_ACTION|>",),
    ),
    answer_open="<|START_RESPONSE|>",
    answer_close="<|END_RESPONSE|>",
)

# Command A and later: the same calls, the answer between other marks.
COMMAND_A = replace(
    COMMAND_R7B,
    name="command-a",
    detect=(("<|START_ACTION|>", "<|START_TEXT|>"),),
    thinking=ThinkingSwitch(on={"reasoning": True}, off={"reasoning": False}),
    answer_open="<|START_TEXT|>",
    answer_close="<|END_TEXT|>",
)

COMMAND_R = ModelFormat(
    "command-r",
    detect=(("<|START_OF_TURN_TOKEN|>",),),
    reasoning=Reasoning(),
    calls=CallSection(
        lead="\n",
        begin="Action:\n```json\n[\n",
        call=(
            Literal('    {\n        "tool_name": "'),
            Name(),
            Literal('",\n        "parameters": '),
            JsonArguments(),
            Literal("\n    }"),
        ),
        separator=",\n",
        end="\n]```\n",
        triggers=("Action:\n```json\n[",),
    ),
)

FORMATS = (COMMAND_A, COMMAND_R7B, COMMAND_R)
