"""Chooses sampling and thinking of a request: its own values, else those of its model."""

from __future__ import annotations

from math import ceil
from typing import TypeVar

from msgspec import Struct, structs

from causerie.chat.formats.format import ModelFormat
from causerie.engines.base import RecommendedSampling
from causerie.errors import InvalidRequest
from causerie.protocol import parameters
from causerie.protocol.request import Thinking

S = TypeVar("S", bound=parameters.SamplingDefaults)


def request_sampling(
    wanted: parameters.SamplingParams,
    configured: parameters.ModelSampling,
    recommended: RecommendedSampling | None,
    *,
    thinks: bool,
) -> parameters.SamplingParams:
    """Return the sampling of a request, with what it leaves open from the model or the defaults.

    A recommendation is about random sampling. A request whose temperature is 0 gets the most likely
    token, and no recommended penalty makes another one of it.
    """
    if configured == "neutral":
        return _fill_unset_values(wanted, parameters.NEUTRAL_SAMPLING)
    chosen = _fill_unset_values(wanted, configured)
    if chosen.temperature == 0:
        return _fill_unset_values(chosen, parameters.NEUTRAL_SAMPLING)
    usual = parameters.USUAL_SAMPLING
    if recommended is not None:
        usual = recommended.usual if thinks else recommended.without_thinking
    return _fill_unset_values(chosen, _fill_unset_values(usual, parameters.NEUTRAL_SAMPLING))


def default_sampling(
    configured: parameters.ModelSampling, recommended: RecommendedSampling | None
) -> parameters.SamplingDefaults:
    """Return the sampling of a request that says nothing about it, nor about thinking."""
    resolved = request_sampling(parameters.SamplingParams(), configured, recommended, thinks=True)
    names = (each.name for each in parameters.MODEL_SAMPLING)
    return parameters.SamplingDefaults(**{name: getattr(resolved, name) for name in names})


def _fill_unset_values(sampling: S, defaults: parameters.SamplingDefaults) -> S:
    names = (each.name for each in parameters.MODEL_SAMPLING)
    missing = [name for name in names if getattr(sampling, name) is None]
    return structs.replace(sampling, **{name: getattr(defaults, name) for name in missing})


class ThinkingPlan(Struct, frozen=True):
    on: bool | None  # the template's argument; ``None``: no argument
    effort: str | None
    written: bool  # the service opens the reasoning itself, because the model would not


def plan(form: ModelFormat, thinking: Thinking) -> ThinkingPlan:
    """Return whether and how a request thinks; raise ``InvalidRequest`` if mandatory but off."""
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
        return ThinkingPlan(thinking.enabled, thinking.effort, written=False)
    if not thinking.enabled:
        return ThinkingPlan(None, None, written=False)
    return ThinkingPlan(True, thinking.effort, written=True)


def budget(thinking: Thinking, limit: int) -> int:
    """Return the maximum tokens of reasoning, out of ``limit`` tokens of output.

    At least a quarter of the limit is kept for the answer, and 256 tokens
    where that is no more than half of it.
    """
    answer = max(ceil(limit / 4), min(256, limit // 2))
    most = max(limit - answer, 0)
    if thinking.budget is not None:
        return min(thinking.budget, most)
    share = parameters.EFFORT_SHARES.get(thinking.effort or thinking.usual_effort or "")
    return min(int(limit * share), most) if share else most
