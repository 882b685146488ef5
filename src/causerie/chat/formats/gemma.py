"""Gemma: 4 with calls and thinking of its own, before it neither, but for FunctionGemma."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    CallSection,
    Literal,
    LooseArguments,
    ModelFormat,
    Name,
    Reasoning,
)
from causerie.chat.formats.generic import GENERIC
from causerie.chat.formats.switches import OFF_BY_DEFAULT

# The template's own word that a result follows ends what the model writes.
GEMMA_4 = ModelFormat(
    "gemma-4",
    detect=(("<|channel>", "<|tool_call>"),),
    reasoning=Reasoning(
        "<|channel>thought",
        "<channel|>",
        after_open="\n",
        before_close="\n",
        after_close="",
    ),
    thinking=OFF_BY_DEFAULT,
    calls=CallSection(
        call=(
            Literal("<|tool_call>call:"),
            Name(),
            LooseArguments('<|"|>'),
            Literal("<tool_call|>"),
        ),
    ),
    skip=("<|tool_response>",),
)

FUNCTION_GEMMA = ModelFormat(
    "function-gemma",
    detect=(("<start_function_call>",),),
    reasoning=Reasoning(),
    calls=CallSection(
        call=(
            Literal("<start_function_call>call:"),
            Name(),
            LooseArguments("<escape>"),
            Literal("<end_function_call>"),
        ),
    ),
    skip=("<start_function_response>",),
)

GEMMA_3 = replace(GENERIC, name="gemma-3", detect=(("<start_of_turn>",),))

FORMATS = (GEMMA_4, FUNCTION_GEMMA, GEMMA_3)
