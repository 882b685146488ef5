"""Arguments as nested elements, each tag behind a marker (MiniMax M3).

``<city>Paris</city>``, a list as ``<item>``s, an object as elements named like its keys; strings
stand raw. The schema decides if a text is a string; lists and objects show by what is in them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from causerie.chat.call_syntax import base
from causerie.chat.call_syntax import members as grammars
from causerie.chat.call_syntax.choices import ALL, choices, is_meant, kinds, kinds_of, refused
from causerie.chat.grammar_text import GrammarText
from causerie.chat.schema.keywords import constants

_ITEM = "item"
_NULL = frozenset({"null"})
_KEY = "/[a-zA-Z0-9_.\\-]+/"
_NAME = re.compile(r"[^<>/][^<>]*")
_TAG = re.compile(rf"<(/?)({_NAME.pattern})>")
_MAY_BE_TAG = re.compile(r"(<[^<>]*)?")


@dataclass(slots=True)
class _Element:
    """An element that has started: a list or an object (by its brackets), or not known yet."""

    name: str
    schema: base.Schema
    free: bool = False  # by a name of the model's own, which its closing tag need not repeat
    brackets: str = ""
    count: int = 0


class ElementReader(base.StepReader):
    """Reads elements as JSON, up to a closing tag that closes none of them, which it leaves."""

    def __init__(self, mark: str, schema: base.Schema) -> None:
        super().__init__()
        self._tag_marker = mark
        self._element_stack = [_Element("", schema, brackets="{}")]
        self._held_text = base.GrowingText()  # of an element, before the unread text
        self._has_text_begun = False
        self._is_value_streamed = False
        self._next_step = self._read_tag

    def _read_tag(self) -> str | None:
        text = self._unread = self._unread.lstrip()
        if not text.startswith(self._tag_marker):
            if self._tag_marker.startswith(text):
                return None
            raise base.Unreadable
        found = _TAG.match(text, len(self._tag_marker))
        if found is None:
            if len(text) < base.LONGEST_WORD and _MAY_BE_TAG.fullmatch(text, len(self._tag_marker)):
                return None
            raise base.Unreadable
        closes, name = found.groups()
        if not closes:
            self._unread = text[found.end() :]
            return self._begin_element(name)
        inner = self._element_stack[-1]
        if len(self._element_stack) == 1:
            self._unread, self._is_complete = text, True
            return "}" if inner.count else "{}"
        if name != inner.name and not inner.free:
            raise base.Unreadable
        self._unread = text[found.end() :]
        self._element_stack.pop()
        return inner.brackets[1:]

    def _begin_element(self, element_name: str) -> str:
        outer = self._element_stack[-1]
        if not outer.brackets:
            expected = kinds(outer.schema)
            is_list = element_name == _ITEM and ("array" in expected or "object" not in expected)
            outer.brackets = "[]" if is_list else "{}"
        lead = ", " if outer.count else outer.brackets[0]
        outer.count += 1
        if outer.brackets == "[]":
            schema = grammars.item_in(outer.schema, outer.count - 1)
        else:
            schema = grammars.property_in(outer.schema, element_name)
        free = outer.brackets == "{}" and element_name not in grammars.names_in(outer.schema)
        self._element_stack.append(_Element(element_name, schema, free))
        self._has_text_begun = False
        self._held_text = base.GrowingText()
        self._is_value_streamed = kinds(schema) == {"string"}
        self._next_step = self._read_value
        key = "" if outer.brackets == "[]" else json.dumps(element_name, ensure_ascii=False) + ": "
        return lead + key + ('"' if self._is_value_streamed else "")

    def _read_value(self) -> str | None:
        if not self._has_text_begun and not self._is_value_streamed and not self._try_begin_text():
            return "" if self._next_step == self._read_tag else None
        at = self._unread.find(self._tag_marker)
        if at >= 0:
            piece, self._unread = str(self._held_text) + self._unread[:at], self._unread[at:]
            self._next_step = self._read_tag
            return self._encode_value_end(piece, self._element_stack[-1].schema)
        if not self._is_value_streamed:
            self._hold_value_text(max(len(self._unread) - len(self._tag_marker) + 1, 0))
            return None
        ready = len(self._unread) - base.text_overlap(self._unread, self._tag_marker)
        piece, self._unread = self._unread[:ready], self._unread[ready:]
        return json.dumps(piece, ensure_ascii=False)[1:-1] or None

    def _try_begin_text(self) -> bool:
        text = self._unread.lstrip()
        opening = f"{self._tag_marker}<"
        if f"{opening}/".startswith(text):
            self._hold_value_text(len(self._unread) - len(text))
            return False
        if text.startswith(opening) and not text.startswith(f"{opening}/"):
            self._next_step = self._read_tag
            return False
        self._has_text_begun = True
        return True

    def _hold_value_text(self, length: int) -> None:
        self._held_text.add(self._unread[:length])
        self._unread = self._unread[length:]

    def _encode_value_end(self, raw_text: str, schema: base.Schema) -> str:
        if self._is_value_streamed:
            return json.dumps(raw_text, ensure_ascii=False)[1:-1] + '"'
        expected = kinds(schema)
        if not raw_text.strip() and expected and expected <= {"array", "object"}:
            return "[]" if "array" in expected else "{}"
        try:
            value = base.json_value(raw_text)
        except (ValueError, RecursionError):
            return json.dumps(raw_text, ensure_ascii=False)
        if isinstance(value, str) or ("string" in expected and not is_meant(value, schema)):
            return json.dumps(raw_text, ensure_ascii=False)
        return raw_text.strip()


class _Elements(grammars.ArgumentRules[str | None]):
    """Writes values as grammar; ``place`` is the name in their closing tags, ``None`` for any.

    Marker and tag are one text: engines read such texts whole, and a list goes on with the marker.
    """

    def __init__(self, mark: str, grammar: GrammarText) -> None:
        super().__init__(grammar)
        self._tag_marker = mark

    def ways(self, schema: base.Schema, place: str | None) -> Iterator[str | None]:
        found = choices(schema)
        is_null = all(kinds_of(choice) == _NULL for choice in found)
        lists = any("array" in kinds_of(choice) for choice in found)
        for choice in found:
            values = constants(choice)
            if values is not None:
                told = [each for each in values if each is not None or is_null]
                yield from (self._write_constant_and_tag(each, choice, place) for each in told)
                continue
            expected = kinds_of(choice) - (frozenset() if is_null else _NULL)
            if expected >= ALL - _NULL:
                parts = {"properties": "object", "items": "array"}
                usual = next((kind for key, kind in parts.items() if key in choice), "string")
                expected = frozenset({usual})
            yield from (self._write_value(kind, choice, place, lists) for kind in sorted(expected))

    def _write_constant_and_tag(
        self, constant: object, choice: base.Schema, tag_name: str | None
    ) -> str:
        text = constant if isinstance(constant, str) else json.dumps(constant, ensure_ascii=False)
        if self._tag_marker in text:
            raise refused(choice, "a constant holds the marker of this model's tags.")
        return self._write_text_and_tag(text, tag_name)

    def _write_text_and_tag(self, text: str, tag_name: str | None) -> str:
        written = self.grammar.literal(text + self._closing_tag_or_start(tag_name))
        return written + self._write_name_if_free(tag_name)

    def _closing_tag_or_start(self, tag_name: str | None) -> str:
        return f"{self._tag_marker}</" if tag_name is None else f"{self._tag_marker}</{tag_name}>"

    def _write_name_if_free(self, tag_name: str | None) -> str:
        return f" {_KEY} {self.grammar.literal('>')}" if tag_name is None else ""

    def _write_value(
        self, type_name: str, choice: base.Schema, tag_name: str | None, allows_lists: bool
    ) -> str | None:
        closed = self._write_text_and_tag("", tag_name)
        match type_name:
            case "string":
                return self._write_string_value(choice, tag_name)
            case "object":
                inside = self.object(choice, allows_lists)
            case "array":
                start = self.grammar.literal(f"{self._tag_marker}<{_ITEM}>")
                items = grammars.items_of(choice)
                inside = items.grammar(lambda of: f"{start} {self.value(of, _ITEM)}", "")
            case _:
                inside = grammars.number_of(type_name, choice, self.grammar)
        return None if inside is None else f"{inside} {closed}"

    def _write_string_value(self, choice: base.Schema, tag_name: str | None) -> str:
        bounded = grammars.text_terminal(choice)
        closing_tag = self._closing_tag_or_start(tag_name)
        if bounded is not None:
            text = self.grammar.closed(f"{bounded} & {base.without(self._tag_marker)}", closing_tag)
        else:
            tag = self.grammar.literal(closing_tag.removeprefix(self._tag_marker))
            text = f"{self.grammar.until(self._tag_marker)} {tag}"
        return text + self._write_name_if_free(tag_name)

    def object(self, choice: base.Schema, lists: bool = False) -> str | None:
        members = grammars.members_of(
            choice,
            f"{_KEY} & ~/{_ITEM}/" if lists else _KEY,
            lambda name: _NAME.fullmatch(name) is not None and not (lists and name == _ITEM),
        )
        if members is None:
            return None
        parts = []
        for one in members.named:
            opened = self.grammar.literal(f"{self._tag_marker}<{one.name}>")
            each = f"{opened} {self.value(one.schema, one.name)}"
            parts.append(each if one.required else f"({each})?")
        begin, end = self.grammar.literal(f"{self._tag_marker}<"), self.grammar.literal(">")
        others = [
            f"{begin} {self.grammar.terminal(key)} {end} {self.value(of, None)}"
            for key, of in members.free
        ]
        if others:
            parts.append(f"({' | '.join(others)}){members.how_many()}")
        return " ".join(parts) or '""'


def element_grammar(mark: str, schema: base.Schema, grammar: GrammarText) -> str:
    writer = _Elements(mark, grammar)
    return writer.finish(schema, map(writer.object, choices(schema)))
