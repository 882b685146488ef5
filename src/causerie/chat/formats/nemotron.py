"""Nemotron Nano 2; its successor writes calls as Qwen's coder does."""

from __future__ import annotations

from causerie.chat.formats.format import (
    CallSection,
    ModelFormat,
    Reasoning,
    ThinkingSwitch,
)
from causerie.chat.formats.hermes import JSON_CALL

NEMOTRON_NANO_2 = ModelFormat(
    "nemotron-nano-2",
    detect=(("<TOOLCALL>",),),
    reasoning=Reasoning(),
    thinking=ThinkingSwitch(system_on="/think", system_off="/no_think"),
    calls=CallSection(
        begin="<TOOLCALL>[",
        call=JSON_CALL,
        separator=", ",
        end="]</TOOLCALL>",
        triggers=("<TOOLCALL>",),
    ),
)

FORMATS = (NEMOTRON_NANO_2,)
