"""Arguments as nested elements, each tag behind a marker (MiniMax M3).

``<city>Paris</city>``, a list as ``<item>``s, an object as elements named like
its keys; strings stand raw. Whether a text is a string the schema says; lists
and objects show by what is in them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from causerie.chat.segments.base import Read, Schema, Scope, Unreadable, text_overlap, without
from causerie.chat.segments.choices import choices, kinds, properties, resolved
from causerie.chat.segments.parameters import string_terminal

_ITEM = "item"
_NULL = frozenset({"null"})
_TAG = re.compile(r"<(/?)([^<>/\s]+)>")
_MAY_BE_TAG = re.compile(r"(<(/?[^<>/\s]*)?)?")


@dataclass(slots=True)
class _Element:
    """An element that has begun: a list or an object (by its brackets), or not known yet."""

    name: str
    schema: Schema
    brackets: str = ""
    count: int = 0


class ElementReader:
    """Reads elements up to a closing tag that closes none of them, which is left."""

    def __init__(self, mark: str, schema: Schema) -> None:
        self._mark = mark
        self._root = schema
        self._open = [_Element("", schema, "{}")]
        self._text = ""
        self._done = False
        self._begun = False
        self._streams = False
        self._step: Callable[[], str | None] = self._tag

    def feed(self, text: str) -> Read:
        self._text += text
        out = ""
        while True:
            piece = self._step()
            if piece is None:
                return Read(arguments=out)
            out += piece
            if self._done:
                return Read(arguments=out, rest=self._text)

    def _tag(self) -> str | None:
        """The next tag behind a marker: a child begins or the element ends."""
        text = self._text.lstrip()
        if not text.startswith(self._mark):
            if self._mark.startswith(text):
                return None
            raise Unreadable
        found = _TAG.match(text, len(self._mark))
        if found is None:
            if _MAY_BE_TAG.fullmatch(text, len(self._mark)):
                return None
            raise Unreadable
        closes, name = found.groups()
        if not closes:
            self._text = text[found.end() :]
            return self._enter(name)
        inner = self._open[-1]
        if len(self._open) == 1:
            self._text, self._done = text, True
            return "}" if inner.count else "{}"
        if name != inner.name:
            raise Unreadable
        self._text = text[found.end() :]
        self._open.pop()
        return inner.brackets[1]

    def _enter(self, name: str) -> str:
        outer = self._open[-1]
        lead = ""
        if not outer.brackets:
            expected = kinds(outer.schema)
            outer.brackets = "[]" if name == _ITEM and "object" not in expected else "{}"
        if not outer.count:
            lead = outer.brackets[0]
        outer.count += 1
        lead += ", " if outer.count > 1 else ""
        schema = self._schema_of(outer, name)
        self._open.append(_Element(name, schema))
        self._begun = False
        self._streams = kinds(schema) == {"string"}
        self._step = self._value
        key = "" if outer.brackets == "[]" else json.dumps(name, ensure_ascii=False) + ": "
        return lead + key + ('"' if self._streams else "")

    def _schema_of(self, outer: _Element, name: str) -> Schema:
        if outer.brackets == "[]":
            items = outer.schema.get("items")
            found: Schema = items if isinstance(items, Mapping) else {}
        else:
            found = properties(outer.schema).get(name, {})
        reference = found.get("$ref")
        return resolved(self._root, reference) if isinstance(reference, str) else found

    def _value(self) -> str | None:
        """A leaf's text up to its closing tag, or the first child."""
        inner = self._open[-1]
        end = f"{self._mark}</{inner.name}>"
        if not self._begun and not self._streams and not self._leaf(end):
            if self._step == self._tag:
                return ""
            return None
        at = self._text.find(end)
        if at >= 0:
            piece, self._text = self._text[:at], self._text[at + len(end) :]
            self._open.pop()
            self._step = self._tag
            return self._written(piece, inner.schema)
        if not self._streams:
            return None
        ready = len(self._text) - text_overlap(self._text, end)
        piece, self._text = self._text[:ready], self._text[ready:]
        return json.dumps(piece, ensure_ascii=False)[1:-1] or None

    def _leaf(self, end: str) -> bool:
        """Whether a text stands here; sets the step where a child does."""
        text = self._text.lstrip()
        opening = f"{self._mark}<"
        if end.startswith(text) or opening.startswith(text):
            return False
        if text.startswith(opening) and not text.startswith(opening + "/"):
            self._step = self._tag
            return False
        self._begun = True
        return True

    def _written(self, piece: str, schema: Schema) -> str:
        if self._streams:
            return json.dumps(piece, ensure_ascii=False)[1:-1] + '"'
        expected = kinds(schema)
        if not piece.strip() and expected and expected <= {"array", "object"}:
            return "[]" if "array" in expected else "{}"
        try:
            value = json.loads(piece)
        except (ValueError, RecursionError):
            return json.dumps(piece, ensure_ascii=False)
        if isinstance(value, str) or "string" in expected:
            return json.dumps(piece, ensure_ascii=False)
        return piece.strip()


def element_grammar(mark: str, schema: Schema, scope: Scope) -> str:
    """The elements of a function's parameters, in order."""
    writer = _Elements(mark, scope, schema)
    objects = dict.fromkeys(writer.object(choice) for choice in choices(schema))
    return scope.rule(" | ".join(objects))


class _Elements:
    """Writes rules for elements; those that refer to themselves are written once."""

    def __init__(self, mark: str, scope: Scope, root: Schema) -> None:
        self._mark = mark
        self._scope = scope
        self._root = root
        self._references: dict[tuple[str, str], str] = {}

    def object(self, schema: Schema) -> str:
        """Declared properties only: no grammar can close a tag whose name it does not know."""
        required = schema.get("required")
        names = set(required) if isinstance(required, list) else set()
        parts = []
        for name, of in properties(schema).items():
            each = self._scope.rule(self._element(name, of))
            parts.append(each if name in names else f"{each}?")
        return self._scope.rule(" ".join(parts)) if parts else '""'

    def _element(self, name: str, schema: Schema) -> str:
        begin = self._scope.literal(f"{self._mark}<{name}>")
        return f"{begin} ({' | '.join(self._values(name, schema))})"

    def _values(self, name: str, schema: Schema) -> list[str]:
        """The ways to write a value, each with its closing tag.

        Marker and tag are one text: engines read such texts whole, and a list
        goes on with the same marker.
        """
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return [self._referred(name, reference)]
        for key in ("anyOf", "oneOf"):
            options = schema.get(key)
            if isinstance(options, list) and options:
                options = [each for each in options if kinds(each) != _NULL] or options
                return [each for option in options for each in self._values(name, option)]
        end = f"{self._mark}</{name}>"
        chosen = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(chosen, list):
            chosen = [each for each in chosen if each is not None] or chosen
            texts = [each if isinstance(each, str) else json.dumps(each) for each in chosen]
            return [self._scope.literal(text + end) for text in texts]
        expected = kinds(schema) - _NULL or kinds(schema) or {"string"}
        return [self._kind(kind, schema, end) for kind in sorted(expected)]

    def _kind(self, kind: str, schema: Schema, end: str) -> str:
        closed = self._scope.literal(end)
        if kind == "object":
            return f"{self.object(schema)} {closed}"
        if kind == "array":
            return f"{self._array(schema)} {closed}"
        if kind != "string":
            kept = {key: of for key, of in schema.items() if key not in ("description", "title")}
            return f"{self._scope.json({**kept, 'type': kind})} {closed}"
        bounded = string_terminal(schema)
        if bounded is None:
            tag = self._scope.literal(end.removeprefix(self._mark))
            return f"{self._scope.until(self._mark)} {tag}"
        return f"{self._scope.terminal(f'{bounded} & {without(self._mark)}')} {closed}"

    def _array(self, schema: Schema) -> str:
        items = schema.get("items")
        of = items if isinstance(items, Mapping) else {}
        item = self._scope.rule(self._element(_ITEM, of))
        low, high = schema.get("minItems", 0), schema.get("maxItems", "")
        return f"{item}{{{low},{high}}}"

    def _referred(self, name: str, reference: str) -> str:
        if (name, reference) not in self._references:
            rule = self._scope.reserve()
            self._references[name, reference] = rule
            found = resolved(self._root, reference)
            self._scope.define(rule, " | ".join(self._values(name, found)))
        return self._references[name, reference]
