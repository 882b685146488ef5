"""Baidu's ERNIE 4.5 that thinks: calls as in Hermes, the answer in tags of its own."""

from __future__ import annotations

from causerie.chat.formats.format import ModelFormat, Reasoning
from causerie.chat.formats.hermes import HERMES_CALLS
from causerie.chat.formats.switches import ALWAYS

ERNIE_4_5 = ModelFormat(
    "ernie-4.5",
    detect=(("<global_setting>", "<response>"),),
    reasoning=Reasoning(after_close="\n"),
    thinking=ALWAYS,
    calls=HERMES_CALLS,
    answer_open="<response>",
    answer_close="</response>",
    answer_space="\n",
)

FORMATS = (ERNIE_4_5,)
