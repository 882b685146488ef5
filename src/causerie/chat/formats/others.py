"""Calls in tags or between tokens of their own, such as those of Coder, GLM, DeepSeek and Kimi; and
families of one or two models each.
"""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    ALWAYS,
    OFF_BY_DEFAULT,
    ON_BY_DEFAULT,
    CallId,
    CallSection,
    ElementArguments,
    Literal,
    ModelFormat,
    ParameterList,
    Reasoning,
    Segment,
    ThinkingSwitch,
    by_effort,
    section,
    segments,
    unspaced,
)
from causerie.chat.formats.hermes import GENERIC, JSON_CALL, json_list

# Calls in tags with one parameter after the other, first written by Qwen 3 Coder.
#
# The templates print every value that is no object or list as Python does, so
# that is what the models have read.

_PARAMETERS = ParameterList("<parameter=", ">\n", "\n</parameter>\n", constants="python")
# Some models leave the outer tag out.
CODER_CALLS = section(
    "<tool_call>\n<function=$NAME>\n",
    _PARAMETERS,
    "</function>\n</tool_call>",
    separator="\n",
    also=(
        section(
            "<function=$NAME>\n",
            _PARAMETERS,
            Literal("</function>", ("</function>\n</tool_call>",)),
            separator="\n",
        ),
    ),
)

QWEN_3_CODER = ModelFormat(calls=CODER_CALLS)

QWEN_3_5 = replace(QWEN_3_CODER, thinking=ON_BY_DEFAULT)

NEMOTRON_3 = replace(QWEN_3_5, reasoning=Reasoning(after_close="\n"))

STEP_3_5 = replace(
    QWEN_3_5,
    reasoning=Reasoning(after_close="\n"),
    thinking=ALWAYS,
    calls=replace(CODER_CALLS, separator=""),
)


# Calls as pairs of ``<arg_key>`` and ``<arg_value>``: GLM, and who took the form over.


def keyed(
    tag: str = "{}", behind_name: str = "\n", *, line: str = "\n", end: str = ""
) -> tuple[Segment, ...]:
    """Return the syntax of a call in key-value tags; ``tag`` is the format of tag names."""
    call, key, value = map(tag.format, ("tool_call", "arg_key", "arg_value"))
    arguments = ParameterList(f"<{key}>", f"</{key}>{line}<{value}>", f"</{value}>{line}")
    return segments(f"<{call}>$NAME{behind_name}", arguments, f"</{call}>{end}")


_DENSE_CALLS = CallSection(keyed(behind_name="", line=""))
_DENSE = unspaced()

GLM_4_5 = ModelFormat(
    reasoning=replace(_DENSE, after_close="\n"),
    thinking=ON_BY_DEFAULT,
    calls=CallSection(keyed(), separator="\n"),
)

GLM_4_7 = replace(GLM_4_5, reasoning=_DENSE, calls=_DENSE_CALLS)

LAGUNA = replace(GLM_4_5, reasoning=Reasoning(after_close="\n"), thinking=OFF_BY_DEFAULT)

LING_3 = replace(
    GLM_4_7,
    calls=section(
        "<tool_call>$NAME\n",
        ParameterList("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>"),
        "\n</tool_call>",
        separator="\n",
    ),
)

IQUEST_Q1 = replace(
    GLM_4_7,
    calls=replace(
        _DENSE_CALLS,
        call=segments("<iquest_tool_call>", *_DENSE_CALLS.call[1:-1], "</iquest_tool_call>"),
    ),
)


# Meituan's LongCat: calls in tags of its own, first as JSON, then parameter by parameter.

_THINK = Reasoning("<longcat_think>", "</longcat_think>", after_close="\n")

LONGCAT_FLASH = ModelFormat(
    reasoning=_THINK,
    thinking=OFF_BY_DEFAULT,
    calls=section(
        '<longcat_tool_call>\n{"name": "$NAME", "arguments": $JSON}\n</longcat_tool_call>',
        separator="\n",
    ),
)

# From Flash Thinking 2601 on.
LONGCAT_2 = replace(LONGCAT_FLASH, calls=CallSection(keyed("longcat_{}"), separator="\n"))


# StepFun's Step 3; its successor writes calls as Qwen's coder does.

STEP_3 = ModelFormat(
    reasoning=Reasoning(after_close="\n"),
    thinking=ALWAYS,
    calls=section(
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="$NAME">\n',
        ParameterList(
            '<steptml:parameter name="', '">', "</steptml:parameter>\n", constants="python"
        ),
        "</steptml:invoke><｜tool_call_end｜>\n",
        begin="<｜tool_calls_begin｜>\n",
        end="<｜tool_calls_end｜>",
    ),
)

INVOKE = segments(
    '<invoke name="$NAME">\n',
    ParameterList('<parameter name="', '">', "</parameter>\n"),
    "</invoke>\n",
)

MINIMAX_M1 = ModelFormat(
    thinking=ALWAYS,
    calls=section(
        '{"name": "$NAME", "arguments": $JSON}\n', begin="<tool_calls>\n", end="</tool_calls>"
    ),
)

MINIMAX_M2 = ModelFormat(
    thinking=ALWAYS,
    calls=CallSection(INVOKE, "<minimax:tool_call>\n", end="</minimax:tool_call>", lead="\n"),
)

_MARK = "]<]minimax[>["
MINIMAX_M3 = ModelFormat(
    reasoning=unspaced("<mm:think>", "</mm:think>"),
    thinking=ThinkingSwitch(on={"thinking_mode": "enabled"}, off={"thinking_mode": "disabled"}),
    calls=section(
        f'{_MARK}<invoke name="$NAME">',
        ElementArguments(_MARK),
        f"{_MARK}</invoke>\n",
        begin=f"{_MARK}<tool_call>\n",
        end=f"{_MARK}</tool_call>",
        triggers=(f"{_MARK}<tool_call>",),
    ),
)

_FENCED_CALLS = section(
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$NAME\n```json\n$JSON\n```<｜tool▁call▁end｜>",
    begin="<｜tool▁calls▁begin｜>",
    separator="\n",
    end="<｜tool▁calls▁end｜>",
)
_BARE = unspaced()
_SWITCH = ThinkingSwitch(on={"thinking": True}, off={"thinking": False}, default="off")

DEEPSEEK_V3 = ModelFormat(calls=_FENCED_CALLS)

DEEPSEEK_R1 = replace(DEEPSEEK_V3, thinking=ALWAYS)

# R1 behind a template that was given a switch, which is off when nothing is said.
DEEPSEEK_R1_SWITCHED = replace(DEEPSEEK_R1, thinking=OFF_BY_DEFAULT)

DEEPSEEK_V3_1 = ModelFormat(
    reasoning=_BARE,
    thinking=_SWITCH,
    calls=section(
        "<｜tool▁call▁begin｜>$NAME<｜tool▁sep｜>$JSON<｜tool▁call▁end｜>",
        begin="<｜tool▁calls▁begin｜>",
        end="<｜tool▁calls▁end｜>",
    ),
)


def marked_up(outer: str, mark: str = "｜DSML｜") -> CallSection:
    """Return calls in the mark-up of V3.2 and later.

    ``outer`` is the name of the outer tag; ``mark`` stands before the name of every tag.
    """
    return section(
        f'<{mark}invoke name="$NAME">\n',
        ParameterList(
            before=f'<{mark}parameter name="',
            between='" string="true">',
            between_json='" string="false">',
            after=f"</{mark}parameter>\n",
        ),
        f"</{mark}invoke>\n",
        lead="\n\n",
        begin=f"<{mark}{outer}>\n",
        end=f"</{mark}{outer}>",
        triggers=(f"<{mark}{outer}>",),
    )


DEEPSEEK_V3_2 = ModelFormat(reasoning=_BARE, thinking=_SWITCH, calls=marked_up("function_calls"))

DEEPSEEK_V4 = replace(
    DEEPSEEK_V3_2,
    thinking=replace(_SWITCH, effort="reasoning_effort", efforts=("high", "max")),
    calls=marked_up("tool_calls"),
)

# Its tags have a blank before their names.
DEEPSEEK_V4_1 = replace(
    DEEPSEEK_V4,
    thinking=replace(
        _SWITCH, effort="reasoning_effort", efforts=("low", "high", "xhigh", "max"), default="on"
    ),
    calls=marked_up("calls", "｜DSML｜ "),
)

KIMI_K2 = ModelFormat(
    reasoning=unspaced(),
    calls=section(
        "<|tool_call_begin|>",
        CallId(r"functions\.{name}:{index}", continues=True),
        "<|tool_call_argument_begin|>$JSON<|tool_call_end|>",
        begin="<|tool_calls_section_begin|>",
        end="<|tool_calls_section_end|>",
    ),
)

KIMI_K2_THINKING = replace(KIMI_K2, thinking=ALWAYS)

KIMI_K2_5 = replace(KIMI_K2, thinking=replace(_SWITCH, default="on"))

KIMI_K3 = ModelFormat(
    reasoning=unspaced("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    thinking=replace(
        _SWITCH, default="on", effort="thinking_effort", efforts=("low", "high", "max")
    ),
    calls=section(
        '<|open|>call tool="$NAME" index="',
        CallId("{index}", kept=False),
        '"<|sep|>',
        ParameterList(
            before='<|open|>argument key="',
            between='" type="string"<|sep|>',
            between_json='" type="{type}"<|sep|>',
            after="<|close|>argument<|sep|>",
        ),
        "<|close|>call<|sep|>",
        lead="<|open|>response<|sep|><|close|>response<|sep|>",
        begin="<|open|>tools<|sep|>",
        end="<|close|>tools<|sep|>",
    ),
    answer_open="<|open|>response<|sep|>",
    answer_close="<|close|>response<|sep|>",
    skip=("<|close|>message<|sep|>",),
)


def _hunyuan_calls(suffix: str, behind_name: str) -> CallSection:
    arguments = keyed("{}" + suffix, behind_name, end="\n")
    return CallSection(arguments, begin=f"<tool_calls{suffix}>\n", end=f"</tool_calls{suffix}>")


# Every marker of the open release carries its name.
HUNYUAN_3 = ModelFormat(
    reasoning=unspaced("<think:opensource>", "</think:opensource>"),
    thinking=by_effort("no_think", "low", "high", default="off"),
    calls=_hunyuan_calls(":opensource", "<tool_sep:opensource>\n"),
)

# The same markers with another suffix, and none behind the name of the function.
HUNYUAN_4 = ModelFormat(
    reasoning=unspaced("<think:6124c78e>", "</think:6124c78e>"),
    thinking=by_effort("no_think", "low", "high"),
    calls=_hunyuan_calls(":6124c78e", "\n"),
)

HUNYUAN_A13B = ModelFormat(
    reasoning=Reasoning(after_close="\n"),
    thinking=ON_BY_DEFAULT,
    calls=json_list("<tool_calls>[", "]</tool_calls>"),
    answer_open="<answer>",
    answer_close="</answer>",
    answer_space="\n",
)


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
        JSON_CALL,
        "function call<|role_sep|>\n",
        triggers=("function call<|role_sep|>",),
        parallel=False,
        lead="<|message_sep|>\n\n",
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
    calls=CallSection(keyed("ifm|{}", end="\n"), "<ifm|tool_calls>\n", end="</ifm|tool_calls>"),
)

DOTS = ModelFormat(
    thinking=ON_BY_DEFAULT,
    calls=CallSection(INVOKE, "<dots_function_call>\n", end="</dots_function_call>", lead="\n"),
)

JAMBA = ModelFormat(calls=json_list("<tool_calls>[", "]</tool_calls>"))

# A list and nothing else; one template for Qwen's and one for Llama's control tokens.
XLAM_2 = ModelFormat(calls=CallSection(JSON_CALL, "[", ", ", "]", at_start=True, lead_ins=("[\n",)))

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
