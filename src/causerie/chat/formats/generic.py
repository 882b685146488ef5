"""The fallback: any template, tools described in a message, thinking in tags."""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import ModelFormat, Reasoning
from causerie.chat.formats.hermes import HERMES_CALLS
from causerie.chat.formats.switches import ON_BY_DEFAULT

GENERIC = ModelFormat("generic", reasoning=Reasoning(), calls=HERMES_CALLS, native_tools=False)

# An unknown template with the switch that everybody knows.
GENERIC_THINKING = replace(
    GENERIC,
    name="generic-thinking",
    detect=(("enable_thinking", "<think>"),),
    thinking=ON_BY_DEFAULT,
)
