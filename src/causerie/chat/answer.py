"""The form that an answer is to have, checked to be enforceable."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

import msgspec

from causerie.chat.encoding import spells
from causerie.chat.lark import embed
from causerie.chat.schema import WhiteSpace, choice, json_object, prepare, regex
from causerie.chat.schema_cache import SchemaCache
from causerie.protocol.request import (
    Grammar,
    JsonObject,
    JsonSchema,
    OutputFormat,
    Regex,
    ToolMode,
)


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """The answer as a part of a Lark grammar."""

    expression: str
    rules: str = ""
    """Rules that the expression refers to."""
    spell: bool = False
    """Whether the answer may hold the text of a control token."""
    ignored: tuple[str, ...] = ()
    """Annotations of its schema that nobody knows, as a response header names them."""


async def answer_plan(
    output: OutputFormat,
    control_tokens: Collection[str],
    schema_cache: SchemaCache,
    *,
    white_space: WhiteSpace,
) -> AnswerPlan:
    """Raise ``InvalidRequest`` (``unsupported_schema``) if it could not be enforced."""
    match output:
        case JsonObject():
            return AnswerPlan("answer", f"answer: %json {json_object(white_space)}")
        case JsonSchema():
            text = msgspec.json.encode(output.schema).decode()
            make = partial(_schema, output, text, control_tokens, white_space)
            return await schema_cache.of(text, (output.param, white_space), make)
        case Regex(pattern):
            return await schema_cache.of(pattern, Regex, partial(_regex, pattern))
        case ToolMode(options):
            text = "\n".join(options)
            return await schema_cache.of(
                text, options, partial(_choice, options, text, control_tokens)
            )
        case Grammar(text):
            return await schema_cache.of(text, Grammar, partial(_grammar, text))


def _schema(
    output: JsonSchema, text: str, control_tokens: Collection[str], white_space: WhiteSpace
) -> AnswerPlan:
    prepared = prepare(output.schema, param=output.param, white_space=white_space)
    return AnswerPlan(
        "answer",
        f"answer: %json {prepared.text}",
        spell=spells(text, control_tokens),
        ignored=prepared.ignored,
    )


def _regex(pattern: str) -> AnswerPlan:
    rule = regex(pattern, param="structured_outputs.regex")
    return AnswerPlan(rule, spell=True)  # there is no telling what it spells


def _choice(options: tuple[str, ...], text: str, control_tokens: Collection[str]) -> AnswerPlan:
    rule = choice(options, param="structured_outputs.choice")
    return AnswerPlan(rule, spell=spells(text, control_tokens))


def _grammar(text: str) -> AnswerPlan:
    part = embed(text, "g")
    return AnswerPlan(part.start, part.rules, spell=True)
