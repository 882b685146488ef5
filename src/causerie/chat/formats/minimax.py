"""MiniMax M1 to M3."""

from __future__ import annotations

from causerie.chat.formats.format import (
    CallSection,
    ElementArguments,
    JsonArguments,
    Literal,
    ModelFormat,
    Name,
    ParameterList,
    Reasoning,
    ThinkingSwitch,
)
from causerie.chat.formats.switches import ALWAYS

MINIMAX_M1 = ModelFormat(
    "minimax-m1",
    detect=(("<tool_calls>", "<beginning_of_sentence>"),),
    reasoning=Reasoning(),
    thinking=ALWAYS,
    calls=CallSection(
        begin="<tool_calls>\n",
        call=(
            Literal('{"name": "'),
            Name(),
            Literal('", "arguments": '),
            JsonArguments(),
            Literal("}\n"),
        ),
        end="</tool_calls>",
        triggers=("<tool_calls>",),
    ),
)

MINIMAX_M2 = ModelFormat(
    "minimax-m2",
    detect=(("<minimax:tool_call>",),),
    reasoning=Reasoning(),
    thinking=ALWAYS,
    calls=CallSection(
        lead="\n",
        begin="<minimax:tool_call>\n",
        call=(
            Literal('<invoke name="'),
            Name(),
            Literal('">\n'),
            ParameterList('<parameter name="', '">', "</parameter>\n"),
            Literal("</invoke>\n"),
        ),
        end="</minimax:tool_call>",
        triggers=("<minimax:tool_call>",),
    ),
)

_MARK = "]<]minimax[>["
MINIMAX_M3 = ModelFormat(
    "minimax-m3",
    detect=((_MARK, "<mm:think>"),),
    reasoning=Reasoning(
        "<mm:think>", "</mm:think>", after_open="", before_close="", after_close=""
    ),
    thinking=ThinkingSwitch(on={"thinking_mode": "enabled"}, off={"thinking_mode": "disabled"}),
    calls=CallSection(
        begin=f"{_MARK}<tool_call>\n",
        call=(
            Literal(f'{_MARK}<invoke name="'),
            Name(),
            Literal('">'),
            ElementArguments(_MARK),
            Literal(f"{_MARK}</invoke>\n"),
        ),
        end=f"{_MARK}</tool_call>",
        triggers=(f"{_MARK}<tool_call>",),
    ),
)

FORMATS = (MINIMAX_M3, MINIMAX_M2, MINIMAX_M1)
