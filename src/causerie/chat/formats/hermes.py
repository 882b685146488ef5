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


# Llama 3 and 4, and models built on them that write calls their own way.

# Nothing but a brace marks the call; some say before it what it is.
_PARAMETERS = segments('$NAME", "parameters": $JSON}')
_JSON_CALLS = CallSection(
    call=(Literal('{"name": "'), *_PARAMETERS),
    separator="; ",
    at_start=True,
    parallel=False,
    lead_ins=("<|python_tag|>", "<|python_start|>"),
    also=(
        CallSection(
            call=(Literal('{"type": "function", "name": "'), *_PARAMETERS),
            triggers=('{"type": "function"',),
            separator="; ",
            at_start=True,
            parallel=False,
        ),
    ),
)

LLAMA_3 = ModelFormat(
    "llama-3",
    detect=(("<|start_header_id|>", "<|python_tag|>"), ("<|start_header_id|>", '"parameters": ')),
    calls=_JSON_CALLS,
)

LLAMA_4 = ModelFormat(
    "llama-4",
    detect=(("<|header_start|>", '"parameters": '),),
    calls=_JSON_CALLS,
    skip=("<|python_end|>",),
)

LLAMA_4_PYTHONIC = ModelFormat(
    "llama-4-pythonic",
    detect=(("<|header_start|>",),),
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
TOOL_ACE = replace(
    LLAMA_4_PYTHONIC, name="toolace", detect=(("[func_name1(params_name1=params_value1",),), skip=()
)

FUNCTIONARY_3_1 = ModelFormat(
    "functionary-3.1",
    detect=(("<function=", "<|start_header_id|>"),),
    calls=section("<function=$NAME>$JSON</function>"),
)

# The prompt ends in the middle of its call (``>>>``), which no marker here can say:
# tools are described in words, past calls are written as they are everywhere, and
# the recipient is always the user.
FUNCTIONARY_3_2 = ModelFormat(
    "functionary-3.2",
    detect=((">>>${recipient}",),),
    arguments="text",
    native_tools=False,
    prompt_end="all\n",
)

# Its template wants the functions as one text of its own making (``functions``).
FIREFUNCTION_2 = ModelFormat(
    "firefunction-2",
    detect=(("functools[",),),
    calls=json_list("functools[", "]", lead=" "),
    native_tools=False,
)


# Mistral's models, oldest form of calls last.

_THINK = unspaced("[THINK]", "[/THINK]")
_ARGS_CALLS = section("[TOOL_CALLS]$NAME[ARGS]$JSON")

# Devstral, Ministral 3, Mistral Small 3.3 and later.
MISTRAL = ModelFormat("mistral", detect=(("[TOOL_CALLS]", "[ARGS]"),), calls=_ARGS_CALLS)

# Magistral and the reasoning Ministral; their history shows reasoning only within the content.
MAGISTRAL = replace(
    MISTRAL,
    name="magistral",
    detect=(("[TOOL_CALLS]", "[ARGS]", "[THINK]"),),
    reasoning=_THINK,
    thinking=ALWAYS,
    reasoning_keys=("reasoning_content",),
)

MISTRAL_SMALL_3_2 = replace(
    MISTRAL,
    name="mistral-small-3.2",
    detect=(("[TOOL_CALLS]", "[CALL_ID]"),),
    calls=section("[TOOL_CALLS]$NAME[CALL_ID]$ID[ARGS]$JSON"),
)

MISTRAL_NEMO = replace(
    MISTRAL,
    name="mistral-nemo",
    detect=(("[TOOL_CALLS]",),),
    calls=section(
        '{"name": "$NAME", "arguments": $JSON, "id": "$ID"}',
        begin="[TOOL_CALLS][",
        separator=", ",
        end="]",
    ),
)

COMMAND_R7B = ModelFormat(
    "command-r7b",
    detect=(("<|START_ACTION|>",),),
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
    name="command-a",
    detect=(("<|START_ACTION|>", "<|START_TEXT|>"),),
    thinking=ThinkingSwitch(on={"reasoning": True}, off={"reasoning": False}),
    answer_open="<|START_TEXT|>",
    answer_close="<|END_TEXT|>",
)

COMMAND_R = ModelFormat(
    "command-r",
    detect=(("<|START_OF_TURN_TOKEN|>",),),
    calls=section(
        '    {\n        "tool_name": "$NAME",\n        "parameters": $JSON\n    }',
        lead="\n",
        begin="Action:\n```json\n[\n",
        separator=",\n",
        end="\n]```\n",
        triggers=("Action:\n```json\n[",),
    ),
)


# Gemma: 4 with calls and thinking of its own, before it neither, but for FunctionGemma.

# The template's own word that a result follows ends what the model writes.
GEMMA_4 = ModelFormat(
    "gemma-4",
    detect=(("<|channel>", "<|tool_call>"),),
    reasoning=Reasoning(
        "<|channel>thought", "<channel|>", after_open="\n", before_close="\n", after_close=""
    ),
    thinking=OFF_BY_DEFAULT,
    calls=section("<|tool_call>call:$NAME", LooseArguments('<|"|>'), "<tool_call|>"),
    skip=("<|tool_response>",),
)

FUNCTION_GEMMA = ModelFormat(
    "function-gemma",
    detect=(("<start_function_call>",),),
    calls=section(
        "<start_function_call>call:$NAME", LooseArguments("<escape>"), "<end_function_call>"
    ),
    skip=("<start_function_response>",),
)

GEMMA_3 = replace(GENERIC, name="gemma-3", detect=(("<start_of_turn>",),))

GRANITE_4 = ModelFormat("granite-4", detect=(("<|start_of_role|>", "<tool_call>"),))

GRANITE_3 = ModelFormat(
    "granite-3",
    detect=(("<|start_of_role|>",),),
    reasoning=unspaced(),
    calls=json_list("<|tool_call|>[", "]", lead_ins=("<tool_call>[",)),
)

GRANITE_3_3 = replace(
    GRANITE_3,
    name="granite-3.3",
    detect=(("<|start_of_role|>", "<response>"),),
    thinking=ThinkingSwitch(on={"thinking": True}, off={"thinking": False}, default="off"),
    answer_open="<response>",
    answer_close="</response>",
)

# Its template asks for a call of `no_function` where no function is needed: tools are told here.
GRANITE_20B = ModelFormat(
    "granite-20b",
    detect=(("<function_call>", "<|function_call_library|>"),),
    calls=section('<function_call> {"name": "$NAME", "arguments": $JSON}'),
    native_tools=False,
)
