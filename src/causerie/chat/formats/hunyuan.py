"""Tencent's Hunyuan."""

from __future__ import annotations

from causerie.chat.formats.format import (
    CallSection,
    Literal,
    ModelFormat,
    Name,
    ParameterList,
    Reasoning,
    ThinkingSwitch,
)
from causerie.chat.formats.hermes import JSON_CALL
from causerie.chat.formats.switches import ON_BY_DEFAULT

# Every marker of the open release carries its name.
HUNYUAN_3 = ModelFormat(
    "hunyuan-3",
    detect=(("<｜hy_", ":opensource"),),
    reasoning=Reasoning(
        "<think:opensource>",
        "</think:opensource>",
        after_open="",
        before_close="",
        after_close="",
    ),
    thinking=ThinkingSwitch(
        on={"reasoning_effort": "high"},
        off={"reasoning_effort": "no_think"},
        effort="reasoning_effort",
        efforts=("low", "high"),
        default="off",
    ),
    calls=CallSection(
        begin="<tool_calls:opensource>\n",
        call=(
            Literal("<tool_call:opensource>"),
            Name(),
            Literal("<tool_sep:opensource>\n"),
            ParameterList(
                before="<arg_key:opensource>",
                between="</arg_key:opensource>\n<arg_value:opensource>",
                after="</arg_value:opensource>\n",
            ),
            Literal("</tool_call:opensource>\n"),
        ),
        end="</tool_calls:opensource>",
        triggers=("<tool_calls:opensource>",),
    ),
)

# The same markers with another suffix, and none behind the name of the function.
_SUFFIX_4 = ":6124c78e"
HUNYUAN_4 = ModelFormat(
    "hunyuan-4",
    detect=((_SUFFIX_4,),),
    reasoning=Reasoning(
        f"<think{_SUFFIX_4}>",
        f"</think{_SUFFIX_4}>",
        after_open="",
        before_close="",
        after_close="",
    ),
    thinking=ThinkingSwitch(
        on={"reasoning_effort": "high"},
        off={"reasoning_effort": "no_think"},
        effort="reasoning_effort",
        efforts=("low", "high"),
    ),
    calls=CallSection(
        begin=f"<tool_calls{_SUFFIX_4}>\n",
        call=(
            Literal(f"<tool_call{_SUFFIX_4}>"),
            Name(),
            Literal("\n"),
            ParameterList(
                before=f"<arg_key{_SUFFIX_4}>",
                between=f"</arg_key{_SUFFIX_4}>\n<arg_value{_SUFFIX_4}>",
                after=f"</arg_value{_SUFFIX_4}>\n",
            ),
            Literal(f"</tool_call{_SUFFIX_4}>\n"),
        ),
        end=f"</tool_calls{_SUFFIX_4}>",
        triggers=(f"<tool_calls{_SUFFIX_4}>",),
    ),
)

HUNYUAN_A13B = ModelFormat(
    "hunyuan-a13b",
    detect=(("<|extra_0|>", "<answer>"),),
    reasoning=Reasoning(after_close="\n"),
    thinking=ON_BY_DEFAULT,
    calls=CallSection(
        begin="<tool_calls>[",
        call=JSON_CALL,
        separator=", ",
        end="]</tool_calls>",
        triggers=("<tool_calls>",),
    ),
    answer_open="<answer>",
    answer_close="</answer>",
    answer_space="\n",
)

FORMATS = (HUNYUAN_4, HUNYUAN_3, HUNYUAN_A13B)
