"""Liquid's LFM 2 and 2.5: calls in Python's notation."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    CallSection,
    Literal,
    ModelFormat,
    Name,
    PythonArguments,
    Reasoning,
)

# Its template shows neither calls nor reasoning of the past.
LFM_2 = ModelFormat(
    "lfm-2",
    detect=(("List of tools: ", "<|im_start|>"),),
    reasoning=Reasoning(after_open="", before_close="", after_close=""),
    calls=CallSection(
        begin="<|tool_call_start|>[",
        call=(Name(), Literal("("), PythonArguments(), Literal(")")),
        separator=", ",
        end="]<|tool_call_end|>",
        triggers=("<|tool_call_start|>",),
    ),
    reasoning_keys=("thinking",),
)

LFM_2_5 = replace(
    LFM_2, name="lfm-2.5", detect=(("List of tools: ", "<|im_start|>", "<|tool_call_start|>"),)
)

FORMATS = (LFM_2_5, LFM_2)
