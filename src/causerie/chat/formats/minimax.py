"""MiniMax M1 to M3."""

from __future__ import annotations

from causerie.chat.formats.format import (
    Calls,
    Format,
    JsonArguments,
    Literal,
    Name,
    ParameterList,
    Reasoning,
)
from causerie.chat.formats.switches import ALWAYS

MINIMAX_M1 = Format(
    "minimax-m1",
    detect=(("<tool_calls>", "<beginning_of_sentence>"),),
    reasoning=Reasoning(),
    thinking=ALWAYS,
    calls=Calls(
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

MINIMAX_M2 = Format(
    "minimax-m2",
    detect=(("<minimax:tool_call>",),),
    reasoning=Reasoning(),
    thinking=ALWAYS,
    calls=Calls(
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

FORMATS = (MINIMAX_M2, MINIMAX_M1)
