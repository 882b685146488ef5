"""Messages on channels, as gpt-oss and its relatives write them.

A call names its recipient before the channel (as the templates write the history) or behind it (as
the models mostly do). Headers are read however they are spelled; the declared calls say how one is
asked for, and which spellings the constraint admits. The end of a message ends the text, so it is
no part of a call.
"""

from __future__ import annotations

from dataclasses import replace

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

# Models write the type of the content, or leave it out, with and without marker and spaces.
_TYPES = (
    " <|constrain|>json",
    "<|constrain|>json",
    " <|constrain|> json",
    " json",
    " code",
    "",
    " ",
)


def _behind_channel(channel: str, *types: str) -> CallSection:
    return CallSection(
        call=(
            Literal(f"<|channel|>{channel} to=functions."),
            Name(),
            _typed("", types),
            JsonArguments(),
        ),
        triggers=(f"<|channel|>{channel} to=functions.",),
        parallel=False,
    )


def _before_channel(*types: str) -> CallSection:
    return CallSection(
        lead=" ",
        call=(
            Literal("to=functions."),
            Name(),
            _typed("<|channel|>commentary", types, "<|channel|>analysis"),
            JsonArguments(),
        ),
        triggers=("to=functions.",),
        parallel=False,
    )


def _typed(channel: str, types: tuple[str, ...], *others: str) -> Literal:
    """Return the rest of a header; the first of ``types`` is the one that templates write."""
    every = tuple(dict.fromkeys((*types, *_TYPES)))
    first, *more = (f"{each}{kind}<|message|>" for each in (channel, *others) for kind in every)
    return Literal(first, tuple(more))


def _calls(*types: str) -> CallSection:
    behind = tuple(_behind_channel(channel) for channel in ("commentary", "analysis"))
    return replace(_before_channel(*types), also=behind)


GPT_OSS = ModelFormat(
    "gpt-oss",
    detect=(("<|channel|>analysis", "<|start|>assistant"),),
    reasoning=Reasoning(
        "<|channel|>analysis<|message|>",
        "<|end|>",
        after_open="",
        before_close="",
        after_close="<|start|>assistant",
    ),
    thinking=ThinkingSwitch(
        effort="reasoning_effort", efforts=("low", "medium", "high"), mandatory=True
    ),
    calls=_calls(" json"),
    answer_open="<|channel|>final<|message|>",
    said_open="<|channel|>commentary<|message|>",
    said_close="<|end|><|start|>assistant",
    header=MessageHeader(
        opens=("<|start|>", "<|channel|>"),
        close="<|message|>",
        ends=("<|end|>", "<|return|>", "<|call|>"),
        channel="<|channel|>",
        within=("<|constrain|>",),
        functions="functions.",
        reasoning=("analysis",),
    ),
    skip=(
        "<|start|>assistant",
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
    name="llm-jp",
    detect=(("chat_format=llm-jp-harmony",),),
    calls=replace(
        _calls(" <|constrain|> json"),
        separator="<|end|><|start|>assistant ",
        parallel=True,
    ),
)

FORMATS = (LLM_JP, GPT_OSS)
