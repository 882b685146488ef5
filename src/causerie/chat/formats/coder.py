"""Calls in tags with one parameter after the other, first written by Qwen 3 Coder.

The templates print every value that is no object or list as Python does, so
that is what the models have read.
"""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    CallSection,
    Literal,
    ModelFormat,
    Name,
    ParameterList,
    Reasoning,
)
from causerie.chat.formats.switches import ALWAYS, ON_BY_DEFAULT

_PARAMETERS = ParameterList(
    before="<parameter=", between=">\n", after="\n</parameter>\n", constants="python"
)
CODER_CALLS = CallSection(
    call=(
        Literal("<tool_call>\n<function="),
        Name(),
        Literal(">\n"),
        _PARAMETERS,
        Literal("</function>\n</tool_call>"),
    ),
    separator="\n",
    # Some models leave the outer tag out.
    also=(
        CallSection(
            call=(
                Literal("<function="),
                Name(),
                Literal(">\n"),
                _PARAMETERS,
                Literal("</function>", ("</function>\n</tool_call>",)),
            ),
            separator="\n",
        ),
    ),
)

QWEN_3_CODER = ModelFormat(
    "qwen-3-coder",
    detect=(("<function=", "<parameter="),),
    reasoning=Reasoning(),
    calls=CODER_CALLS,
)

QWEN_3_5 = replace(
    QWEN_3_CODER,
    name="qwen-3.5",
    detect=(("<function=", "<parameter=", "</think>"),),
    thinking=ON_BY_DEFAULT,
)

NEMOTRON_3 = replace(
    QWEN_3_5,
    name="nemotron-3",
    detect=(("<function=", "<parameter=", "truncate_history_thinking"),),
    reasoning=Reasoning(after_close="\n"),
)

STEP_3_5 = replace(
    QWEN_3_5,
    name="step-3.5",
    detect=(("<function=", "<parameter=", "<im_patch>"),),
    reasoning=Reasoning(after_close="\n"),
    thinking=ALWAYS,
    calls=replace(CODER_CALLS, separator=""),
)

FORMATS = (NEMOTRON_3, STEP_3_5, QWEN_3_5, QWEN_3_CODER)
