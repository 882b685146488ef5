"""The form that an answer is to have, checked to be enforceable."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

import msgspec

from causerie.chat.encoding import spells
from causerie.chat.lark import embed
from causerie.chat.schema import choice, json_object, prepare, regex
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
    """The answer as a Lark ``expression`` and the ``rules`` it refers to.

    ``spell`` says that it may hold the text of a control token.
    """

    expression: str
    rules: str = ""
    spell: bool = False


async def answer_plan(
    output: OutputFormat,
    control_tokens: Collection[str],
    schema_cache: SchemaCache,
    *,
    any_space: bool,
) -> AnswerPlan:
    """Raise ``InvalidRequest`` (``unsupported_schema``) if it could not be enforced.

    With ``any_space`` JSON may have white space as other servers write it.
    """
    match output:
        case JsonObject():
            return AnswerPlan("answer", f"answer: %json {json_object(any_space=any_space)}")
        case JsonSchema():
            text = msgspec.json.encode(output.schema).decode()
            make = partial(_schema, output, text, control_tokens, any_space)
            return await schema_cache.of(text, (output.param, any_space), make)
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
    output: JsonSchema, text: str, control_tokens: Collection[str], any_space: bool
) -> AnswerPlan:
    rule = prepare(output.schema, param=output.param, any_space=any_space)
    return AnswerPlan("answer", f"answer: %json {rule}", spell=spells(text, control_tokens))


def _regex(pattern: str) -> AnswerPlan:
    rule = regex(pattern, param="structured_outputs.regex")
    return AnswerPlan(rule, spell=True)  # there is no telling what it spells


def _choice(options: tuple[str, ...], text: str, control_tokens: Collection[str]) -> AnswerPlan:
    rule = choice(options, param="structured_outputs.choice")
    return AnswerPlan("OPTION", f"OPTION: {rule}", spell=spells(text, control_tokens))


def _grammar(text: str) -> AnswerPlan:
    part = embed(text, "g")
    return AnswerPlan(part.start, part.rules, spell=True)
