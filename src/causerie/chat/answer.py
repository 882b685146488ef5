"""Prepares a request's functions and form of answer for grammars, if they can be enforced."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar, cast

import msgspec
from msgspec import Struct

from causerie.chat.call_syntax.base import Schema
from causerie.chat.call_syntax.choices import anchored, closed_schema
from causerie.chat.call_syntax.json import MOST_RULES, pretty_grammar
from causerie.chat.encoding import spells
from causerie.chat.grammar_text import GrammarText
from causerie.chat.lark import EMBEDDED, Embedded, embed, embed_in_json
from causerie.chat.schema import WhiteSpace, check_size, choice, constraint, prepare, regex
from causerie.chat.schema.bounded_cache import BoundedCache
from causerie.chat.schema.compiled import HEADER, Work, WorkExceeded, follows, matcher_of
from causerie.chat.schema.keywords import SchemaRefused, ignored_sibling
from causerie.chat.schema.references import without_siblings
from causerie.chat.validation import AT_ONCE, CheckedSchema
from causerie.errors import InvalidRequest
from causerie.http.event_loop import offload
from causerie.protocol import request as requests

_MOST = 1_000_000  # characters of schemas; of grammars there are some five times as many
_LONG = 2_000  # characters of schemas; more take so long that they go to a thread
_SLOW = "patternProperties"  # whose patterns are compared with each other

_T = TypeVar("_T")


def unsupported_schema(refused: SchemaRefused) -> InvalidRequest:
    """Return the 400 for a schema, pattern or grammar that would not be enforced as written."""
    at = {} if refused.pointer is None else {"pointer": refused.pointer}
    return InvalidRequest(str(refused), code="unsupported_schema", param=refused.param, metadata=at)


class SchemaCache(BoundedCache[Hashable, object]):
    def __init__(self, most: int = _MOST) -> None:
        super().__init__(most)

    async def of(self, text: str, what: Hashable, make: Callable[[], _T]) -> _T:
        """Return the cached result of ``make()`` by ``text`` and ``what``; errors are not cached.

        Raises ``InvalidRequest`` (``unsupported_schema``) where ``make`` raises ``SchemaRefused``.
        """
        key = text, what
        if (found := self.get(key)) is not None:
            return cast(_T, found)
        slow = len(text) > _LONG or _SLOW in text
        try:
            made = await offload(make) if slow else make()
        except SchemaRefused as refused:
            raise unsupported_schema(refused) from None
        self.keep(key, made, len(text))
        return made


class Functions(Struct, frozen=True):
    tools: Mapping[str, Schema]  # closed schemas by name, as constraints and readers take them
    text: str = ""  # all schemas as they were sent, as JSON
    spell: bool = False  # whether a constraint of them may hold the text of a control token
    arguments: Mapping[str, CheckedSchema] = {}  # by name, to check finished calls by
    watched: bool = False  # whether a schema has rules that no grammar has
    ignored: tuple[str, ...] = ()
    """Annotations of their schemas that nobody knows, as a response header names them."""
    grammars: Mapping[str, Embedded] = {}
    """Grammars of the only text that some of them take, within JSON, by name."""

    def admits(self, name: str, arguments: str) -> bool:
        """Return whether the text of arguments follows the schema of the function ``name``.

        They do if that takes long to check: the last check says more.
        """
        schema = self.arguments.get(name)
        if schema is None:
            return False
        try:
            return schema.fault_of_text(arguments, Work(AT_ONCE)) is None
        except WorkExceeded:
            return True


async def callable_functions(
    request: requests.ChatRequest, control_tokens: Collection[str], schema_cache: SchemaCache
) -> Functions:
    """Return the functions that ``tool_choice`` leaves, with their schemas for constraints.

    Raises ``InvalidRequest`` (``unsupported_schema``), unless the request is lenient and no call
    is demanded: arguments may be any object then.
    """
    allowed = request.tool_choice.allowed
    asked = [
        (index, tool)
        for index, tool in enumerate(request.tools)
        if request.tool_choice.mode != "none" and (allowed is None or tool.name in allowed)
    ]
    if not asked:
        return Functions({})
    all_said = [(tool.name, tool.parameters, *filter(None, (tool.grammar,))) for _, tool in asked]
    text = msgspec.json.encode(all_said).decode()
    lenient = request.lenient_tools and request.tool_choice.mode != "required"
    make = partial(_prepare_functions, asked, text, control_tokens, lenient=lenient)
    return await schema_cache.of(text, lenient, make)


def _prepare_functions(
    indexed_tools: Sequence[tuple[int, requests.Tool]],
    tools_json: str,
    control_tokens_to_detect: Iterable[str],
    *,
    lenient: bool,
) -> Functions:
    check_size(tools_json, param="tools")
    tools: dict[str, Schema] = {}
    arguments: dict[str, CheckedSchema] = {}
    grammars: dict[str, Embedded] = {}
    ignored: list[str] = []
    watched = False
    for index, tool in indexed_tools:
        param = f"tools[{index}].function.parameters"
        parameters, siblings = without_siblings(tool.parameters)
        try:
            schema = closed_schema(_restrict_type_to_object(parameters, param))
            prepared = prepare(schema, param=param)
        except SchemaRefused as refused:
            if not lenient:
                raise refused.of_function(tool.name) from None
            schema, siblings = {"type": "object"}, []
            prepared = prepare(schema, param=param)
            ignored.append(f"{param} not enforced")
        tools[tool.name] = closed_schema(anchored(schema))
        ignored += (f"{param} {ignored_sibling(key)}" for key in siblings)
        ignored += prepared.ignored
        watched = watched or bool(prepared.left)
        arguments[tool.name] = CheckedSchema(prepared.rules)
        if tool.grammar is not None:
            try:
                grammars[tool.name] = embed_in_json(tool.grammar, f"custom{index}", param="tools")
            except SchemaRefused:
                ignored.append(f"tools[{index}].function.format not enforced")
    spell = spells(json.dumps(tools, ensure_ascii=False), control_tokens_to_detect)
    return Functions(tools, tools_json, spell, arguments, watched, tuple(ignored), grammars)


def _restrict_type_to_object(schema: Schema, param: str) -> Schema:
    declared = schema.get("type", "object")
    kinds = declared if isinstance(declared, list) else [declared]
    if "object" not in kinds and all(isinstance(kind, str) for kind in kinds):
        written = json.dumps(declared)
        reason = f'arguments are a JSON object, so `type` must be "object", not {written[:100]}.'
        raise SchemaRefused(param, reason, "#/type")
    rest = {key: value for key, value in schema.items() if key != "nullable"}
    return {**rest, "type": "object"} if "object" in kinds else rest


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """The answer as a part of a Lark grammar."""

    expression: str
    rules: str = ""  # rules that the expression refers to
    spell: bool = False  # whether the answer may hold the text of a control token
    ignored: tuple[str, ...] = ()
    """Annotations of its schema that nobody knows, as a response header names them."""
    watched: bool = False  # whether its schema has rules that no grammar has
    options: Sequence[str] = field(default=(), compare=False)  # all answers, if they are listed
    checked: CheckedSchema | None = field(default=None, compare=False)  # for the finished one

    def fault(self, text: str, work: Work) -> str | None:
        """Return the fault of a finished answer as a sentence; may raise ``WorkExceeded``."""
        if self.checked is not None:
            return self.checked.fault_of_text(text, work)
        if self.options:
            return None if text in self.options else "The answer is none of the options."
        if follows(text, matcher_of(f"{HEADER}{self.expression}\n{self.rules}"), work):
            return None
        broken = "follow the grammar" if self.rules else "match the pattern"
        return f"The answer does not {broken}."


async def answer_plan(
    output: requests.OutputFormat,
    control_tokens: Collection[str],
    schema_cache: SchemaCache,
    *,
    white_space: WhiteSpace,
) -> AnswerPlan:
    """Return the plan of the answer; raise ``InvalidRequest`` if its form cannot be enforced."""
    what: Hashable = output
    match output:
        case requests.JsonSchema(schema):
            text, what = msgspec.json.encode(schema).decode(), output.param
        case requests.TextChoice(options):
            text = "\n".join(options)
        case requests.Regex(text) | requests.Grammar(text):
            pass
        case requests.JsonObject():
            text = ""
    make = partial(_build_answer_plan, output, text, control_tokens, white_space)
    return await schema_cache.of(text, (what, white_space), make)


def _build_answer_plan(
    output: requests.OutputFormat,
    source_text: str,
    control_tokens: Collection[str],
    white_space: WhiteSpace,
) -> AnswerPlan:
    match output:
        case requests.Regex(pattern):  # there is no telling what it spells
            return AnswerPlan(regex(pattern, param="structured_outputs.regex"), spell=True)
        case requests.Grammar(source):
            return AnswerPlan(EMBEDDED, embed(source), spell=True)
        case requests.TextChoice(options):
            rule = choice(options, param="structured_outputs.choice")
            spell = spells(source_text, control_tokens)
            return AnswerPlan("OPTION", f"OPTION: {rule}", spell, options=options)
        case requests.JsonObject():
            any_object = {"type": "object"}
            source_text = constraint(any_object, param="response_format", white_space=white_space)
            plan = _build_unchecked_plan(any_object, "response_format", white_space, source_text)
            return replace(plan, checked=CheckedSchema(any_object))
    check_size(source_text, param=output.param)
    prepared = prepare(output.schema, param=output.param, white_space=white_space)
    return replace(
        _build_unchecked_plan(output.schema, output.param, white_space, prepared.text),
        spell=spells(source_text, control_tokens),
        ignored=prepared.ignored,
        watched=bool(prepared.left),
        checked=CheckedSchema(prepared.rules),
    )


def _build_unchecked_plan(
    schema: Mapping[str, object] | bool, param: str, white_space: WhiteSpace, schema_json: str
) -> AnswerPlan:
    if white_space is WhiteSpace.PRETTY and isinstance(schema, Mapping):
        grammar = GrammarText({}, param=param, prefix="answer_", most=MOST_RULES)
        try:
            written = pretty_grammar(anchored(schema), grammar)
        except SchemaRefused:
            pass
        else:
            return AnswerPlan(written, grammar.rules)
    return AnswerPlan("answer", f"answer: %json {schema_json}")
