"""Calls in Python's notation: Olmo 3, and models that write a bare list of them."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    CallSection,
    Literal,
    ModelFormat,
    Name,
    PythonArguments,
    Reasoning,
)
from causerie.chat.formats.switches import ALWAYS

# One call a line.
OLMO_3 = ModelFormat(
    "olmo-3",
    detect=(("<function_calls>", "<functions>"),),
    reasoning=Reasoning(after_open="", before_close=""),
    calls=CallSection(
        begin="<function_calls>",
        call=(Name(), Literal("("), PythonArguments(), Literal(")")),
        separator="\n",
        end="</function_calls>",
    ),
)

OLMO_3_THINK = replace(
    OLMO_3,
    name="olmo-3-think",
    detect=(("<function_calls>", "<functions>", "<think>"),),
    thinking=ALWAYS,
)

FORMATS = (OLMO_3_THINK, OLMO_3)
