"""Documents under the grammar of a schema: what it admits, and by which rule it excludes others."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from causerie.chat.answer import SchemaCache, answer_plan
from causerie.chat.document_watch import DocumentWatch
from causerie.chat.schema import WhiteSpace
from causerie.chat.schema.compiled import Work
from causerie.chat.validation import MOST_STEPS, CheckedSchema
from causerie.errors import ServiceError
from causerie.protocol.request import JsonSchema

_TOKENIZER = LLTokenizer("byte")
_TRIES = 5_000  # states that the search for an order may pass
_HOLDING_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_HOLDING_DATA = ("const", "enum", "default", "examples", "example")
_OF_DRAFT_6 = {"const", "contains", "propertyNames"}
_OF_DRAFT_7 = {"if", "then", "else"}


class Verdict(Enum):
    """What becomes of a document."""

    ADMITTED = "admitted"
    ORDER = "excluded: its properties stand in another order than the schema's"
    UNNAMED = "excluded: it has properties that the schema neither names nor mentions"
    LATER = "excluded: by a keyword that is newer than the draft of its `$schema`"
    SPELLED = "excluded: a number is spelled otherwise (2.0 for 2, 1e-06 for 0.000001)"
    FORMAT = "excluded: by a format, of which a part is admitted"
    OVERLAP = "excluded: as an option of a `oneOf`, or what `not` leaves, overlaps another"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the grammar admits a document, where it stops, and what the last check says."""

    verdict: Verdict
    grammar: bool
    fault: str = ""


class Judge:
    """Of documents by one schema: its ``grammar``, and the ``rules`` of the last check."""

    def __init__(self, schema: Any, grammar: str, rules: Mapping[str, object]) -> None:
        self._schema = schema
        self._start = LLMatcher(_TOKENIZER, grammar, log_level=0)
        self._rules = rules
        self._slow = _counts(schema)
        self._orders = list(_orders(schema))
        self._foreign_first = False  # names that a part of the schema lacks
        self._written_as = _as_json  # a value without parts

    async def of(self, document: Any, *, why: bool = True) -> Judgement:
        """Return what becomes of a document; ``why`` looks for the rule that excludes it."""
        text = json.dumps(document, ensure_ascii=False)
        stops = self._stops(text)
        fault = CheckedSchema(self._rules).fault_of_text(text, Work(MOST_STEPS)) or ""
        if stops is None:
            return Judgement(Verdict.EXCLUDED if fault else Verdict.ADMITTED, True, fault)
        if not why:
            return Judgement(Verdict.EXCLUDED, False, fault)
        if not fault and (verdict := self._own_verdict(document)) is not None:
            return Judgement(verdict, False)
        for verdict, other in (
            (Verdict.UNNAMED, _opened(self._schema)),
            (Verdict.LATER, _opened(_of_its_draft(self._schema))),
            (Verdict.FORMAT, _opened(_less(self._schema, {"format"}))),
            (Verdict.OVERLAP, _opened(_overlapping(self._schema))),
        ):
            if other != self._schema and await _admitted(other, document):
                return Judgement(verdict, False, fault)
        return Judgement(Verdict.EXCLUDED, False, fault or f"the grammar stops behind {stops!r}")

    def is_watched(self, document: Any) -> bool:
        """Return whether what is wrong with a document is found while it is written."""
        watch = DocumentWatch(CheckedSchema(self._rules))
        for position, character in enumerate(f"{_as_json(document)}\n"):
            watch.feed(character, position)
        return watch.fault is not None

    def _taken(self, at: LLMatcher, data: bytes) -> tuple[int, LLMatcher]:
        """Return how many bytes are admitted, and the state behind them.

        The work between two masks is bounded. Engines ask for a mask for each token; here all bytes
        are taken at once, unless counts make that too much work.
        """
        matcher = at.deep_copy()
        if not self._slow:
            return matcher.try_consume_tokens(list(data)), matcher
        for count, byte in enumerate(data):
            matcher.compute_bitmask()
            if matcher.try_consume_tokens([byte]) != 1:
                return count, matcher
        return len(data), matcher

    def _behind(self, at: LLMatcher, text: str, tries: Iterator[int]) -> LLMatcher | None:
        """Return the state behind a text, or ``None`` where it is not admitted."""
        if next(tries, None) is None:
            return None
        data = text.encode()
        taken, matcher = self._taken(at, data)
        return matcher if taken == len(data) else None

    def _own_verdict(self, document: Any) -> Verdict | None:
        """Return why the grammar excludes a document that it admits when written otherwise."""
        if self._in_order(document):
            return Verdict.ORDER
        self._written_as = _respelled
        found = self._in_order(document)
        self._written_as = _as_json
        return Verdict.SPELLED if found else None

    def _stops(self, text: str) -> str | None:
        """Return the last characters that the grammar admits, or ``None`` if it admits all."""
        data = text.encode()
        taken, matcher = self._taken(self._start, data)
        if taken == len(data) and matcher.is_accepting():
            return None
        return data[max(taken - 60, 0) : taken].decode(errors="replace")

    def _in_order(self, document: Any) -> bool:
        """Return whether the grammar admits the document with its properties in some order."""
        for self._foreign_first in (False, True):
            ways = self._written(document, self._start, iter(range(_TRIES)))
            if any(matcher.is_accepting() for matcher in ways):
                return True
        return False

    def _written(self, value: Any, at: LLMatcher, tries: Iterator[int]) -> Iterator[LLMatcher]:
        """Yield the states behind a value, whose properties stand in any order."""
        if isinstance(value, dict) and value:
            yield from self._members(value, at, tries, "{")
        elif isinstance(value, list) and value:
            yield from self._items(value, at, tries, "[")
        elif (there := self._behind(at, self._written_as(value), tries)) is not None:
            yield there

    def _members(
        self, left: Mapping[str, Any], at: LLMatcher, tries: Iterator[int], before: str
    ) -> Iterator[LLMatcher]:
        if not left:
            if (end := self._behind(at, "}", tries)) is not None:
                yield end
            return
        for name in self._sorted(left):
            key = f"{before}{json.dumps(name, ensure_ascii=False)}: "
            if (there := self._behind(at, key, tries)) is not None:
                rest = {other: left[other] for other in left if other != name}
                for behind in self._written(left[name], there, tries):
                    yield from self._members(rest, behind, tries, ", ")

    def _sorted(self, names: Mapping[str, Any]) -> list[str]:
        """Return names in the order of the part of the schema that has most of them."""
        order = max(self._orders, key=lambda one: len(one.keys() & names.keys()), default={})
        foreign = -1 if self._foreign_first else len(order)
        return sorted(names, key=lambda name: order.get(name, foreign))

    def _items(
        self, left: list[Any], at: LLMatcher, tries: Iterator[int], before: str
    ) -> Iterator[LLMatcher]:
        if not left:
            if (end := self._behind(at, "]", tries)) is not None:
                yield end
        elif (there := self._behind(at, before, tries)) is not None:
            for behind in self._written(left[0], there, tries):
                yield from self._items(left[1:], behind, tries, ", ")


def grammar_of(expression: str, rules: str) -> str:
    """Return the whole grammar of an answer."""
    return f"%llguidance {{}}\nstart: {expression}\n{rules}"


async def _admitted(schema: Any, document: Any) -> bool:
    output = JsonSchema(schema, "schema")
    try:
        plan = await answer_plan(output, (), SchemaCache(), white_space=WhiteSpace.PRETTY)
    except ServiceError:
        return False
    judge = Judge(
        schema, grammar_of(plan.expression, plan.rules), plan.checked.rules if plan.checked else {}
    )
    judged = await judge.of(document)
    return judged.verdict in (Verdict.ADMITTED, Verdict.ORDER, Verdict.SPELLED)


def _counts(schema: Any) -> bool:
    """Return whether a part of a schema has a length beside a pattern that counts."""
    if isinstance(schema, list):
        return any(map(_counts, schema))
    if not isinstance(schema, Mapping):
        return False
    counts = isinstance(pattern := schema.get("pattern"), str) and "{" in pattern
    return (counts and "maxLength" in schema) or any(map(_counts, schema.values()))


def _orders(schema: Any) -> Iterator[Mapping[str, int]]:
    """Yield the places of the properties, for each part of a schema that names some."""
    if isinstance(schema, Mapping):
        for key, part in schema.items():
            if key == "properties" and isinstance(part, Mapping):
                yield {name: at for at, name in enumerate(part)}
            yield from _orders(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _orders(part)


def _opened(schema: Any) -> Any:
    """Return the schema with ``additionalProperties: true`` wherever that is not mentioned."""
    if isinstance(schema, list):
        return [_opened(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {
        key: {name: _opened(one) for name, one in part.items()}
        if key in _HOLDING_SCHEMAS and isinstance(part, Mapping)
        else part
        if key in _HOLDING_DATA
        else _opened(part)
        for key, part in schema.items()
    }
    return {"additionalProperties": True, **made} if "properties" in schema else made


def _overlapping(schema: Any) -> Any:
    """Return the schema with options that do not exclude each other, and without ``not``."""
    if isinstance(schema, list):
        return [_overlapping(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {}
    for key, part in schema.items():
        if key in _HOLDING_SCHEMAS and isinstance(part, Mapping):
            made[key] = {name: _overlapping(one) for name, one in part.items()}
        elif key in _HOLDING_DATA:
            made[key] = part
        elif key == "oneOf" and isinstance(part, list):
            known = schema.get("allOf")
            others = _overlapping(known) if isinstance(known, list) else []
            made["allOf"] = [*others, {"anyOf": _overlapping(part)}]
        elif key != "not" and not (key == "allOf" and "oneOf" in schema):
            made[key] = _overlapping(part)
    return made


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _respelled(value: Any) -> str:
    """Return JSON without a fraction of 0, and without an exponent."""
    if not isinstance(value, float):
        return _as_json(value)
    return str(int(value)) if value.is_integer() else format(Decimal(repr(value)), "f")


def _of_its_draft(schema: Any) -> Any:
    """Return the schema without the keywords that its draft does not have yet."""
    said = str(schema.get("$schema", "")) if isinstance(schema, Mapping) else ""
    later = {"draft-04": _OF_DRAFT_6 | _OF_DRAFT_7, "draft-06": _OF_DRAFT_7}
    found = next((names for draft, names in later.items() if draft in said), set[str]())
    return _less(schema, found) if found else schema


def _less(schema: Any, names: Collection[str]) -> Any:
    if isinstance(schema, list):
        return [_less(part, names) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: {name: _less(one, names) for name, one in part.items()}
        if key in _HOLDING_SCHEMAS and isinstance(part, Mapping)
        else _less(part, names)
        for key, part in schema.items()
        if key not in names
    }
