"""Beam: messages on channels as gpt-oss has them, with one parameter after the other in a call.

Only the header of a message names the function, and only the end of the message ends the call.
"""

from __future__ import annotations

from causerie.chat.formats.format import (
    CallSection,
    Literal,
    MessageHeader,
    ModelFormat,
    Name,
    ParameterList,
    Reasoning,
)
from causerie.chat.formats.switches import ON_BY_DEFAULT

_NEXT = "<|start|>assistant"
_PARAMETERS = ParameterList(
    '<rfl:parameter name="', '">\n', "\n</rfl:parameter>", apart="\n", open_ended=True
)

BEAM = ModelFormat(
    "beam",
    detect=(("<|channel|>", "<rfl:parameter"),),
    reasoning=Reasoning(
        "<|channel|>analysis<|message|>",
        "<|end|>",
        after_open="",
        before_close="",
        after_close=_NEXT,
    ),
    thinking=ON_BY_DEFAULT,
    calls=CallSection(
        lead=" ",
        call=(
            Literal("to="),
            Name(),
            Literal("<|channel|>analysis <|constrain|>xml<|message|>"),
            _PARAMETERS,
        ),
        separator=f"<|end|>{_NEXT} ",
        end="<|call|>",
        optional_end=True,
        triggers=("to=",),
        addressed=True,
    ),
    answer_open="<|channel|>final<|message|>",
    said_open="<|channel|>final<|message|>",
    said_close=f"<|end|>{_NEXT}",
    header=MessageHeader(
        opens=("<|start|>", "<|channel|>"),
        close="<|message|>",
        ends=("<|end|>", "<|return|>", "<|call|>"),
        channel="<|channel|>",
        within=("<|constrain|>",),
        reasoning=("analysis",),
        call=CallSection(
            (_PARAMETERS, Literal("<|end|>", ("<|return|>", "<|call|>"))), parallel=False
        ),
    ),
    skip=(_NEXT, "<|end|>", "<|return|>", "<|call|>"),
    reasoning_keys=("reasoning_content", "thinking"),
)

FORMATS = (BEAM,)
