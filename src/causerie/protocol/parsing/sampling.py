"""How tokens are drawn and where the answer stops."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from causerie.errors import InvalidRequest
from causerie.protocol.parsing.fields import (
    ObjectReader,
    integer,
    number,
    shown,
    wrong_type,
    wrong_value,
)
from causerie.protocol.request import SamplingParams

_INT64 = 2**63
_MAX_TOKENS = 2**31 - 1
_MAX_STOPS = 16
_MAX_STOP_LENGTH = 1024
_MAX_STOP_IDS = 128
_MAX_BIASES = 65_536
_SAMPLING_FIELDS = frozenset(SamplingParams.__struct_fields__)
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
    top_k = body.integer("top_k", -1, _MAX_TOKENS)
    return SamplingParams(
        temperature=body.number("temperature", 0, 2),
        top_p=body.number("top_p", 0, 1, above=True),
        top_k=None if top_k is None else max(top_k, 0),  # -1 and 0 both mean all tokens
        min_p=body.number("min_p", 0, 1),
        repetition_penalty=body.number("repetition_penalty", 0, 10, above=True),
        frequency_penalty=body.number("frequency_penalty", -2, 2),
        presence_penalty=body.number("presence_penalty", -2, 2),
        seed=body.integer("seed", -_INT64, _INT64 - 1),
        logit_bias=_logit_bias(body),
    )


def _logit_bias(body: ObjectReader) -> Mapping[int, float]:
    fields = body.child("logit_bias")
    if fields is None:
        return {}
    if len(fields.values) > _MAX_BIASES:
        raise wrong_value("logit_bias", f"holds more than {_MAX_BIASES} tokens.")
    biases = {}
    for name, value in fields.values.items():
        param = fields.param(name)
        if not _TOKEN_ID.fullmatch(name) or int(name) > _MAX_TOKENS:
            raise wrong_value("logit_bias", f"has the key {shown(name)}; keys are token ids.")
        biases[int(name)] = number(value, param, -100, 100)
    return biases


def read_length(body: ObjectReader) -> Length:
    """``max_completion_tokens`` or its older name, and ``min_tokens``."""
    newer = body.integer("max_completion_tokens", 1, _MAX_TOKENS)
    older = body.integer("max_tokens", 1, _MAX_TOKENS)
    if newer is not None and older is not None and newer != older:
        raise InvalidRequest(
            f"`max_tokens` is {older} and `max_completion_tokens` is {newer}; they are two names "
            "of one limit, so send one of them.",
            param="max_tokens",
        )
    most = older if newer is None else newer
    least = body.integer("min_tokens", 0, _MAX_TOKENS) or 0
    if most is not None and least > most:
        raise wrong_value("min_tokens", f"is {least}, more than the output limit of {most}.")
    return Length(most, least)


def read_stop(body: ObjectReader) -> tuple[str, ...]:
    """Up to 16 strings that end the answer."""
    value = body.get("stop")
    if value is None:
        return ()
    if isinstance(value, str):
        return (_stop(value, "stop"),)
    if not isinstance(value, list):
        raise wrong_type("stop", "a string or an array of strings", value)
    if len(value) > _MAX_STOPS:
        raise wrong_value("stop", f"holds {len(value)} strings; at most {_MAX_STOPS} are allowed.")
    return tuple(_stop(one, f"stop[{index}]") for index, one in enumerate(value))


def _stop(value: object, param: str) -> str:
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    if not value:
        raise wrong_value(param, "must not be empty.")
    if len(value) > _MAX_STOP_LENGTH:
        raise wrong_value(param, f"must be at most {_MAX_STOP_LENGTH} characters long.")
    return value


def read_stop_token_ids(body: ObjectReader) -> tuple[int, ...]:
    """Ids of tokens that end the answer."""
    values = body.array("stop_token_ids", most=_MAX_STOP_IDS) or ()
    return tuple(
        integer(value, f"stop_token_ids[{index}]", 0, _MAX_TOKENS)
        for index, value in enumerate(values)
    )


def read_top_logprobs(body: ObjectReader) -> int | None:
    """How many alternatives each token carries; ``None`` where none were asked for."""
    wanted = body.boolean("logprobs")
    top = body.integer("top_logprobs", 0, 20)
    if top is not None and not wanted:
        raise InvalidRequest(
            "`top_logprobs` needs `logprobs: true`; send both or neither.", param="top_logprobs"
        )
    return (top or 0) if wanted else None
