"""Sections of calls between tokens of their own: DeepSeek, Kimi, Hunyuan."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    ALWAYS,
    OFF_BY_DEFAULT,
    ON_BY_DEFAULT,
    CallId,
    CallSection,
    ModelFormat,
    ParameterList,
    Reasoning,
    ThinkingSwitch,
    by_effort,
    segments,
    unspaced,
)
from causerie.chat.formats.hermes import json_list
from causerie.chat.formats.parameters import keyed

# DeepSeek, from R1 to V4.1.

_FENCED_CALLS = CallSection(
    begin="<｜tool▁calls▁begin｜>",
    call=segments(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$NAME\n```json\n$JSON\n```<｜tool▁call▁end｜>"
    ),
    separator="\n",
    end="<｜tool▁calls▁end｜>",
)
_BARE = unspaced()
_SWITCH = ThinkingSwitch(on={"thinking": True}, off={"thinking": False}, default="off")

DEEPSEEK_V3 = ModelFormat(
    "deepseek-v3", detect=(("<｜tool▁calls▁begin｜>", "```json"),), calls=_FENCED_CALLS
)

DEEPSEEK_R1 = replace(
    DEEPSEEK_V3,
    name="deepseek-r1",
    detect=(("<｜tool▁calls▁begin｜>", "```json", "<think>"),),
    thinking=ALWAYS,
)

# R1 behind a template that was given a switch, which is off when nothing is said.
DEEPSEEK_R1_SWITCHED = replace(
    DEEPSEEK_R1,
    name="deepseek-r1-switched",
    detect=(("<｜tool▁calls▁begin｜>", "```json", "<think>", "enable_thinking"),),
    thinking=OFF_BY_DEFAULT,
)

DEEPSEEK_V3_1 = ModelFormat(
    "deepseek-v3.1",
    detect=(("<｜tool▁calls▁begin｜>",),),
    reasoning=_BARE,
    thinking=_SWITCH,
    calls=CallSection(
        begin="<｜tool▁calls▁begin｜>",
        call=segments("<｜tool▁call▁begin｜>$NAME<｜tool▁sep｜>$JSON<｜tool▁call▁end｜>"),
        end="<｜tool▁calls▁end｜>",
    ),
)


def marked_up(section: str, mark: str = "｜DSML｜") -> CallSection:
    """Return calls in the mark-up of V3.2 and later.

    ``section`` is the name of the outer tag; ``mark`` stands before the name of every tag.
    """
    return CallSection(
        lead="\n\n",
        begin=f"<{mark}{section}>\n",
        call=segments(
            f'<{mark}invoke name="',
            '$NAME">\n',
            ParameterList(
                before=f'<{mark}parameter name="',
                between='" string="true">',
                between_json='" string="false">',
                after=f"</{mark}parameter>\n",
            ),
            f"</{mark}invoke>\n",
        ),
        end=f"</{mark}{section}>",
        triggers=(f"<{mark}{section}>",),
    )


DEEPSEEK_V3_2 = ModelFormat(
    "deepseek-v3.2",
    detect=(("｜DSML｜", "function_calls>"),),
    reasoning=_BARE,
    thinking=_SWITCH,
    calls=marked_up("function_calls"),
)

DEEPSEEK_V4 = replace(
    DEEPSEEK_V3_2,
    name="deepseek-v4",
    detect=(("｜DSML｜",),),
    thinking=replace(_SWITCH, effort="reasoning_effort", efforts=("high", "max")),
    calls=marked_up("tool_calls"),
)

# Its tags have a blank before their names.
DEEPSEEK_V4_1 = replace(
    DEEPSEEK_V4,
    name="deepseek-v4.1",
    detect=(("｜DSML｜", " calls>"),),
    thinking=replace(
        _SWITCH, effort="reasoning_effort", efforts=("low", "high", "xhigh", "max"), default="on"
    ),
    calls=marked_up("calls", "｜DSML｜ "),
)


# Kimi K2 and K3.

KIMI_K2 = ModelFormat(
    "kimi-k2",
    detect=(("<|tool_calls_section_begin|>",),),
    reasoning=unspaced(),
    calls=CallSection(
        begin="<|tool_calls_section_begin|>",
        call=segments(
            "<|tool_call_begin|>",
            CallId(r"functions\.{name}:{index}", continues=True),
            "<|tool_call_argument_begin|>$JSON<|tool_call_end|>",
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
    reasoning=unspaced("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    thinking=ThinkingSwitch(
        on={"thinking": True},
        off={"thinking": False},
        effort="thinking_effort",
        efforts=("low", "high", "max"),
    ),
    calls=CallSection(
        lead="<|open|>response<|sep|><|close|>response<|sep|>",
        begin="<|open|>tools<|sep|>",
        call=segments(
            '<|open|>call tool="$NAME" index="',
            CallId("{index}", kept=False),
            '"<|sep|>',
            ParameterList(
                before='<|open|>argument key="',
                between='" type="string"<|sep|>',
                between_json='" type="{type}"<|sep|>',
                after="<|close|>argument<|sep|>",
            ),
            "<|close|>call<|sep|>",
        ),
        end="<|close|>tools<|sep|>",
    ),
    answer_open="<|open|>response<|sep|>",
    answer_close="<|close|>response<|sep|>",
    skip=("<|close|>message<|sep|>",),
)


# Tencent's Hunyuan.


def _hunyuan_calls(suffix: str, behind_name: str) -> CallSection:
    arguments = keyed("{}" + suffix, behind_name, end="\n")
    return CallSection(arguments, begin=f"<tool_calls{suffix}>\n", end=f"</tool_calls{suffix}>")


# Every marker of the open release carries its name.
HUNYUAN_3 = ModelFormat(
    "hunyuan-3",
    detect=(("<｜hy_", ":opensource"),),
    reasoning=unspaced("<think:opensource>", "</think:opensource>"),
    thinking=by_effort("no_think", "low", "high", default="off"),
    calls=_hunyuan_calls(":opensource", "<tool_sep:opensource>\n"),
)

# The same markers with another suffix, and none behind the name of the function.
HUNYUAN_4 = ModelFormat(
    "hunyuan-4",
    detect=((":6124c78e",),),
    reasoning=unspaced("<think:6124c78e>", "</think:6124c78e>"),
    thinking=by_effort("no_think", "low", "high"),
    calls=_hunyuan_calls(":6124c78e", "\n"),
)

HUNYUAN_A13B = ModelFormat(
    "hunyuan-a13b",
    detect=(("<|extra_0|>", "<answer>"),),
    reasoning=Reasoning(after_close="\n"),
    thinking=ON_BY_DEFAULT,
    calls=json_list("<tool_calls>[", "]</tool_calls>"),
    answer_open="<answer>",
    answer_close="</answer>",
    answer_space="\n",
)
