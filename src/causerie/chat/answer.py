"""The form that an answer is to have, checked to be enforceable."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial

import msgspec

from causerie.chat.call_syntax.choices import anchored
from causerie.chat.call_syntax.pretty import pretty_grammar
from causerie.chat.encoding import spells
from causerie.chat.grammar_text import GrammarText
from causerie.chat.lark import embed
from causerie.chat.schema import (
    WhiteSpace,
    check_size,
    choice,
    json_object,
    prepare,
    regex,
    rounded,
)
from causerie.chat.schema.finite import Endless, without_endless
from causerie.chat.schema_cache import SchemaCache
from causerie.chat.validation import CheckedSchema
from causerie.errors import InvalidRequest
from causerie.protocol.request import Grammar, JsonObject, JsonSchema, OutputFormat, Regex, ToolMode

_MOST_RULES = 100_000  # characters of rules: a longer grammar takes long to compile


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
    watched: bool = False
    """Whether its schema has rules that no grammar has."""
    checked: CheckedSchema | None = field(default=None, compare=False)
    """Its schema, to check the finished answer by."""


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
            return _any_object(white_space)
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


@cache
def _any_object(white_space: WhiteSpace) -> AnswerPlan:
    return _json({"type": "object"}, "response_format", white_space, json_object(white_space))


def _schema(
    output: JsonSchema, text: str, control_tokens: Collection[str], white_space: WhiteSpace
) -> AnswerPlan:
    check_size(text, param=output.param)
    prepared = prepare(output.schema, param=output.param, white_space=white_space)
    text_of_engine = None if prepared.rounded else prepared.text
    plan = _json(output.schema, output.param, white_space, text_of_engine)
    spell = spells(text, control_tokens)
    return replace(
        plan,
        spell=spell,
        ignored=prepared.ignored,
        watched=prepared.watched,
        checked=CheckedSchema(prepared.rules),
    )


def _json(
    schema: Mapping[str, object] | bool, param: str, white_space: WhiteSpace, text: str | None
) -> AnswerPlan:
    """Return the grammar of a document; ``text`` is what the engine's own grammar of JSON takes.

    A schema that only this grammar can say is written in one line. ``text`` is ``None`` where the
    engine would round a number.
    """
    if white_space is WhiteSpace.PRETTY and isinstance(schema, Mapping):
        grammar = GrammarText({}, param=param, prefix="answer_", most=_MOST_RULES)
        try:
            written = pretty_grammar(without_endless(dict(anchored(schema))), grammar)
        except (InvalidRequest, Endless):
            pass
        else:
            return AnswerPlan(written, grammar.rules)
    if text is None:
        raise rounded(param)
    return AnswerPlan("answer", f"answer: %json {text}")


def _regex(pattern: str) -> AnswerPlan:
    rule = regex(pattern, param="structured_outputs.regex")
    return AnswerPlan(rule, spell=True)  # there is no telling what it spells


def _choice(options: tuple[str, ...], text: str, control_tokens: Collection[str]) -> AnswerPlan:
    rule = choice(options, param="structured_outputs.choice")
    return AnswerPlan("OPTION", f"OPTION: {rule}", spell=spells(text, control_tokens))


def _grammar(text: str) -> AnswerPlan:
    part = embed(text, "g")
    return AnswerPlan(part.start, part.rules, spell=True)
