"""Calls as JSON in most cases: Hermes, Qwen, Llama, Mistral, Command, Gemma, and the fallback."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    ALWAYS,
    HERMES_CALLS,
    OFF_BY_DEFAULT,
    ON_BY_DEFAULT,
    CallId,
    CallSection,
    Literal,
    LooseArguments,
    ModelFormat,
    Reasoning,
    ThinkingSwitch,
    section,
    segments,
    unspaced,
)

# A call as many families write it, in markers of their own.
JSON_CALL = segments('{"name": "$NAME", "arguments": $JSON}')


def json_list(begin: str, end: str, *, lead: str = "") -> CallSection:
    """Return calls that stand in a list, between its brackets."""
    return CallSection(JSON_CALL, begin, ", ", end, lead=lead)


# Qwen 2.5, Hermes 2 and 3, SmolLM 2 and everybody who took the form over.
HERMES = ModelFormat()

# No line break between two calls.
REKA = replace(HERMES, thinking=OFF_BY_DEFAULT, calls=replace(HERMES_CALLS, separator=""))

BIELIK = replace(
    HERMES,
    reasoning=Reasoning(after_close="\n"),
    thinking=OFF_BY_DEFAULT,
    calls=replace(HERMES_CALLS, lead="\n"),
)

# Its template shows tools only under names of its own (``xml_tools``).
SMOLLM_3 = replace(
    HERMES, reasoning=Reasoning(after_close="\n"), thinking=ON_BY_DEFAULT, native_tools=False
)


# The fallback: any template, tools described in a message, thinking in tags.

GENERIC = ModelFormat(native_tools=False)

# An unknown template with the switch that everybody knows.
GENERIC_THINKING = replace(GENERIC, thinking=ON_BY_DEFAULT)


# Qwen 3 and QwQ: calls as in Hermes, thinking in tags.

QWEN_3 = ModelFormat(thinking=ON_BY_DEFAULT)

# QwQ, and the 2507 models that only think: their template opens the reasoning.
QWEN_3_THINKING = replace(QWEN_3, thinking=ALWAYS)

# QwQ behind a template that was given a switch, which is off when nothing is said.
QWQ_SWITCHED = replace(QWEN_3, thinking=OFF_BY_DEFAULT)


# Baidu's ERNIE 4.5 that thinks: calls as in Hermes, the answer in tags of its own.

ERNIE_4_5 = ModelFormat(
    reasoning=Reasoning(after_close="\n"),
    thinking=ALWAYS,
    answer_open="<response>",
    answer_close="</response>",
    answer_space="\n",
)


# Nemotron Nano 2; its successor writes calls as Qwen's coder does.

NEMOTRON_NANO_2 = ModelFormat(
    thinking=ThinkingSwitch(system_on="/think", system_off="/no_think"),
    calls=json_list("<TOOLCALL>[", "]</TOOLCALL>"),
)


# Llama 3 and 4, and models built on them that write calls their own way.

# Nothing but a brace marks the call; some say before it what it is.
_PARAMETERS = segments('$NAME", "parameters": $JSON}')
_BRACED = CallSection(
    (Literal('{"name": "'), *_PARAMETERS), separator="; ", at_start=True, parallel=False
)
_TYPED = (Literal('{"type": "function", "name": "'), *_PARAMETERS)
_JSON_CALLS = replace(
    _BRACED,
    lead_ins=("<|python_tag|>", "<|python_start|>"),
    also=(replace(_BRACED, call=_TYPED, triggers=('{"type": "function"',)),),
)

LLAMA_3 = ModelFormat(calls=_JSON_CALLS)

LLAMA_4 = ModelFormat(calls=_JSON_CALLS, skip=("<|python_end|>",))

LLAMA_4_PYTHONIC = ModelFormat(
    calls=section(
        "$NAME($PYTHON)",
        begin="[",
        separator=", ",
        end="]",
        at_start=True,
        lead_ins=("<|python_start|>[", "<|python_tag|>["),
    ),
    skip=("<|python_end|>",),
)

# ToolACE, and Llama 3.2 where it is told to write so.
TOOL_ACE = replace(LLAMA_4_PYTHONIC, skip=())

FUNCTIONARY_3_1 = ModelFormat(calls=section("<function=$NAME>$JSON</function>"))

# The prompt ends in the middle of its call (``>>>``), which no marker here can say:
# tools are described in words, past calls are written as they are everywhere, and
# the recipient is always the user.
FUNCTIONARY_3_2 = ModelFormat(arguments="text", native_tools=False, prompt_end="all\n")

# Its template wants the functions as one text of its own making (``functions``).
FIREFUNCTION_2 = ModelFormat(calls=json_list("functools[", "]", lead=" "), native_tools=False)


# Mistral's models, oldest form of calls last.

_THINK = unspaced("[THINK]", "[/THINK]")
_ARGS_CALLS = section("[TOOL_CALLS]$NAME[ARGS]$JSON")

# Devstral, Ministral 3, Mistral Small 3.3 and later.
MISTRAL = ModelFormat(calls=_ARGS_CALLS)

# Magistral and the reasoning Ministral; their history shows reasoning only within the content.
MAGISTRAL = replace(MISTRAL, reasoning=_THINK, thinking=ALWAYS)

MISTRAL_SMALL_3_2 = replace(MISTRAL, calls=section("[TOOL_CALLS]$NAME[CALL_ID]$ID[ARGS]$JSON"))

MISTRAL_NEMO = replace(
    MISTRAL,
    calls=section(
        '{"name": "$NAME", "arguments": $JSON, "id": "$ID"}',
        begin="[TOOL_CALLS][",
        separator=", ",
        end="]",
    ),
)

COMMAND_R7B = ModelFormat(
    reasoning=unspaced("<|START_THINKING|>", "<|END_THINKING|>"),
    thinking=OFF_BY_DEFAULT,
    calls=section(
        '{"tool_call_id": "',
        CallId("{index}", continues=True, kept=False),
        '", "tool_name": "$NAME", "parameters": $JSON}',
        begin="<|START_ACTION|>[\n    ",
        separator=",\n    ",
        end="\n]<|END_ACTION|>",
    ),
    answer_open="<|START_RESPONSE|>",
    answer_close="<|END_RESPONSE|>",
)

# Command A and later: the same calls, the answer between other marks.
COMMAND_A = replace(
    COMMAND_R7B,
    thinking=ThinkingSwitch(on={"reasoning": True}, off={"reasoning": False}),
    answer_open="<|START_TEXT|>",
    answer_close="<|END_TEXT|>",
)

COMMAND_R = ModelFormat(
    calls=section(
        '    {\n        "tool_name": "$NAME",\n        "parameters": $JSON\n    }',
        lead="\n",
        begin="Action:\n```json\n[\n",
        separator=",\n",
        end="\n]```\n",
        triggers=("Action:\n```json\n[",),
    )
)


# Gemma: 4 with calls and thinking of its own, before it neither, but for FunctionGemma.

# The template's own word that a result follows ends what the model writes.
GEMMA_4 = ModelFormat(
    reasoning=Reasoning("<|channel>thought", "<channel|>", after_close=""),
    thinking=OFF_BY_DEFAULT,
    calls=section("<|tool_call>call:$NAME", LooseArguments('<|"|>'), "<tool_call|>"),
    skip=("<|tool_response>",),
)

FUNCTION_GEMMA = ModelFormat(
    calls=section(
        "<start_function_call>call:$NAME", LooseArguments("<escape>"), "<end_function_call>"
    ),
    skip=("<start_function_response>",),
)

GRANITE_3 = ModelFormat(
    reasoning=unspaced(),
    calls=replace(json_list("<|tool_call|>[", "]"), lead_ins=("<tool_call>[",)),
)

GRANITE_3_3 = replace(
    GRANITE_3,
    thinking=ThinkingSwitch(on={"thinking": True}, off={"thinking": False}, default="off"),
    answer_open="<response>",
    answer_close="</response>",
)

# Its template asks for a call of `no_function` where no function is needed: tools are told here.
GRANITE_20B = ModelFormat(
    calls=section('<function_call> {"name": "$NAME", "arguments": $JSON}'), native_tools=False
)
