"""Muse: every message names its recipient, and a call its function twice."""

from __future__ import annotations

from causerie.chat.formats.format import (
    CallSection,
    Literal,
    MessageHeader,
    ModelFormat,
    Name,
    ParameterList,
    Reasoning,
    ThinkingSwitch,
)

_NEXT = "<|start|>assistant"
_CALL = (
    Literal('<atem:function_calls>\n<atem:invoke name="'),
    Name(),
    Literal('">\n'),
    ParameterList('<atem:parameter name="', '">', "</atem:parameter>\n"),
    Literal("</atem:invoke>\n</atem:function_calls>"),
)

MUSE = ModelFormat(
    "muse",
    detect=(("<atem:function_calls>",),),
    reasoning=Reasoning(
        "to=self<|message|>",
        "<|eom|>",
        after_open="",
        before_close="",
        after_close=_NEXT,
    ),
    thinking=ThinkingSwitch(
        effort="reasoning_strength", efforts=("low", "medium", "high"), mandatory=True
    ),
    calls=CallSection(
        lead=" ",
        call=(Literal("to="), Name(), Literal("<|message|>" + _CALL[0].text), *_CALL[1:]),
        separator=f"<|eom|>{_NEXT} ",
        holds_at="<|message|><atem:function_calls>",
    ),
    answer_open="to=user<|message|>",
    said_open=" to=user<|message|>",
    said_close=f"<|eom|>{_NEXT}",
    header=MessageHeader(
        opens=("<|start|>",),
        close="<|message|>",
        ends=("<|eom|>", "<|eot|>"),
        reasoning=("self",),
        readers=("user", "commentary", "assistant"),
        call=CallSection(_CALL, parallel=False),
    ),
    skip=(_NEXT, "<|eom|>"),
)

FORMATS = (MUSE,)
