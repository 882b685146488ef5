"""Reads from a request how its reply is generated: sampling, limits, thinking, output format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from causerie.errors import InvalidRequest
from causerie.protocol import parameters
from causerie.protocol import request as requests
from causerie.protocol.body import (
    ObjectReader,
    integer,
    missing,
    number,
    read_parameter,
    shown,
    text,
    unsupported,
    wrong_type,
    wrong_value,
)
from causerie.protocol.body_types import MAX_INT32, MAX_OPTIONS, StructuredOutputs

_LIMITS = ("max_tokens", "max_completion_tokens")
_MAX_BIASES = 65_536
_SAMPLING_FIELDS = frozenset(parameters.SamplingParams.__struct_fields__)
_NUMBERS = tuple(each.name for each in parameters.SAMPLING if each.number is not None)
_TOKEN_ID = re.compile(r"[0-9]{1,10}", re.ASCII)


def read_sampling(body: ObjectReader) -> parameters.SamplingParams:
    if _SAMPLING_FIELDS.isdisjoint(body.values):
        return parameters.SamplingParams()
    values = {name: read_parameter(body, name) for name in _NUMBERS if name in body.values}
    fields, biases = body.child("logit_bias") or ObjectReader({}), dict[int, float]()
    if len(fields.values) > _MAX_BIASES:
        raise wrong_value("logit_bias", f"holds more than {_MAX_BIASES} tokens.")
    for name, value in fields.values.items():
        param = fields.param(name)
        if not _TOKEN_ID.fullmatch(name) or int(name) > MAX_INT32:
            raise wrong_value("logit_bias", f"has the key {shown(name)}; keys are token ids.")
        biases[int(name)] = number(value, param, -100, 100)
    return parameters.SamplingParams(**values, logit_bias=biases)


def without_unlimited(body: ObjectReader) -> tuple[ObjectReader, Sequence[str]]:
    """Return the body without output limits of -1 (no limit), and the report of dropped ones."""
    names = [name for name in _LIMITS if body.get(name) == -1]
    if not names:
        return body, ()
    values = {name: value for name, value in body.values.items() if name not in names}
    return ObjectReader(values, body.path), tuple(f"{name} -1 dropped" for name in names)


def read_length(body: ObjectReader) -> tuple[int | None, int]:
    older, newer = (read_parameter(body, name) for name in _LIMITS)
    for name, limit in zip(_LIMITS, (older, newer), strict=True):
        if limit == 0:
            raise wrong_value(name, "is 0; it must be at least 1, or -1 for no limit.")
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
    return most, least


def read_stop(body: ObjectReader) -> tuple[str, ...]:
    value = body.get("stop")
    if value is None:
        return ()
    if isinstance(value, str):
        return (text(value, "stop", parameters.MAX_STOP_LENGTH),)
    if not isinstance(value, list):
        raise wrong_type("stop", "a string or an array of strings", value)
    if len(value) > parameters.MAX_STOPS:
        raise wrong_value(
            "stop", f"holds {len(value)} strings; at most {parameters.MAX_STOPS} are allowed."
        )
    return tuple(
        text(one, f"stop[{index}]", parameters.MAX_STOP_LENGTH) for index, one in enumerate(value)
    )


def read_stop_token_ids(body: ObjectReader) -> tuple[int, ...]:
    values = body.array("stop_token_ids", most=parameters.MAX_STOP_IDS) or ()
    return tuple(
        integer(value, f"stop_token_ids[{index}]", 0, MAX_INT32)
        for index, value in enumerate(values)
    )


def read_top_logprobs(body: ObjectReader) -> int | None:
    """Return the number of alternatives per token; ``None`` if no log-probabilities are wanted."""
    wanted = read_parameter(body, "logprobs")
    top = read_parameter(body, "top_logprobs")
    if top is not None and not wanted:
        raise InvalidRequest(
            "`top_logprobs` needs `logprobs: true`; send both or neither.", param="top_logprobs"
        )
    return (top or 0) if wanted else None


_THINKING_FIELDS = frozenset(parameters.ThinkingParameters.__struct_fields__)
T = TypeVar("T")
_Setting = tuple[T | None, str]  # a value and the name of its field


def read_thinking(body: ObjectReader, rules: parameters.ParsingRules) -> requests.Thinking:
    """Return the thinking that five fields ask for; refuse fields that contradict each other.

    They are ``chat_template_kwargs``, ``reasoning_effort``, ``thinking_token_budget``,
    ``include_reasoning``, and ``reasoning`` if the door knows it.
    """
    if _THINKING_FIELDS.isdisjoint(body.values):
        return requests.Thinking()
    reasoning = _get_reasoning_fields(body, rules)
    kwargs = body.child("chat_template_kwargs") or ObjectReader({})
    # Values of other types mean something else to some templates.
    switch, word = kwargs.get("thinking"), kwargs.get("reasoning_effort")
    switches: list[_Setting[bool]] = [
        (kwargs.boolean("enable_thinking"), kwargs.param("enable_thinking")),
        (switch if isinstance(switch, bool) else None, kwargs.param("thinking")),
        (reasoning.boolean("enabled"), reasoning.param("enabled")),
    ]
    template_effort = word if isinstance(word, str) and word in parameters.EFFORTS else None
    effort, effort_param = _pick_setting_unless_contradictory(
        (body.word("reasoning_effort", parameters.EFFORTS), "reasoning_effort"),
        (template_effort, kwargs.param("reasoning_effort")),
        (reasoning.word("effort", parameters.EFFORTS), reasoning.param("effort")),
    )
    budget, budget_param = _pick_setting_unless_contradictory(
        (body.integer("thinking_token_budget", 0, MAX_INT32), "thinking_token_budget"),
        (reasoning.integer("max_tokens", 0, MAX_INT32), reasoning.param("max_tokens")),
    )
    hidden = reasoning.boolean("exclude")
    visible, _ = _pick_setting_unless_contradictory(
        (body.boolean("include_reasoning"), "include_reasoning"),
        (None if hidden is None else not hidden, reasoning.param("exclude")),
    )
    enabled, enabled_param = _pick_setting_unless_contradictory(
        *switches,
        (None if effort is None else effort != "none", effort_param),
        (False if budget == 0 else None, budget_param),  # some tokens only bound it
    )
    if enabled is None and reasoning.get("max_tokens"):
        enabled = True
    if enabled is False and budget:
        raise _build_contradiction(enabled_param, budget_param)
    usual = enabled and reasoning.boolean("enabled") and effort is None and budget is None
    return requests.Thinking(
        enabled=enabled,
        effort=None if enabled is False else effort,
        budget=None if enabled is False else budget,
        visible=visible is not False,
        usual_effort=parameters.USUAL_EFFORT if usual else None,
    )


def _get_reasoning_fields(body: ObjectReader, rules: parameters.ParsingRules) -> ObjectReader:
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
    fields.string("summary", most=64)  # a hint: how a provider sums its reasoning up
    return fields


def _pick_setting_unless_contradictory(*settings: _Setting[T]) -> _Setting[T]:
    given = [setting for setting in settings if setting[0] is not None]
    for value, param in given[1:]:
        if value != given[0][0]:
            raise _build_contradiction(given[0][1], param)
    return given[0] if given else (None, "")


def _build_contradiction(first: str, second: str) -> InvalidRequest:
    return InvalidRequest(
        f"`{second}` contradicts `{first}`; send one of them, or the same in both.", param=second
    )


_SCHEMA_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_STRUCTURED_KINDS = StructuredOutputs.__struct_fields__


def read_output(body: ObjectReader) -> requests.OutputFormat | None:
    output, structured = _read_response_format(body), body.child("structured_outputs")
    if output is not None and structured is not None:
        raise InvalidRequest(
            "`response_format` and `structured_outputs` both give the answer a shape; "
            "send one of them.",
            param="structured_outputs",
        )
    return output if structured is None else _read_structured_output(structured)


def _read_response_format(body: ObjectReader) -> requests.OutputFormat | None:
    fields = body.child("response_format", 'an object like {"type": "json_object"}')
    if fields is None:
        return None
    sort = fields.word("type", ("text", "json_object", "json_schema"))
    if sort is None:
        raise missing(fields.param("type"), "text, json_object or json_schema")
    if sort == "text":
        return None
    if sort == "json_object":
        if not fields.has("schema"):
            return requests.JsonObject()
        own = fields.required_object("schema").values
        return requests.JsonSchema({"type": "object", **own}, param=fields.param("schema"))
    schema = fields.required_object("json_schema", "an object with `name` and `schema`")
    schema.boolean("strict")
    schema.string("description")
    name = schema.string("name")
    if name is not None and not _SCHEMA_NAME.fullmatch(name):
        raise wrong_value(
            schema.param("name"), "must be 1 to 64 letters, digits, underscores or hyphens."
        )
    wanted = schema.required_object("schema", "an object, the JSON Schema itself")
    return requests.JsonSchema(wanted.values, name or "response")


def _read_structured_output(fields: ObjectReader) -> requests.OutputFormat:
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
            value, param = fields.get("json"), fields.param("json")
            if not isinstance(value, dict | bool):
                raise wrong_type(param, "a JSON Schema (an object)", value)
            return requests.JsonSchema(value, param=param)
        case "regex":
            return requests.Regex(fields.required_string("regex"))
        case "choice":
            options = fields.strings("choice", most=MAX_OPTIONS)
            if not options:
                raise wrong_value(fields.param("choice"), "is empty; send at least one option.")
            return requests.TextChoice(tuple(dict.fromkeys(options)))
        case _:
            return requests.Grammar(fields.required_string("grammar"))
