"""One JSON object a call between ``<tool_call>`` tags, and who writes it."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import (
    CallSection,
    JsonArguments,
    Literal,
    ModelFormat,
    Name,
    Reasoning,
)
from causerie.chat.formats.switches import OFF_BY_DEFAULT, ON_BY_DEFAULT

# A call as many families write it, in markers of their own.
JSON_CALL = (
    Literal('{"name": "'),
    Name(),
    Literal('", "arguments": '),
    JsonArguments(),
    Literal("}"),
)

HERMES_CALLS = CallSection(
    call=(
        Literal('<tool_call>\n{"name": "'),
        Name(),
        Literal('", "arguments": '),
        JsonArguments(),
        Literal("}\n</tool_call>"),
    ),
    separator="\n",
)

# Qwen 2.5, Hermes 2 and 3, SmolLM 2 and everybody who took the form over.
HERMES = ModelFormat(
    "hermes", detect=(("<tool_call>",),), reasoning=Reasoning(), calls=HERMES_CALLS
)

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

FORMATS = (SMOLLM_3, BIELIK, REKA, MIMO, HERMES)
