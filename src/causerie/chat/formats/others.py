"""Families of one or two models each; calls in the notation of Python."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    ALWAYS,
    OFF_BY_DEFAULT,
    ON_BY_DEFAULT,
    CallId,
    CallSection,
    Literal,
    ModelFormat,
    ParameterList,
    Reasoning,
    ThinkingSwitch,
    by_effort,
    section,
    unspaced,
)
from causerie.chat.formats.hermes import GENERIC, JSON_CALL, json_list
from causerie.chat.formats.parameters import INVOKE, keyed, marked_up

# InternLM 2 and 2.5: calls as JSON behind the name of a plugin.

INTERNLM_2 = ModelFormat(
    calls=section(
        '<|action_start|><|plugin|>\n{"name": "$NAME", "parameters": $JSON}<|action_end|>',
        triggers=("<|action_start|>",),
    )
)


# Calls in Python's notation: Olmo 3, and models that write a bare list of them.

# One call a line.
OLMO_3 = ModelFormat(
    reasoning=unspaced(after_close="\n\n"),
    calls=section(
        "$NAME($PYTHON)", begin="<function_calls>", separator="\n", end="</function_calls>"
    ),
)

OLMO_3_THINK = replace(OLMO_3, thinking=ALWAYS)


# Liquid's LFM 2 and 2.5: calls in Python's notation.

# Its template shows neither calls nor reasoning of the past.
LFM_2 = ModelFormat(
    reasoning=unspaced(),
    calls=section(
        "$NAME($PYTHON)", begin="<|tool_call_start|>[", separator=", ", end="]<|tool_call_end|>"
    ),
    reasoning_keys=("thinking",),
)

SEED_OSS = ModelFormat(
    reasoning=unspaced("<seed:think>", "</seed:think>", after_close="\n"),
    thinking=ThinkingSwitch(on={"thinking_budget": -1}, off={"thinking_budget": 0}),
    calls=section(
        "<seed:tool_call>\n<function=$NAME>\n",
        ParameterList("<parameter=", ">", "</parameter>\n", constants="python"),
        "</function>\n</seed:tool_call>",
        separator="\n",
    ),
)

# Its template takes earlier reasoning only in blocks of its own.
APERTUS = ModelFormat(
    reasoning=unspaced("<|inner_prefix|>", "<|inner_suffix|>"),
    thinking=OFF_BY_DEFAULT,
    calls=section(
        '{"$NAME": $JSON}', begin="<|tools_prefix|>[", separator=", ", end="]<|tools_suffix|>"
    ),
)

# The reasoning begins with a sentence and ends with the announcement of the answer.
APRIEL = ModelFormat(
    reasoning=Reasoning("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", after_close="\n"),
    thinking=ALWAYS,
    calls=json_list("<tool_calls>[", "]</tool_calls>", lead="\n"),
    skip=("[END FINAL RESPONSE]", "<|end|>"),
)

SOLAR_OPEN = ModelFormat(
    reasoning=unspaced("<|think|>", "<|end|>", after_close="<|begin|>assistant"),
    thinking=by_effort("minimal", "medium", "high"),
    calls=section(
        "<|tool_call:begin|>",
        CallId("[a-z0-9]{10}"),
        "<|tool_call:name|>$NAME<|tool_call:args|>$JSON<|tool_call:end|>",
        begin="<|tool_calls|>",
    ),
    answer_open="<|content|>",
    skip=("<|begin|>assistant", "<|end|>", "<|calls|>"),
    reasoning_keys=("reasoning",),
)

SOLAR_OPEN_2 = ModelFormat(
    reasoning=unspaced("<|think:start|>", "<|think:end|>"),
    thinking=by_effort("minimal", "medium", "high", "xhigh"),
    calls=section(
        "<|tool_call:start|>$NAME\n",
        ParameterList("<|tool_arg:start|>", "<|tool_arg:value|>", "<|tool_arg:end|>\n"),
        "<|tool_call:end|>",
        separator="\n",
    ),
)

GIGACHAT_3 = ModelFormat(
    calls=CallSection(
        lead="<|message_sep|>\n\n",
        begin="function call<|role_sep|>\n",
        call=JSON_CALL,
        triggers=("function call<|role_sep|>",),
        parallel=False,
    ),
    skip=("<|message_sep|>",),
)

GIGACHAT_3_1 = replace(
    GIGACHAT_3,
    calls=section('<|function_call|>{"name": "$NAME", "arguments": $JSON}', parallel=False),
)

GIGACHAT_3_5 = ModelFormat(
    reasoning=unspaced(after_close="\n\n"),
    thinking=ThinkingSwitch(on={"reasoning": True}, off={"reasoning": False}, default="off"),
    calls=marked_up("tool_calls", "｜GCML｜"),
    skip=("<|message_sep|>",),
)

# A text with line breaks or angle brackets stands in a CDATA block.
MINICPM_5 = ModelFormat(
    thinking=ON_BY_DEFAULT,
    calls=section(
        '<function name="$NAME">',
        ParameterList(
            '<param name="', '">', "</param>", constants="python", wrap=("<![CDATA[", "]]>")
        ),
        "</function>",
        separator="\n",
        triggers=('<function name="',),
    ),
)

# Each effort has markers of its own; small models close all of them as the highest.
K2_HORIZON = ModelFormat(
    reasoning=Reasoning(
        "<ifm|think>",
        "</ifm|think>",
        after_close="\n",
        also_open=("<ifm|think_fast>", "<ifm|think_faster>"),
        also_close=("</ifm|think_fast>", "</ifm|think_faster>"),
    ),
    thinking=replace(ON_BY_DEFAULT, effort="reasoning_effort", efforts=("low", "medium", "high")),
    calls=CallSection(
        begin="<ifm|tool_calls>\n", call=keyed("ifm|{}", end="\n"), end="</ifm|tool_calls>"
    ),
)

DOTS = ModelFormat(
    thinking=ON_BY_DEFAULT,
    calls=CallSection(
        lead="\n", begin="<dots_function_call>\n", call=INVOKE, end="</dots_function_call>"
    ),
)

JAMBA = ModelFormat(calls=json_list("<tool_calls>[", "]</tool_calls>"))

# A list and nothing else; one template for Qwen's and one for Llama's control tokens.
XLAM_2 = ModelFormat(
    calls=CallSection(
        begin="[", call=JSON_CALL, separator=", ", end="]", at_start=True, lead_ins=("[\n",)
    )
)

PHI_4_REASONING = replace(GENERIC, thinking=ALWAYS)

# Tools reach its template only inside a system message.
PHI_4_MINI = ModelFormat(calls=json_list("functools[", "]"), native_tools=False)

PLAMO_3 = ModelFormat(
    reasoning=unspaced("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    thinking=ON_BY_DEFAULT,
    calls=section(
        "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>$NAME",
        Literal(
            "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>"
            "<|plamo:constrain|>json<|plamo:msg|>",
            ("<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:msg|>",),
        ),
        "$JSON<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
        begin="<|plamo:begin_tool_requests:plamo|>",
        end="<|plamo:end_tool_requests:plamo|>",
    ),
)
