"""Reads and constrains a reply of calls in plain JSON, without the family's own marker.

Small models often write such a reply, also in code fences. It counts as calls only if nothing
else stands with it, so its text is held back until its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping

from causerie.chat.call_syntax.base import NameReader, Reader, Schema, Tools, Unreadable, spelled
from causerie.chat.call_syntax.json import MOST_RULES, JsonReader, pretty_grammar
from causerie.chat.call_syntax.python import PythonReader
from causerie.chat.formats.format import CallSection, Literal
from causerie.chat.grammar_text import SOME, GrammarText
from causerie.chat.schema.keywords import SchemaRefused

_LANGUAGES = ("", "json", "tool_call", "tool_calls", "function_call")
_LONGEST_LANGUAGE = max(map(len, _LANGUAGES))
_WORD = re.compile("[a-z_]*")
_FENCE = "```"
_WS = r"[ \t\r\n]*"
_END = r"/( |\n{1,2}[ \t]{0,32})?\}/"

_Steps = Generator[None, None, None]
_Call = Generator[None, None, tuple[str, str]]
Admits = Callable[[str, str], bool]
"""Takes a name and the text of arguments; tells whether the function takes them."""


def section_marks(calls: CallSection) -> tuple[str, ...]:
    """Return the markers of a section that may stand between or behind unmarked calls."""
    first, last = calls.call[0], calls.call[-1]
    before = first.text.partition("{")[0] if isinstance(first, Literal) else ""
    behind = last.text.rpartition("}")[2] if isinstance(last, Literal) else ""
    found = (each.strip() for each in (calls.begin, calls.end, before, behind))
    return tuple(dict.fromkeys(mark for mark in found if len(mark) > 1))


class UnmarkedReader:
    """Reads a reply piece by piece, as long as it may be nothing but calls.

    ``fenced`` admits only replies in code fences, for families whose calls begin with a brace.
    """

    def __init__(self, tools: Tools, admits: Admits, marks: Iterable[str], *, fenced: bool) -> None:
        self._tools = tools
        self._does_function_take = admits
        self._skippable_markers = tuple(marks)
        self._needs_fence = fenced
        self._opening_characters = "`" if fenced else "`[{"
        self.pieces: list[str] = []
        self._unread = ""
        self._step_generator = self._read_reply()
        self._calls: list[tuple[str, str]] = []
        self._may_end_here = False  # the text so far could be the whole reply
        self.possible = True
        self.repeated = False  # the last call was equal to an earlier one, and is left out

    def __copy__(self) -> UnmarkedReader:
        other = UnmarkedReader(
            self._tools, self._does_function_take, self._skippable_markers, fenced=self._needs_fence
        )
        if self.started:
            other.feed(self.text)
        return other

    @property
    def started(self) -> bool:
        return bool(self.pieces)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Return name and arguments of each call; none unless the text so far is only calls."""
        whole = self.repeated or (self._may_end_here and not self._unread.strip())
        return self._calls if whole else []

    def may_begin(self, text: str) -> bool:
        return text.lstrip()[:1] in self._opening_characters and not text.isspace()

    def feed(self, text: str) -> None:
        """Read the next piece; ``possible`` tells whether the reply may still be a call."""
        self.pieces.append(text)
        self._unread += text
        try:
            next(self._step_generator)
        except (Unreadable, StopIteration):
            self.possible = False

    # Steps. Each yields where it needs more text.

    def _read_reply(self) -> _Steps:
        fenced = yield from self._read_opening_fence()
        listed = yield from self._skip_literal("[")
        while not self.repeated:
            yield from self._read_call(listed)
            fenced, listed = yield from self._read_after_call(fenced, listed)

    def _read_opening_fence(self) -> Generator[None, None, bool]:
        if not (yield from self._skip_literal(_FENCE)):
            return False
        self._may_end_here = False
        while (found := _WORD.match(self._unread)) and found.end() == len(self._unread):
            if found.end() > _LONGEST_LANGUAGE:
                raise Unreadable
            yield
        if found is None or found.group() not in _LANGUAGES:
            raise Unreadable
        self._unread = self._unread[found.end() :]
        return True

    def _read_call(self, in_list: bool) -> _Steps:
        braced = yield from self._skip_literal("{")
        if not (braced or in_list):
            raise Unreadable
        name, arguments = yield from (
            self._read_json_name_and_arguments()
            if braced
            else self._read_python_name_and_arguments()
        )
        if not self._does_function_take(name, arguments):
            raise Unreadable
        self.repeated = (name, arguments) in self._calls
        self._may_end_here = True
        if not self.repeated:
            self._calls.append((name, arguments))

    def _read_python_name_and_arguments(self) -> _Call:
        name = yield from self._read_segment(NameReader())
        if name not in self._tools:
            raise Unreadable
        yield from self._require_literal("(")
        arguments = yield from self._read_segment(PythonReader(self._tools[name]))
        yield from self._require_literal(")")
        return name, arguments

    def _read_json_name_and_arguments(self) -> _Call:
        name = arguments = None
        while True:
            key = yield from self._read_quoted_word()
            yield from self._require_literal(":")
            if key == "name" and name is None:
                name = yield from self._read_quoted_word()
                if name not in self._tools:
                    raise Unreadable
            elif key in ("arguments", "parameters") and arguments is None:
                arguments = yield from self._read_segment(JsonReader())
            elif key == "type":
                yield from self._require_literal('"function"')
            else:
                raise Unreadable
            if (yield from self._skip_literal("}")):
                break
            yield from self._require_literal(",")
        if name is None or arguments is None:
            raise Unreadable
        return name, arguments

    def _read_after_call(
        self, in_fence: bool, in_list: bool
    ) -> Generator[None, None, tuple[bool, bool]]:
        while not self.repeated:
            if (yield from self._skip_literal(",")) or self._unread[:1] == "{":
                self._may_end_here = False
                break
            if in_list and (yield from self._skip_literal("]")):
                in_list = False
            elif in_fence and (yield from self._skip_literal(_FENCE)):
                in_fence = False
            elif not in_list and (yield from self._read_opening_fence()):
                in_fence, in_list = True, (yield from self._skip_literal("["))
                break
            else:
                for mark in self._skippable_markers:
                    if (yield from self._skip_literal(mark)):
                        break
                else:
                    raise Unreadable
        return in_fence, in_list

    def _skip_literal(self, literal: str) -> Generator[None, None, bool]:
        while True:
            self._unread = self._unread.lstrip()
            if self._unread.startswith(literal):
                self._unread = self._unread[len(literal) :]
                return True
            if self._unread and not literal.startswith(self._unread):
                return False
            yield

    def _require_literal(self, literal: str) -> _Steps:
        if not (yield from self._skip_literal(literal)):
            raise Unreadable

    def _read_quoted_word(self) -> Generator[None, None, str]:
        yield from self._require_literal('"')
        word = yield from self._read_segment(NameReader())
        yield from self._require_literal('"')
        return word

    def _read_segment(self, reader: Reader) -> Generator[None, None, str]:
        out: list[str] = []
        while True:
            read = reader.feed(self._unread)
            out.append(read.arguments or read.value)
            self._unread = read.rest or ""
            if read.rest is not None:
                return "".join(out)
            yield


def unmarked_grammar(
    tools: Tools,
    marks: Iterable[str],
    control_tokens: Mapping[str, int],
    *,
    several: int,
    known: Mapping[str, str],
) -> tuple[str, str, str] | None:
    """Return expression, rules and beginnings of a reply that begins with an unmarked call.

    The beginnings are a regular expression: no free text may begin with one. At most ``several``
    calls more may follow. ``known`` are rules for arguments, by function, that
    the grammar has already. ``None`` if the schemas of the others are too long to write them:
    then only the reader holds the arguments to them.
    """
    grammar = GrammarText(control_tokens, prefix="unmarked_")
    try:
        arguments = {
            name: known.get(name) or _write_arguments_rule(name, tools[name], grammar)
            for name in sorted(tools)
        }
        expression = _write_calls_rule(arguments, marks, grammar, several)
    except SchemaRefused:
        return None
    if len(grammar.rules) > MOST_RULES:
        return None
    return expression, grammar.rules, _write_opening_regex(_FIRST, _build_name_pattern(tools))


def _write_calls_rule(
    argument_rules: Mapping[str, str], markers: Iterable[str], grammar: GrammarText, max_more: int
) -> str:
    end = grammar.terminal(_END)

    def calls(before: str) -> str:
        each = []
        for name, written in argument_rules.items():
            opening = grammar.terminal(f"/{_write_opening_regex(before, spelled(name))}{_LAST_WS}/")
            each.append(f"{opening} {written} {end}")
        return grammar.rule(" | ".join(each))

    again = f"{calls(_NEXT)}{{0,{max_more}}}" if max_more else ""
    shut = rf"{_WS}(,|\{{|{_REOPENED})"
    if max_more:
        shut = _write_opening_regex(_NEXT, _build_name_pattern(argument_rules))
    text = grammar.terminal(f"{SOME} & ~/{shut}(.|\\n)*/")
    held = [grammar.literal(mark) for mark in markers if mark in grammar.control_tokens]
    tail = f"({text}? ({' | '.join(held)}))* {text}?" if held else f"{text}?"
    return grammar.rule(f"{calls(_FIRST)} {again} {tail}")


_FIRST = rf"{_WS}(```({'|'.join(_LANGUAGES)}){_WS})?(\[{_WS})?"
_REOPENED = f"{_FENCE}{_WS}{_FENCE}"
_NEXT = rf"{_WS}(,{_WS}|(\]{_WS})?{_REOPENED}({'|'.join(_LANGUAGES)}){_WS}(\[{_WS})?)?"
_LAST_WS = r"( |\n[ \t]{0,32})?"


def _write_opening_regex(prefix_pattern: str, name_pattern: str) -> str:
    kind = rf'("type"{_WS}:{_WS}"function"{_WS},{_WS})?'
    key = rf'"(arguments|parameters)"{_WS}:'
    return rf'{prefix_pattern}\{{{_WS}{kind}"name"{_WS}:{_WS}"{name_pattern}"{_WS},{_WS}{key}'


def _build_name_pattern(names: Iterable[str]) -> str:
    return f"({'|'.join(map(spelled, sorted(names)))})"


def _write_arguments_rule(function_name: str, schema: Schema, grammar: GrammarText) -> str:
    grammar.function = function_name
    try:
        return pretty_grammar(schema, grammar)
    except (SchemaRefused, RecursionError):
        return grammar.json(schema)
