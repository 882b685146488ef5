"""One JSON object a call between tags: Hermes, Qwen, ERNIE, Nemotron, and the fallback."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    ALWAYS,
    HERMES_CALLS,
    OFF_BY_DEFAULT,
    ON_BY_DEFAULT,
    CallSection,
    ModelFormat,
    Reasoning,
    ThinkingSwitch,
    segments,
)

# One JSON object a call between ``<tool_call>`` tags, and who writes it.

# A call as many families write it, in markers of their own.
JSON_CALL = segments('{"name": "$NAME", "arguments": $JSON}')


def json_list(
    begin: str, end: str, *, lead: str = "", lead_ins: tuple[str, ...] = ()
) -> CallSection:
    """Return calls that stand in a list, between its brackets."""
    return CallSection(JSON_CALL, begin, ", ", end, lead=lead, lead_ins=lead_ins)


# Qwen 2.5, Hermes 2 and 3, SmolLM 2 and everybody who took the form over.
HERMES = ModelFormat("hermes", detect=(("<tool_call>",),))

MIMO = replace(HERMES, name="mimo", detect=(("<tool_call>", "MiMo"),))

# No line break between two calls.
REKA = replace(
    HERMES,
    name="reka",
    detect=(("<tool_call>", "<REKA_IMG_TOKEN>"),),
    thinking=OFF_BY_DEFAULT,
    calls=replace(HERMES_CALLS, separator=""),
)

BIELIK = replace(
    HERMES,
    name="bielik",
    detect=(("<tool_call>", "<|function_output|>"),),
    reasoning=Reasoning(after_close="\n"),
    thinking=OFF_BY_DEFAULT,
    calls=replace(HERMES_CALLS, lead="\n"),
)

# Its template shows tools only under names of its own (``xml_tools``).
SMOLLM_3 = replace(
    HERMES,
    name="smollm-3",
    detect=(("Reasoning Mode: ", "/no_think"),),
    reasoning=Reasoning(after_close="\n"),
    thinking=ON_BY_DEFAULT,
    native_tools=False,
)


# The fallback: any template, tools described in a message, thinking in tags.

GENERIC = ModelFormat("generic", native_tools=False)

# An unknown template with the switch that everybody knows.
GENERIC_THINKING = replace(
    GENERIC,
    name="generic-thinking",
    detect=(("enable_thinking", "<think>"),),
    thinking=ON_BY_DEFAULT,
)


# Qwen 3 and QwQ: calls as in Hermes, thinking in tags.

QWEN_3 = ModelFormat(
    "qwen-3",
    detect=(("<tool_call>", "reasoning_content", "enable_thinking"),),
    thinking=ON_BY_DEFAULT,
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


# Baidu's ERNIE 4.5 that thinks: calls as in Hermes, the answer in tags of its own.

ERNIE_4_5 = ModelFormat(
    "ernie-4.5",
    detect=(("<global_setting>", "<response>"),),
    reasoning=Reasoning(after_close="\n"),
    thinking=ALWAYS,
    answer_open="<response>",
    answer_close="</response>",
    answer_space="\n",
)


# Nemotron Nano 2; its successor writes calls as Qwen's coder does.

NEMOTRON_NANO_2 = ModelFormat(
    "nemotron-nano-2",
    detect=(("<TOOLCALL>",),),
    thinking=ThinkingSwitch(system_on="/think", system_off="/no_think"),
    calls=json_list("<TOOLCALL>[", "]</TOOLCALL>"),
)
