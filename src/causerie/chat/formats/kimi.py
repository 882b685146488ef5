"""Kimi K2 and K3."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    CallId,
    CallSection,
    JsonArguments,
    Literal,
    ModelFormat,
    Name,
    ParameterList,
    Reasoning,
    ThinkingSwitch,
)
from causerie.chat.formats.switches import ALWAYS

KIMI_K2 = ModelFormat(
    "kimi-k2",
    detect=(("<|tool_calls_section_begin|>",),),
    reasoning=Reasoning(after_open="", before_close="", after_close=""),
    calls=CallSection(
        begin="<|tool_calls_section_begin|>",
        call=(
            Literal("<|tool_call_begin|>"),
            CallId(r"functions\.{name}:{index}", continues=True),
            Literal("<|tool_call_argument_begin|>"),
            JsonArguments(),
            Literal("<|tool_call_end|>"),
        ),
        end="<|tool_calls_section_end|>",
    ),
)

KIMI_K2_THINKING = replace(
    KIMI_K2,
    name="kimi-k2-thinking",
    detect=(("<|tool_calls_section_begin|>", "<think>"),),
    thinking=ALWAYS,
)

KIMI_K2_5 = replace(
    KIMI_K2,
    name="kimi-k2.5",
    detect=(("<|tool_calls_section_begin|>", "<think>", "thinking is"),),
    thinking=ThinkingSwitch(on={"thinking": True}, off={"thinking": False}),
)

KIMI_K3 = ModelFormat(
    "kimi-k3",
    detect=(("<|open|>", "<|end_of_msg|>"),),
    reasoning=Reasoning(
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>",
        after_open="",
        before_close="",
        after_close="",
    ),
    thinking=ThinkingSwitch(
        on={"thinking": True},
        off={"thinking": False},
        effort="thinking_effort",
        efforts=("low", "high", "max"),
    ),
    calls=CallSection(
        lead="<|open|>response<|sep|><|close|>response<|sep|>",
        begin="<|open|>tools<|sep|>",
        call=(
            Literal('<|open|>call tool="'),
            Name(),
            Literal('" index="'),
            CallId("{index}", kept=False),
            Literal('"<|sep|>'),
            ParameterList(
                before='<|open|>argument key="',
                between='" type="string"<|sep|>',
                between_json='" type="{type}"<|sep|>',
                after="<|close|>argument<|sep|>",
            ),
            Literal("<|close|>call<|sep|>"),
        ),
        end="<|close|>tools<|sep|>",
        triggers=("<|open|>tools<|sep|>",),
    ),
    answer_open="<|open|>response<|sep|>",
    answer_close="<|close|>response<|sep|>",
    skip=("<|close|>message<|sep|>",),
)

FORMATS = (KIMI_K3, KIMI_K2_5, KIMI_K2_THINKING, KIMI_K2)
