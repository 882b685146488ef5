"""Calls as pairs of ``<arg_key>`` and ``<arg_value>``: GLM, and who took the form over."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    CallSection,
    Literal,
    ModelFormat,
    Name,
    ParameterList,
    Reasoning,
)
from causerie.chat.formats.switches import OFF_BY_DEFAULT, ON_BY_DEFAULT

_LINED_CALLS = CallSection(
    call=(
        Literal("<tool_call>"),
        Name(),
        Literal("\n"),
        ParameterList("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
        Literal("</tool_call>"),
    ),
    separator="\n",
)
_DENSE_CALLS = CallSection(
    call=(
        Literal("<tool_call>"),
        Name(),
        ParameterList("<arg_key>", "</arg_key><arg_value>", "</arg_value>"),
        Literal("</tool_call>"),
    ),
)
_DENSE = Reasoning(after_open="", before_close="", after_close="")

GLM_4_5 = ModelFormat(
    "glm-4.5",
    detect=(("<arg_key>", "[gMASK]"),),
    reasoning=replace(_DENSE, after_close="\n"),
    thinking=ON_BY_DEFAULT,
    calls=_LINED_CALLS,
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
        call=(
            Literal("<tool_call>"),
            Name(),
            Literal("\n"),
            ParameterList("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>"),
            Literal("\n</tool_call>"),
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
        call=(
            Literal("<iquest_tool_call>"),
            *_DENSE_CALLS.call[1:-1],
            Literal("</iquest_tool_call>"),
        ),
    ),
)

FORMATS = (IQUEST_Q1, LING_3, SPARK_2_5, LAGUNA_S, LAGUNA, GLM_4_7, GLM_4_5)
