"""Mistral's models, oldest form of calls last."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    CallId,
    CallSection,
    JsonArguments,
    Literal,
    ModelFormat,
    Name,
    Reasoning,
)
from causerie.chat.formats.switches import ALWAYS

_THINK = Reasoning("[THINK]", "[/THINK]", after_open="", before_close="", after_close="")
_ARGS_CALLS = CallSection(
    call=(Literal("[TOOL_CALLS]"), Name(), Literal("[ARGS]"), JsonArguments()),
)

# Devstral, Ministral 3, Mistral Small 3.3 and later.
MISTRAL = ModelFormat(
    "mistral",
    detect=(("[TOOL_CALLS]", "[ARGS]"),),
    reasoning=Reasoning(),
    calls=_ARGS_CALLS,
)

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
    calls=CallSection(
        call=(
            Literal("[TOOL_CALLS]"),
            Name(),
            Literal("[CALL_ID]"),
            CallId(),
            Literal("[ARGS]"),
            JsonArguments(),
        ),
    ),
)

MISTRAL_NEMO = replace(
    MISTRAL,
    name="mistral-nemo",
    detect=(("[TOOL_CALLS]",),),
    calls=CallSection(
        begin="[TOOL_CALLS][",
        call=(
            Literal('{"name": "'),
            Name(),
            Literal('", "arguments": '),
            JsonArguments(),
            Literal(', "id": "'),
            CallId(),
            Literal('"}'),
        ),
        separator=", ",
        end="]",
        triggers=("[TOOL_CALLS]",),
    ),
)

FORMATS = (MISTRAL_SMALL_3_2, MAGISTRAL, MISTRAL, MISTRAL_NEMO)
