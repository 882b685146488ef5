"""Llama, Mistral, Command, Gemma, Granite, and models built on them."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    ALWAYS,
    OFF_BY_DEFAULT,
    CallId,
    CallSection,
    Literal,
    LooseArguments,
    ModelFormat,
    Reasoning,
    ThinkingSwitch,
    segments,
    unspaced,
)
from causerie.chat.formats.hermes import GENERIC, json_list

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
    calls=CallSection(
        begin="[",
        call=segments("$NAME($PYTHON)"),
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
    calls=CallSection(call=segments("<function=$NAME>$JSON</function>")),
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
_ARGS_CALLS = CallSection(call=segments("[TOOL_CALLS]$NAME[ARGS]$JSON"))

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
    calls=CallSection(call=segments("[TOOL_CALLS]$NAME[CALL_ID]$ID[ARGS]$JSON")),
)

MISTRAL_NEMO = replace(
    MISTRAL,
    name="mistral-nemo",
    detect=(("[TOOL_CALLS]",),),
    calls=CallSection(
        begin="[TOOL_CALLS][",
        call=segments('{"name": "$NAME", "arguments": $JSON, "id": "$ID"}'),
        separator=", ",
        end="]",
    ),
)


# Cohere's Command models.

COMMAND_R7B = ModelFormat(
    "command-r7b",
    detect=(("<|START_ACTION|>",),),
    reasoning=unspaced("<|START_THINKING|>", "<|END_THINKING|>"),
    thinking=OFF_BY_DEFAULT,
    calls=CallSection(
        begin="<|START_ACTION|>[\n    ",
        call=segments(
            '{"tool_call_id": "',
            CallId("{index}", continues=True, kept=False),
            '", "tool_name": "$NAME", "parameters": $JSON}',
        ),
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
    calls=CallSection(
        lead="\n",
        begin="Action:\n```json\n[\n",
        call=segments('    {\n        "tool_name": "$NAME",\n        "parameters": $JSON\n    }'),
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
    calls=CallSection(
        call=segments("<|tool_call>call:$NAME", LooseArguments('<|"|>'), "<tool_call|>")
    ),
    skip=("<|tool_response>",),
)

FUNCTION_GEMMA = ModelFormat(
    "function-gemma",
    detect=(("<start_function_call>",),),
    calls=CallSection(
        call=segments(
            "<start_function_call>call:$NAME", LooseArguments("<escape>"), "<end_function_call>"
        )
    ),
    skip=("<start_function_response>",),
)

GEMMA_3 = replace(GENERIC, name="gemma-3", detect=(("<start_of_turn>",),))


# IBM's Granite.

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
    calls=CallSection(call=segments('<function_call> {"name": "$NAME", "arguments": $JSON}')),
    native_tools=False,
)
