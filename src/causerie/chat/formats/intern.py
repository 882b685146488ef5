"""InternLM 2 and 2.5: calls as JSON behind the name of a plugin."""

from __future__ import annotations

from causerie.chat.formats.format import (
    CallSection,
    JsonArguments,
    Literal,
    ModelFormat,
    Name,
    Reasoning,
)

INTERNLM_2 = ModelFormat(
    "internlm-2",
    detect=(("<|plugin|>",),),
    reasoning=Reasoning(),
    calls=CallSection(
        call=(
            Literal('<|action_start|><|plugin|>\n{"name": "'),
            Name(),
            Literal('", "parameters": '),
            JsonArguments(),
            Literal("}<|action_end|>"),
        ),
        triggers=("<|action_start|>",),
    ),
)

FORMATS = (INTERNLM_2,)
