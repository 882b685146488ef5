"""Llama 3 and 4, and models built on them that write calls their own way."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    CallSection,
    JsonArguments,
    Literal,
    ModelFormat,
    Name,
    PythonArguments,
    Reasoning,
)
from causerie.chat.formats.hermes import HERMES_CALLS, JSON_CALL

# Nothing but a brace marks the call; some say before it what it is.
_PARAMETERS = (Name(), Literal('", "parameters": '), JsonArguments(), Literal("}"))
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
    detect=(
        ("<|start_header_id|>", "<|python_tag|>"),
        ("<|start_header_id|>", '"parameters": '),
    ),
    reasoning=Reasoning(),
    calls=_JSON_CALLS,
)

LLAMA_4 = ModelFormat(
    "llama-4",
    detect=(("<|header_start|>", '"parameters": '),),
    reasoning=Reasoning(),
    calls=_JSON_CALLS,
    skip=("<|python_end|>",),
)

LLAMA_4_PYTHONIC = ModelFormat(
    "llama-4-pythonic",
    detect=(("<|header_start|>",),),
    reasoning=Reasoning(),
    calls=CallSection(
        begin="[",
        call=(Name(), Literal("("), PythonArguments(), Literal(")")),
        separator=", ",
        end="]",
        at_start=True,
        lead_ins=("<|python_start|>[", "<|python_tag|>["),
    ),
    skip=("<|python_end|>",),
)

# ToolACE, and Llama 3.2 where it is told to write so.
TOOL_ACE = replace(
    LLAMA_4_PYTHONIC,
    name="toolace",
    detect=(("[func_name1(params_name1=params_value1",),),
    skip=(),
)

FUNCTIONARY_3_1 = ModelFormat(
    "functionary-3.1",
    detect=(("<function=", "<|start_header_id|>"),),
    reasoning=Reasoning(),
    calls=CallSection(
        call=(Literal("<function="), Name(), Literal(">"), JsonArguments(), Literal("</function>"))
    ),
)

# The prompt ends in the middle of its call (``>>>``), which no marker here can say:
# tools are described in words, past calls are written as they are everywhere, and
# the recipient is always the user.
FUNCTIONARY_3_2 = ModelFormat(
    "functionary-3.2",
    detect=((">>>${recipient}",),),
    reasoning=Reasoning(),
    calls=HERMES_CALLS,
    arguments="text",
    native_tools=False,
    prompt_end="all\n",
)

# Its template wants the functions as one text of its own making (``functions``).
FIREFUNCTION_2 = ModelFormat(
    "firefunction-2",
    detect=(("functools[",),),
    reasoning=Reasoning(),
    calls=CallSection(
        lead=" ",
        begin="functools[",
        call=JSON_CALL,
        separator=", ",
        end="]",
        triggers=("functools[",),
    ),
    native_tools=False,
)

FORMATS = (
    FIREFUNCTION_2,
    FUNCTIONARY_3_2,
    FUNCTIONARY_3_1,
    TOOL_ACE,
    LLAMA_4,
    LLAMA_4_PYTHONIC,
    LLAMA_3,
)
