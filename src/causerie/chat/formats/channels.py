"""Messages on channels: gpt-oss, Beam, Muse, Inkling, and their relatives."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    ON_BY_DEFAULT,
    CallSection,
    JsonArguments,
    Literal,
    MessageHeader,
    ModelFormat,
    Name,
    ParameterList,
    ThinkingSwitch,
    section,
    segments,
    unspaced,
)

# Messages on channels, as gpt-oss and its relatives write them.
#
# A call names its recipient before the channel (as the templates write the history) or behind it
# (as the models mostly do). Headers are read however they are spelled; the declared calls say how
# one is asked for, and which spellings the constraint admits. The end of a message ends the text,
# so it is no part of a call.

_NEXT = "<|start|>assistant"
_EFFORTS = ("low", "medium", "high")

# Models write the type of the content, or leave it out, with and without marker and spaces.
_TYPES = (" <|constrain|>json", "<|constrain|>json", " <|constrain|> json", " json", " code", "",
          " ")  # fmt: skip


def _one_call(begin: str, channels: tuple[str, ...], types: tuple[str, ...] = ()) -> CallSection:
    every = tuple(dict.fromkeys((*types, *_TYPES)))
    first, *more = (f"{channel}{kind}<|message|>" for channel in channels for kind in every)
    call = (Literal(begin), Name(), Literal(first, tuple(more)), JsonArguments())
    return CallSection(call, triggers=(begin,), parallel=False)


def _calls(*types: str) -> CallSection:
    channels = ("<|channel|>commentary", "<|channel|>analysis")
    behind = tuple(_one_call(f"{channel} to=functions.", ("",)) for channel in channels)
    return replace(_one_call("to=functions.", channels, types), lead=" ", also=behind)


_HEADER = MessageHeader(
    opens=("<|start|>", "<|channel|>"),
    close="<|message|>",
    ends=("<|end|>", "<|return|>", "<|call|>"),
    channel="<|channel|>",
    within=("<|constrain|>",),
    reasoning=("analysis",),
)

GPT_OSS = ModelFormat(
    reasoning=unspaced("<|channel|>analysis<|message|>", "<|end|>", after_close=_NEXT),
    thinking=ThinkingSwitch(effort="reasoning_effort", efforts=_EFFORTS, mandatory=True),
    calls=_calls(" json"),
    answer_open="<|channel|>final<|message|>",
    said_open="<|channel|>commentary<|message|>",
    said_close=f"<|end|>{_NEXT}",
    header=replace(_HEADER, functions="functions."),
    skip=(
        _NEXT,
        "<|channel|>commentary<|message|>",
        "<|channel|>final <|constrain|>json<|message|>",  # an answer that was asked for as JSON
        "<|end|>",
        "<|return|>",
        "<|call|>",
    ),
    reasoning_keys=("thinking",),
)

LLM_JP = replace(
    GPT_OSS,
    calls=replace(_calls(" <|constrain|> json"), separator=f"<|end|>{_NEXT} ", parallel=True),
)


# Beam: messages on channels as gpt-oss has them, with one parameter after the other in a call.
#
# Only the header of a message names the function, and only the end of the message ends the call.

_PARAMETERS = ParameterList(
    '<rfl:parameter name="', '">\n', "\n</rfl:parameter>", apart="\n", open_ended=True
)

BEAM = ModelFormat(
    reasoning=unspaced("<|channel|>analysis<|message|>", "<|end|>", after_close=_NEXT),
    thinking=ON_BY_DEFAULT,
    calls=section(
        "to=$NAME<|channel|>analysis <|constrain|>xml<|message|>",
        _PARAMETERS,
        lead=" ",
        separator=f"<|end|>{_NEXT} ",
        end="<|call|>",
        optional_end=True,
        addressed=True,
    ),
    answer_open="<|channel|>final<|message|>",
    said_open="<|channel|>final<|message|>",
    said_close=f"<|end|>{_NEXT}",
    header=replace(
        _HEADER,
        call=CallSection(
            (_PARAMETERS, Literal("<|end|>", ("<|return|>", "<|call|>"))), parallel=False
        ),
    ),
    skip=(_NEXT, "<|end|>", "<|return|>", "<|call|>"),
    reasoning_keys=("reasoning_content", "thinking"),
)


# Muse: every message names its recipient, and a call its function twice.

_MUSE_BEGIN = '<atem:function_calls>\n<atem:invoke name="'
_MUSE_CALL = segments(
    _MUSE_BEGIN,
    '$NAME">\n',
    ParameterList('<atem:parameter name="', '">', "</atem:parameter>\n"),
    "</atem:invoke>\n</atem:function_calls>",
)

MUSE = ModelFormat(
    reasoning=unspaced("to=self<|message|>", "<|eom|>", after_close=_NEXT),
    thinking=ThinkingSwitch(effort="reasoning_strength", efforts=_EFFORTS, mandatory=True),
    calls=section(
        "to=$NAME",
        "<|message|>" + _MUSE_BEGIN,
        *_MUSE_CALL[1:],
        lead=" ",
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
        call=CallSection(_MUSE_CALL, parallel=False),
    ),
    skip=(_NEXT, "<|eom|>"),
)


# Inkling: a reply is a row of messages, and a marker says of each what kind it is.
#
# The prompt ends with the marker that begins the first message. The header of a call is the name
# of its function, which the call's JSON repeats.

_BEGIN, _END = "<|message_model|>", "<|end_message|>"
_TEXT, _THOUGHT = "<|content_text|>", "<|content_thinking|>"
_CALL = "<|content_invoke_tool_json|>"
_NAMED = '{"name":"'
_JSON = segments('$NAME","args":$JSON')

INKLING = ModelFormat(
    reasoning=unspaced(_THOUGHT, _END, after_close=_BEGIN),
    thinking=ThinkingSwitch(
        off={"reasoning_effort": "none"},
        effort="reasoning_effort",
        efforts=("minimal", "low", "medium", "high", "max"),
    ),
    calls=section("$NAME", _CALL + _NAMED, *_JSON, "}" + _END, separator=_BEGIN, triggers=(_CALL,)),
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
        call=section(_NAMED, *_JSON, "}", parallel=False),
    ),
    skip=(_BEGIN,),
)
