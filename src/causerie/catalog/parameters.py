"""The parameters that a target supports, by those that it is known to honour."""

from __future__ import annotations

from collections.abc import Iterable

from causerie.protocol.parameters import refused_by
from causerie.protocol.parsing.rules import HONOURED

_ALWAYS = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "include_reasoning",
        "modalities",
        "session_id",
    }
)
"""Served whoever answers: we do it ourselves, or nothing can answer a chat without it."""

_ALIKE = (
    frozenset({"max_tokens", "max_completion_tokens"}),
    frozenset({"continue_final_message", "add_generation_prompt"}),
)
"""Names of one ability: whoever honours one is spoken to by that name."""

_SWITCHES = frozenset({"reasoning", "reasoning_effort", "chat_template_kwargs"})
"""Ways to switch thinking, each written as the target knows it."""

_OF_PROBABILITIES = frozenset({"logprobs", "top_logprobs"})
"""The engine gives no probabilities of tokens that were proposed to it."""


def of_provider(honoured: Iterable[str] | None, *, switches: bool) -> frozenset[str] | None:
    """Return what a provider's model supports, ``None`` where nothing is known of it.

    ``switches``: its thinking can be switched, by whichever parameter.
    """
    if honoured is None:
        return None
    known = frozenset(honoured)
    for alike in _ALIKE:
        if known & alike:
            known |= alike
    if switches:
        known |= _SWITCHES
    return (known | _ALWAYS) & HONOURED


def of_engine(engine: str, *, speculates: bool) -> frozenset[str]:
    """Return what an engine of ours supports; ``speculates``: tokens are proposed to it."""
    honoured = HONOURED - refused_by(engine)
    return honoured - _OF_PROBABILITIES if speculates else honoured
