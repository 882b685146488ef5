"""One setting for thinking, out of the five places where it can be asked for.

``chat_template_kwargs`` (``enable_thinking``, ``thinking``,
``reasoning_effort``), ``reasoning_effort``, ``thinking_token_budget``,
``include_reasoning`` and, where the door knows it, the ``reasoning`` object.
Two that contradict each other are refused; which of them was meant is not
guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from causerie.errors import InvalidRequest
from causerie.protocol.body_types import MAX_INT32
from causerie.protocol.effort import EFFORTS, USUAL
from causerie.protocol.parameters import ThinkingParameters
from causerie.protocol.parsing.fields import ObjectReader, unsupported
from causerie.protocol.parsing.rules import ParsingRules
from causerie.protocol.request import Thinking

_FIELDS = frozenset(ThinkingParameters.__struct_fields__)
_DEFAULT = Thinking()
_MAX_WORD = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Said(Generic[T]):
    """The value of one field, and the field's name."""

    value: T
    param: str


def read_thinking(body: ObjectReader, rules: ParsingRules) -> Thinking:
    """The setting that all the fields together describe."""
    if _FIELDS.isdisjoint(body.values):
        return _DEFAULT
    reasoning = _reasoning(body, rules)
    kwargs = body.child("chat_template_kwargs") or ObjectReader({})
    switches = [
        _switch(kwargs, "enable_thinking"),
        _template_switch(kwargs),
        _switch(reasoning, "enabled"),
    ]
    efforts = [
        _effort(body, "reasoning_effort"),
        _template_effort(kwargs),
        _effort(reasoning, "effort"),
    ]
    budgets = [_budget(body, "thinking_token_budget"), _budget(reasoning, "max_tokens")]
    shows = [_switch(body, "include_reasoning"), _hidden(reasoning)]
    effort, budget, shown = _agreed(efforts), _agreed(budgets), _agreed(shows)
    enabled = _agreed([*switches, _implied(effort), _implied_by_budget(budget)])
    if enabled is None and reasoning.get("max_tokens"):
        enabled = _Said(True, reasoning.param("max_tokens"))
    _check_budget(enabled, budget)
    on = None if enabled is None else enabled.value
    usual = on is True and reasoning.boolean("enabled") and effort is None and budget is None
    return Thinking(
        enabled=on,
        effort=None if effort is None or on is False else effort.value,
        budget=None if budget is None or on is False else budget.value,
        visible=shown is None or shown.value,
        usual_effort=USUAL if usual else None,
    )


def _reasoning(body: ObjectReader, rules: ParsingRules) -> ObjectReader:
    if body.has("reasoning") and not rules.reasoning_object:
        raise unsupported(
            "reasoning",
            "Use `reasoning_effort`, `thinking_token_budget` or "
            "`chat_template_kwargs.enable_thinking`.",
        )
    fields = body.child("reasoning")
    if fields is None:
        return ObjectReader({})
    if fields.has("effort") and fields.has("max_tokens"):
        raise InvalidRequest(
            "`reasoning` takes `effort` or `max_tokens`, not both.", param="reasoning"
        )
    fields.string("summary", most=_MAX_WORD)  # a hint: how a provider sums its reasoning up
    return fields


def _switch(fields: ObjectReader, name: str) -> _Said[bool] | None:
    value = fields.boolean(name)
    return None if value is None else _Said(value, fields.param(name))


def _template_switch(kwargs: ObjectReader) -> _Said[bool] | None:
    """``thinking`` is a switch for some templates; another type of value means something else."""
    value = kwargs.get("thinking")
    return _Said(value, kwargs.param("thinking")) if isinstance(value, bool) else None


def _effort(fields: ObjectReader, name: str) -> _Said[str] | None:
    value = fields.word(name, EFFORTS)
    return None if value is None else _Said(value, fields.param(name))


def _template_effort(kwargs: ObjectReader) -> _Said[str] | None:
    value = kwargs.get("reasoning_effort")
    if isinstance(value, str) and value in EFFORTS:
        return _Said(value, kwargs.param("reasoning_effort"))
    return None


def _budget(fields: ObjectReader, name: str) -> _Said[int] | None:
    value = fields.integer(name, 0, MAX_INT32)
    return None if value is None else _Said(value, fields.param(name))


def _hidden(reasoning: ObjectReader) -> _Said[bool] | None:
    exclude = _switch(reasoning, "exclude")
    return None if exclude is None else _Said(not exclude.value, exclude.param)


def _implied(effort: _Said[str] | None) -> _Said[bool] | None:
    return None if effort is None else _Said(effort.value != "none", effort.param)


def _implied_by_budget(budget: _Said[int] | None) -> _Said[bool] | None:
    """No tokens for thinking means off; some tokens only bound it."""
    return _Said(False, budget.param) if budget is not None and not budget.value else None


def _check_budget(enabled: _Said[bool] | None, budget: _Said[int] | None) -> None:
    if enabled is not None and not enabled.value and budget is not None and budget.value:
        raise _contradiction(enabled.param, budget.param)


def _agreed(said: list[_Said[T] | None]) -> _Said[T] | None:
    """Return the value on which all given fields agree."""
    given = [one for one in said if one is not None]
    for other in given[1:]:
        if other.value != given[0].value:
            raise _contradiction(given[0].param, other.param)
    return given[0] if given else None


def _contradiction(first: str, second: str) -> InvalidRequest:
    return InvalidRequest(
        f"`{second}` contradicts `{first}`; send one of them, or the same in both.", param=second
    )
