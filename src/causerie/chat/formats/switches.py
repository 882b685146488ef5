"""The ways to tell a template to think that many families share."""

from __future__ import annotations

from causerie.chat.formats.format import ThinkingSwitch

ON_BY_DEFAULT = ThinkingSwitch(on={"enable_thinking": True}, off={"enable_thinking": False})
OFF_BY_DEFAULT = ThinkingSwitch(
    on={"enable_thinking": True}, off={"enable_thinking": False}, default="off"
)
ALWAYS = ThinkingSwitch(mandatory=True)
