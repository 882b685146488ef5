"""Inkling: a reply is a row of messages, and a marker says of each what kind it is.

The prompt ends with the marker that begins the first message. The header of a call is the name
of its function, which the call's JSON repeats.
"""

from __future__ import annotations

from causerie.chat.formats.format import (
    CallSection,
    JsonArguments,
    Literal,
    MessageHeader,
    ModelFormat,
    Name,
    Reasoning,
    ThinkingSwitch,
)

_BEGIN, _END = "<|message_model|>", "<|end_message|>"
_TEXT, _THOUGHT = "<|content_text|>", "<|content_thinking|>"
_CALL = "<|content_invoke_tool_json|>"
_NAMED = '{"name":"'
_JSON = (Name(), Literal('","args":'), JsonArguments())

INKLING = ModelFormat(
    "inkling",
    detect=((_CALL,),),
    reasoning=Reasoning(_THOUGHT, _END, after_open="", before_close="", after_close=_BEGIN),
    thinking=ThinkingSwitch(
        off={"reasoning_effort": "none"},
        effort="reasoning_effort",
        efforts=("minimal", "low", "medium", "high", "max"),
    ),
    calls=CallSection(
        call=(Name(), Literal(_CALL + _NAMED), *_JSON, Literal("}" + _END)),
        separator=_BEGIN,
        triggers=(_CALL,),
    ),
    answer_open=_TEXT,
    answer_close=_END,
    said_open=_TEXT,
    said_close=_END + _BEGIN,
    header=MessageHeader(
        opens=(_BEGIN, _TEXT, _THOUGHT, _CALL),
        close=_TEXT,
        reasoning_close=_THOUGHT,
        call_close=_CALL,
        ends=(_END, "<|content_model_end_sampling|>"),
        call=CallSection((Literal(_NAMED), *_JSON, Literal("}")), parallel=False),
    ),
    skip=(_BEGIN,),
)

FORMATS = (INKLING,)
