"""Calls in tags, one parameter after the other: Qwen Coder, GLM, LongCat, Step, MiniMax."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    ALWAYS,
    OFF_BY_DEFAULT,
    ON_BY_DEFAULT,
    CallSection,
    ElementArguments,
    Literal,
    ModelFormat,
    ParameterList,
    Reasoning,
    Segment,
    ThinkingSwitch,
    segments,
    unspaced,
)

# Calls in tags with one parameter after the other, first written by Qwen 3 Coder.
#
# The templates print every value that is no object or list as Python does, so
# that is what the models have read.

_PARAMETERS = ParameterList(
    before="<parameter=", between=">\n", after="\n</parameter>\n", constants="python"
)
CODER_CALLS = CallSection(
    call=segments("<tool_call>\n<function=$NAME>\n", _PARAMETERS, "</function>\n</tool_call>"),
    separator="\n",
    # Some models leave the outer tag out.
    also=(
        CallSection(
            call=segments(
                "<function=$NAME>\n",
                _PARAMETERS,
                Literal("</function>", ("</function>\n</tool_call>",)),
            ),
            separator="\n",
        ),
    ),
)

QWEN_3_CODER = ModelFormat(
    "qwen-3-coder", detect=(("<function=", "<parameter="),), calls=CODER_CALLS
)

QWEN_3_5 = replace(
    QWEN_3_CODER,
    name="qwen-3.5",
    detect=(("<function=", "<parameter=", "</think>"),),
    thinking=ON_BY_DEFAULT,
)

NEMOTRON_3 = replace(
    QWEN_3_5,
    name="nemotron-3",
    detect=(("<function=", "<parameter=", "truncate_history_thinking"),),
    reasoning=Reasoning(after_close="\n"),
)

STEP_3_5 = replace(
    QWEN_3_5,
    name="step-3.5",
    detect=(("<function=", "<parameter=", "<im_patch>"),),
    reasoning=Reasoning(after_close="\n"),
    thinking=ALWAYS,
    calls=replace(CODER_CALLS, separator=""),
)


# Calls as pairs of ``<arg_key>`` and ``<arg_value>``: GLM, and who took the form over.


def keyed(
    tag: str = "{}", behind_name: str = "\n", *, line: str = "\n", end: str = ""
) -> tuple[Segment, ...]:
    """Return such a call; ``tag`` makes the name of a family's tag of the usual one."""
    call, key, value = map(tag.format, ("tool_call", "arg_key", "arg_value"))
    arguments = ParameterList(f"<{key}>", f"</{key}>{line}<{value}>", f"</{value}>{line}")
    return segments(f"<{call}>$NAME{behind_name}", arguments, f"</{call}>{end}")


_DENSE_CALLS = CallSection(keyed(behind_name="", line=""))
_DENSE = unspaced()

GLM_4_5 = ModelFormat(
    "glm-4.5",
    detect=(("<arg_key>", "[gMASK]"),),
    reasoning=replace(_DENSE, after_close="\n"),
    thinking=ON_BY_DEFAULT,
    calls=CallSection(keyed(), separator="\n"),
)

GLM_4_7 = replace(
    GLM_4_5,
    name="glm-4.7",
    detect=(("<arg_key>", "[gMASK]", "</arg_key><arg_value>"),),
    reasoning=_DENSE,
    calls=_DENSE_CALLS,
)

SPARK_2_5 = replace(GLM_4_7, name="spark-2.5", detect=(("<arg_key>", "<|Bot|>"),))

LAGUNA_S = replace(
    GLM_4_7,
    name="laguna-s",
    detect=(("<arg_key>", "<available_tools>", "enable_thinking | default(true)"),),
)

LAGUNA = replace(
    GLM_4_5,
    name="laguna",
    detect=(("<arg_key>", "<available_tools>"),),
    reasoning=Reasoning(after_close="\n"),
    thinking=OFF_BY_DEFAULT,
)

LING_3 = replace(
    GLM_4_7,
    name="ling-3",
    detect=(("<arg_key>", "<role>ASSISTANT</role>"),),
    calls=CallSection(
        call=segments(
            "<tool_call>$NAME\n",
            ParameterList("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>"),
            "\n</tool_call>",
        ),
        separator="\n",
    ),
)

IQUEST_Q1 = replace(
    GLM_4_7,
    name="iquest-q1",
    detect=(("<iquest_tool_call>",),),
    calls=replace(
        _DENSE_CALLS,
        call=segments("<iquest_tool_call>", *_DENSE_CALLS.call[1:-1], "</iquest_tool_call>"),
    ),
)


# Meituan's LongCat: calls in tags of its own, first as JSON, then parameter by parameter.

_THINK = Reasoning("<longcat_think>", "</longcat_think>", after_close="\n")

LONGCAT_FLASH = ModelFormat(
    "longcat-flash",
    detect=(("<longcat_tool_call>",),),
    reasoning=_THINK,
    thinking=OFF_BY_DEFAULT,
    calls=CallSection(
        call=segments(
            '<longcat_tool_call>\n{"name": "$NAME", "arguments": $JSON}\n</longcat_tool_call>'
        ),
        separator="\n",
    ),
)

# From Flash Thinking 2601 on.
LONGCAT_2 = replace(
    LONGCAT_FLASH,
    name="longcat-2",
    detect=(("<longcat_tool_call>", "<longcat_arg_key>"),),
    calls=CallSection(keyed("longcat_{}"), separator="\n"),
)


# StepFun's Step 3; its successor writes calls as Qwen's coder does.

STEP_3 = ModelFormat(
    "step-3",
    detect=(("<steptml:invoke",),),
    reasoning=Reasoning(after_close="\n"),
    thinking=ALWAYS,
    calls=CallSection(
        begin="<｜tool_calls_begin｜>\n",
        call=segments(
            '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="$NAME">\n',
            ParameterList(
                '<steptml:parameter name="', '">', "</steptml:parameter>\n", constants="python"
            ),
            "</steptml:invoke><｜tool_call_end｜>\n",
        ),
        end="<｜tool_calls_end｜>",
    ),
)


# MiniMax M1 to M3.

INVOKE = segments(
    '<invoke name="$NAME">\n',
    ParameterList('<parameter name="', '">', "</parameter>\n"),
    "</invoke>\n",
)

MINIMAX_M1 = ModelFormat(
    "minimax-m1",
    detect=(("<tool_calls>", "<beginning_of_sentence>"),),
    thinking=ALWAYS,
    calls=CallSection(
        begin="<tool_calls>\n",
        call=segments('{"name": "$NAME", "arguments": $JSON}\n'),
        end="</tool_calls>",
    ),
)

MINIMAX_M2 = ModelFormat(
    "minimax-m2",
    detect=(("<minimax:tool_call>",),),
    thinking=ALWAYS,
    calls=CallSection(
        lead="\n", begin="<minimax:tool_call>\n", call=INVOKE, end="</minimax:tool_call>"
    ),
)

_MARK = "]<]minimax[>["
MINIMAX_M3 = ModelFormat(
    "minimax-m3",
    detect=((_MARK, "<mm:think>"),),
    reasoning=unspaced("<mm:think>", "</mm:think>"),
    thinking=ThinkingSwitch(on={"thinking_mode": "enabled"}, off={"thinking_mode": "disabled"}),
    calls=CallSection(
        begin=f"{_MARK}<tool_call>\n",
        call=segments(
            f'{_MARK}<invoke name="', '$NAME">', ElementArguments(_MARK), f"{_MARK}</invoke>\n"
        ),
        end=f"{_MARK}</tool_call>",
        triggers=(f"{_MARK}<tool_call>",),
    ),
)
