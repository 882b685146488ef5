"""Decision whether a model thinks, and for how many tokens at most.

The input is one setting (:class:`causerie.protocol.request.Thinking`). The
output is the template's argument and a budget: an effort is a share of the
output limit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from causerie.chat.formats.format import ModelFormat, Reasoning
from causerie.errors import InvalidRequest
from causerie.protocol.effort import SHARES
from causerie.protocol.request import Thinking

_ANSWER_TOKENS = 256


@dataclass(frozen=True, slots=True)
class ThinkingPlan:
    """Plan of the thinking of one request."""

    form: ModelFormat
    """The model's format, with reasoning added if the model has none and the request asks for
    thinking.
    """
    on: bool | None
    """The template's argument; ``None``: no argument."""
    effort: str | None
    written: bool
    """The service opens the reasoning itself, because the model would not."""


def plan(form: ModelFormat, thinking: Thinking) -> ThinkingPlan:
    """Return the plan; raise ``InvalidRequest`` if thinking is off for a model that must think."""
    switch = form.thinking
    if switch is not None and switch.mandatory and thinking.enabled is False:
        raise InvalidRequest(
            "This model always thinks, so thinking cannot be turned off. Leave the setting out, "
            "or ask for little with `reasoning_effort: minimal`; `include_reasoning: false` "
            "keeps the reasoning out of the reply.",
            code="unsupported_parameter",
            param="reasoning_effort" if thinking.effort else "chat_template_kwargs.enable_thinking",
        )
    if switch is not None:
        return ThinkingPlan(form, thinking.enabled, thinking.effort, written=False)
    if not thinking.enabled:
        return ThinkingPlan(form, None, None, written=False)
    return ThinkingPlan(
        replace(form, reasoning=form.reasoning or Reasoning()), True, thinking.effort, written=True
    )


def budget(thinking: Thinking, limit: int) -> int:
    """Return the maximum tokens of reasoning, out of ``limit`` tokens of output.

    At least a quarter of the limit is kept for the answer, and 256 tokens
    where that is no more than half of it.
    """
    answer = max(ceil(limit / 4), min(_ANSWER_TOKENS, limit // 2))
    most = max(limit - answer, 0)
    if thinking.budget is not None:
        return min(thinking.budget, most)
    share = SHARES.get(thinking.effort or thinking.usual_effort or "")
    return min(int(limit * share), most) if share else most
