"""Qwen 3 and QwQ: calls as in Hermes, thinking in tags."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import ModelFormat, Reasoning
from causerie.chat.formats.hermes import HERMES_CALLS
from causerie.chat.formats.switches import ALWAYS, OFF_BY_DEFAULT, ON_BY_DEFAULT

QWEN_3 = ModelFormat(
    "qwen-3",
    detect=(("<tool_call>", "reasoning_content", "enable_thinking"),),
    reasoning=Reasoning(),
    thinking=ON_BY_DEFAULT,
    calls=HERMES_CALLS,
)

# The 2507 models that only think: their template opens the reasoning.
QWEN_3_THINKING = replace(
    QWEN_3,
    name="qwen-3-thinking",
    detect=(("<tool_call>", "reasoning_content", "assistant\\n<think>\\n' }}"),),
    thinking=ALWAYS,
)

# The 2507 models that never do, with the same template but for that.
QWEN_3_INSTRUCT = replace(
    QWEN_3, name="qwen-3-instruct", detect=(("<tool_call>", "reasoning_content"),), thinking=None
)

QWQ = replace(QWEN_3, name="qwq", detect=(("<tool_call>", "</think>"),), thinking=ALWAYS)

# QwQ behind a template that was given a switch, which is off when nothing is said.
QWQ_SWITCHED = replace(
    QWQ,
    name="qwq-switched",
    detect=(("<tool_call>", "</think>", "enable_thinking"),),
    thinking=OFF_BY_DEFAULT,
)

FORMATS = (QWEN_3, QWEN_3_THINKING, QWEN_3_INSTRUCT, QWQ_SWITCHED, QWQ)
