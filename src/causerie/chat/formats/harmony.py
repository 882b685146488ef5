"""Messages on channels, as gpt-oss and its relatives write them.

A call names its recipient before the channel (as the templates write the history) or behind it (as
the models mostly do). The end of a message ends the text, so it is no part of a call.
"""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    CallSection,
    JsonArguments,
    Literal,
    ModelFormat,
    Name,
    Reasoning,
    ThinkingSwitch,
)


def _behind_channel(channel: str, kind: str) -> CallSection:
    return CallSection(
        call=(
            Literal(f"<|channel|>{channel} to=functions."),
            Name(),
            Literal(f" {kind}<|message|>"),
            JsonArguments(),
        ),
        triggers=(f"<|channel|>{channel} to=functions.",),
        parallel=False,
    )


def _before_channel(channel: str, kind: str) -> CallSection:
    return CallSection(
        lead=" ",
        call=(
            Literal("to=functions."),
            Name(),
            Literal(f"<|channel|>{channel} {kind}<|message|>"),
            JsonArguments(),
        ),
        triggers=("to=functions.",),
        parallel=False,
    )


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
    calls=replace(
        _before_channel("commentary", "json"),
        also=(_behind_channel("commentary", "<|constrain|>json"),),
    ),
    answer_open="<|channel|>final<|message|>",
    said_open="<|channel|>commentary<|message|>",
    said_close="<|end|><|start|>assistant",
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
        _before_channel("commentary", "<|constrain|> json"),
        separator="<|end|><|start|>assistant ",
        parallel=True,
    ),
)

FORMATS = (LLM_JP, GPT_OSS)
