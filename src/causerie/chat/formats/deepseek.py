"""DeepSeek, from R1 to V4.1."""

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
    ThinkingSwitch,
)
from causerie.chat.formats.switches import ALWAYS, OFF_BY_DEFAULT

_FENCED_CALLS = CallSection(
    begin="<｜tool▁calls▁begin｜>",
    call=(
        Literal("<｜tool▁call▁begin｜>function<｜tool▁sep｜>"),
        Name(),
        Literal("\n```json\n"),
        JsonArguments(),
        Literal("\n```<｜tool▁call▁end｜>"),
    ),
    separator="\n",
    end="<｜tool▁calls▁end｜>",
)
_BARE = Reasoning(after_open="", before_close="", after_close="")
_SWITCH = ThinkingSwitch(on={"thinking": True}, off={"thinking": False}, default="off")

DEEPSEEK_V3 = ModelFormat(
    "deepseek-v3",
    detect=(("<｜tool▁calls▁begin｜>", "```json"),),
    reasoning=Reasoning(),
    calls=_FENCED_CALLS,
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
        call=(
            Literal("<｜tool▁call▁begin｜>"),
            Name(),
            Literal("<｜tool▁sep｜>"),
            JsonArguments(),
            Literal("<｜tool▁call▁end｜>"),
        ),
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
        call=(
            Literal(f'<{mark}invoke name="'),
            Name(),
            Literal('">\n'),
            ParameterList(
                before=f'<{mark}parameter name="',
                between='" string="true">',
                between_json='" string="false">',
                after=f"</{mark}parameter>\n",
            ),
            Literal(f"</{mark}invoke>\n"),
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

FORMATS = (
    DEEPSEEK_V4_1,
    DEEPSEEK_V3_2,
    DEEPSEEK_V4,
    DEEPSEEK_R1_SWITCHED,
    DEEPSEEK_R1,
    DEEPSEEK_V3,
    DEEPSEEK_V3_1,
)
