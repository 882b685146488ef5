"""Readers of sampling parameters, output limits and stop conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from causerie.errors import InvalidRequest
from causerie.protocol.body_types import MAX_INT32
from causerie.protocol.parameters import (
    MAX_STOP_IDS,
    MAX_STOP_LENGTH,
    MAX_STOPS,
    SAMPLING,
    SamplingParams,
)
from causerie.protocol.parsing.declared import read
from causerie.protocol.parsing.fields import (
    ObjectReader,
    integer,
    number,
    shown,
    wrong_type,
    wrong_value,
)

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
    values = {name: read(body, name) for name in _NUMBERS if name in body.values}
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
    least = read(body, "min_tokens") or 0
    if most is not None and least > most:
        raise wrong_value("min_tokens", f"is {least}, more than the output limit of {most}.")
    return Length(most, least)


def _output_limit(body: ObjectReader, name: str) -> int | None:
    limit: int | None = read(body, name)
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
    wanted = read(body, "logprobs")
    top = read(body, "top_logprobs")
    if top is not None and not wanted:
        raise InvalidRequest(
            "`top_logprobs` needs `logprobs: true`; send both or neither.", param="top_logprobs"
        )
    return (top or 0) if wanted else None
