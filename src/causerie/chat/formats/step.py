"""StepFun's Step 3; its successor writes calls as Qwen's coder does."""

from __future__ import annotations

from causerie.chat.formats.format import (
    CallSection,
    Literal,
    ModelFormat,
    Name,
    ParameterList,
    Reasoning,
)
from causerie.chat.formats.switches import ALWAYS

STEP_3 = ModelFormat(
    "step-3",
    detect=(("<steptml:invoke",),),
    reasoning=Reasoning(after_close="\n"),
    thinking=ALWAYS,
    calls=CallSection(
        begin="<｜tool_calls_begin｜>\n",
        call=(
            Literal('<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="'),
            Name(),
            Literal('">\n'),
            ParameterList(
                '<steptml:parameter name="', '">', "</steptml:parameter>\n", constants="python"
            ),
            Literal("</steptml:invoke><｜tool_call_end｜>\n"),
        ),
        end="<｜tool_calls_end｜>",
        triggers=("<｜tool_calls_begin｜>",),
    ),
)

FORMATS = (STEP_3,)
