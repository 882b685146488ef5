"""How the answer is generated: sampling, output limits and stop conditions, thinking, and the
format of the answer.

Thinking is one setting, out of the five places where it can be asked for:
``chat_template_kwargs`` (``enable_thinking``, ``thinking``, ``reasoning_effort``),
``reasoning_effort``, ``thinking_token_budget``, ``include_reasoning`` and, where the door knows
it, the ``reasoning`` object. Two that contradict each other are refused; which of them was
meant is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from causerie.errors import InvalidRequest
from causerie.protocol.body import (
    ObjectReader,
    integer,
    missing,
    number,
    read_parameter,
    shown,
    unsupported,
    wrong_type,
    wrong_value,
)
from causerie.protocol.body_types import MAX_INT32, MAX_OPTIONS, StructuredOutputs
from causerie.protocol.parameters import (
    EFFORTS,
    MAX_STOP_IDS,
    MAX_STOP_LENGTH,
    MAX_STOPS,
    SAMPLING,
    USUAL_EFFORT,
    ParsingRules,
    SamplingParams,
    ThinkingParameters,
)
from causerie.protocol.request import (
    Grammar,
    JsonObject,
    JsonSchema,
    OutputFormat,
    Regex,
    Thinking,
    ToolMode,
)

# Readers of sampling parameters, output limits and stop conditions.

_LIMITS = ("max_tokens", "max_completion_tokens")
_MAX_BIASES = 65_536
_SAMPLING_FIELDS = frozenset(SamplingParams.__struct_fields__)
_NUMBERS = tuple(each.name for each in SAMPLING if each.number is not None)
_DEFAULT_SAMPLING = SamplingParams()
_TOKEN_ID = re.compile(r"[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Length:
    """Bounds of the answer in tokens."""

    most: int | None
    least: int


def read_sampling(body: ObjectReader) -> SamplingParams:
    """The settings by which tokens are drawn, each in its range."""
    if _SAMPLING_FIELDS.isdisjoint(body.values):
        return _DEFAULT_SAMPLING
    values = {name: read_parameter(body, name) for name in _NUMBERS if name in body.values}
    return SamplingParams(**values, logit_bias=_logit_bias(body))


def _logit_bias(body: ObjectReader) -> Mapping[int, float]:
    fields = body.child("logit_bias")
    if fields is None:
        return {}
    if len(fields.values) > _MAX_BIASES:
        raise wrong_value("logit_bias", f"holds more than {_MAX_BIASES} tokens.")
    biases = {}
    for name, value in fields.values.items():
        param = fields.param(name)
        if not _TOKEN_ID.fullmatch(name) or int(name) > MAX_INT32:
            raise wrong_value("logit_bias", f"has the key {shown(name)}; keys are token ids.")
        biases[int(name)] = number(value, param, -100, 100)
    return biases


def without_unlimited(body: ObjectReader) -> tuple[ObjectReader, Sequence[str]]:
    """Return the body without output limits of -1, which mean none, and the report of them."""
    names = [name for name in _LIMITS if body.get(name) == -1]
    if not names:
        return body, ()
    values = {name: value for name, value in body.values.items() if name not in names}
    return ObjectReader(values, body.path), tuple(f"{name} -1 dropped" for name in names)


def read_length(body: ObjectReader) -> Length:
    """``max_completion_tokens`` or its older name, and ``min_tokens``."""
    older, newer = (_output_limit(body, name) for name in _LIMITS)
    if newer is not None and older is not None and newer != older:
        raise InvalidRequest(
            f"`max_tokens` is {older} and `max_completion_tokens` is {newer}; they are two names "
            "of one limit, so send one of them.",
            param="max_tokens",
        )
    most = older if newer is None else newer
    least = read_parameter(body, "min_tokens") or 0
    if most is not None and least > most:
        raise wrong_value("min_tokens", f"is {least}, more than the output limit of {most}.")
    return Length(most, least)


def _output_limit(body: ObjectReader, name: str) -> int | None:
    limit: int | None = read_parameter(body, name)
    if limit == 0:
        raise wrong_value(name, "is 0; it must be at least 1, or -1 for no limit.")
    return limit


def read_stop(body: ObjectReader) -> tuple[str, ...]:
    """Up to 16 strings that end the answer."""
    value = body.get("stop")
    if value is None:
        return ()
    if isinstance(value, str):
        return (_stop(value, "stop"),)
    if not isinstance(value, list):
        raise wrong_type("stop", "a string or an array of strings", value)
    if len(value) > MAX_STOPS:
        raise wrong_value("stop", f"holds {len(value)} strings; at most {MAX_STOPS} are allowed.")
    return tuple(_stop(one, f"stop[{index}]") for index, one in enumerate(value))


def _stop(value: object, param: str) -> str:
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    if not value:
        raise wrong_value(param, "must not be empty.")
    if len(value) > MAX_STOP_LENGTH:
        raise wrong_value(param, f"must be at most {MAX_STOP_LENGTH} characters long.")
    return value


def read_stop_token_ids(body: ObjectReader) -> tuple[int, ...]:
    """Ids of tokens that end the answer."""
    values = body.array("stop_token_ids", most=MAX_STOP_IDS) or ()
    return tuple(
        integer(value, f"stop_token_ids[{index}]", 0, MAX_INT32)
        for index, value in enumerate(values)
    )


def read_top_logprobs(body: ObjectReader) -> int | None:
    """Return the number of alternatives that each token carries; ``None`` where none are asked."""
    wanted = read_parameter(body, "logprobs")
    top = read_parameter(body, "top_logprobs")
    if top is not None and not wanted:
        raise InvalidRequest(
            "`top_logprobs` needs `logprobs: true`; send both or neither.", param="top_logprobs"
        )
    return (top or 0) if wanted else None


# One setting for thinking, out of the five places where it can be asked for.

_THINKING_FIELDS = frozenset(ThinkingParameters.__struct_fields__)
_DEFAULT_THINKING = Thinking()
_MAX_WORD = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Said(Generic[T]):
    value: T
    param: str


def read_thinking(body: ObjectReader, rules: ParsingRules) -> Thinking:
    """The setting that all the fields together describe."""
    if _THINKING_FIELDS.isdisjoint(body.values):
        return _DEFAULT_THINKING
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
        usual_effort=USUAL_EFFORT if usual else None,
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
    # `thinking` is a switch for some templates; another type of value means something else.
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
    # No tokens for thinking means off; some tokens only bound it.
    return _Said(False, budget.param) if budget is not None and not budget.value else None


def _check_budget(enabled: _Said[bool] | None, budget: _Said[int] | None) -> None:
    if enabled is not None and not enabled.value and budget is not None and budget.value:
        raise _contradiction(enabled.param, budget.param)


def _agreed(said: list[_Said[T] | None]) -> _Said[T] | None:
    given = [one for one in said if one is not None]
    for other in given[1:]:
        if other.value != given[0].value:
            raise _contradiction(given[0].param, other.param)
    return given[0] if given else None


def _contradiction(first: str, second: str) -> InvalidRequest:
    return InvalidRequest(
        f"`{second}` contradicts `{first}`; send one of them, or the same in both.", param=second
    )


# The shape that the answer must have: ``response_format`` and ``structured_outputs``.

_SCHEMA_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_SCHEMA_OBJECT = "an object, the JSON Schema itself"
_STRUCTURED_KINDS = StructuredOutputs.__struct_fields__


def read_output(body: ObjectReader) -> OutputFormat | None:
    """The one shape that was asked for, or ``None`` for free text."""
    output = _response_format(body)
    structured = body.child("structured_outputs")
    if structured is None:
        return output
    if output is not None:
        raise InvalidRequest(
            "`response_format` and `structured_outputs` both give the answer a shape; "
            "send one of them.",
            param="structured_outputs",
        )
    return _structured(structured)


def _response_format(body: ObjectReader) -> OutputFormat | None:
    fields = body.child("response_format", 'an object like {"type": "json_object"}')
    if fields is None:
        return None
    sort = fields.word("type", ("text", "json_object", "json_schema"))
    if sort is None:
        raise missing(fields.param("type"), "text, json_object or json_schema")
    if sort == "text":
        return None
    if sort == "json_object":
        return _json_object(fields)
    schema = fields.required_object("json_schema", "an object with `name` and `schema`")
    schema.boolean("strict")
    schema.string("description")
    name = schema.string("name")
    if name is not None and not _SCHEMA_NAME.fullmatch(name):
        raise wrong_value(
            schema.param("name"), "must be 1 to 64 letters, digits, underscores or hyphens."
        )
    return JsonSchema(schema.required_object("schema", _SCHEMA_OBJECT).values, name or "response")


def _json_object(fields: ObjectReader) -> OutputFormat:
    if not fields.has("schema"):
        return JsonObject()
    schema = fields.required_object("schema").values
    return JsonSchema({"type": "object", **schema}, param=fields.param("schema"))


def _structured(fields: ObjectReader) -> OutputFormat:
    given = [name for name in _STRUCTURED_KINDS if fields.has(name)]
    if not given:
        raise InvalidRequest(
            f"`{fields.path}` is empty; it must hold one of {', '.join(_STRUCTURED_KINDS)}.",
            code="missing_parameter",
            param=fields.path,
        )
    if len(given) > 1:
        raise wrong_value(fields.path, f"holds {' and '.join(given)}; send one of them.")
    match given[0]:
        case "json":
            return _structured_schema(fields)
        case "regex":
            return Regex(fields.required_string("regex"))
        case "choice":
            return ToolMode(_choices(fields))
        case _:
            return Grammar(fields.required_string("grammar"))


def _structured_schema(fields: ObjectReader) -> JsonSchema:
    value = fields.get("json")
    if not isinstance(value, dict | bool):
        raise wrong_type(fields.param("json"), "a JSON Schema (an object)", value)
    return JsonSchema(value, param=fields.param("json"))


def _choices(fields: ObjectReader) -> tuple[str, ...]:
    options = []
    for index, option in enumerate(fields.array("choice", most=MAX_OPTIONS) or ()):
        param = f"{fields.param('choice')}[{index}]"
        if not isinstance(option, str):
            raise wrong_type(param, "a string", option)
        if not option:
            raise wrong_value(param, "must not be empty.")
        options.append(option)
    if not options:
        raise wrong_value(fields.param("choice"), "is empty; send at least one option.")
    return tuple(dict.fromkeys(options))
