"""A reply that consists of calls in plain JSON, without the family's own marker.

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

    ``fenced`` admits only what begins with a code fence, for families whose own calls begin
    with a brace.
    """

    def __init__(self, tools: Tools, admits: Admits, marks: Iterable[str], *, fenced: bool) -> None:
        self._tools = tools
        self._admits = admits
        self._marks = tuple(marks)
        self._fenced = fenced
        self._openers = "`" if fenced else "`[{"
        self.pieces: list[str] = []
        self._unread = ""
        self._steps = self._read_reply()
        self._calls: list[tuple[str, str]] = []
        self._may_end_here = False  # the text so far could be the whole reply
        self.possible = True
        self.repeated = False  # the last call was equal to an earlier one, and is left out

    def __copy__(self) -> UnmarkedReader:
        other = UnmarkedReader(self._tools, self._admits, self._marks, fenced=self._fenced)
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
        """Name and arguments of each call; empty unless the text so far is nothing but calls."""
        whole = self.repeated or (self._may_end_here and not self._unread.strip())
        return self._calls if whole else []

    def may_begin(self, text: str) -> bool:
        return text.lstrip()[:1] in self._openers and not text.isspace()

    def feed(self, text: str) -> None:
        """Read the next piece; ``possible`` tells whether the reply may still be a call."""
        self.pieces.append(text)
        self._unread += text
        try:
            next(self._steps)
        except (Unreadable, StopIteration):
            self.possible = False

    # Steps. Each yields where it needs more text.

    def _read_reply(self) -> _Steps:
        fenced = yield from self._read_fence()
        listed = yield from self._consume("[")
        while not self.repeated:
            yield from self._read_call(listed)
            fenced, listed = yield from self._after_call(fenced, listed)

    def _read_fence(self) -> Generator[None, None, bool]:
        if not (yield from self._consume(_FENCE)):
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

    def _read_call(self, listed: bool) -> _Steps:
        braced = yield from self._consume("{")
        if not (braced or listed):
            raise Unreadable
        name, arguments = yield from (self._call_object() if braced else self._python_call())
        if not self._admits(name, arguments):
            raise Unreadable
        self.repeated = (name, arguments) in self._calls
        self._may_end_here = True
        if not self.repeated:
            self._calls.append((name, arguments))

    def _python_call(self) -> _Call:
        name = yield from self._read_by(NameReader())
        if name not in self._tools:
            raise Unreadable
        yield from self._expect("(")
        arguments = yield from self._read_by(PythonReader(self._tools[name]))
        yield from self._expect(")")
        return name, arguments

    def _call_object(self) -> _Call:
        name = arguments = None
        while True:
            key = yield from self._read_quoted_name()
            yield from self._expect(":")
            if key == "name" and name is None:
                name = yield from self._read_quoted_name()
                if name not in self._tools:
                    raise Unreadable
            elif key in ("arguments", "parameters") and arguments is None:
                arguments = yield from self._read_by(JsonReader())
            elif key == "type":
                yield from self._expect('"function"')
            else:
                raise Unreadable
            if (yield from self._consume("}")):
                break
            yield from self._expect(",")
        if name is None or arguments is None:
            raise Unreadable
        return name, arguments

    def _after_call(self, fenced: bool, listed: bool) -> Generator[None, None, tuple[bool, bool]]:
        while not self.repeated:
            if (yield from self._consume(",")) or self._unread[:1] == "{":
                self._may_end_here = False
                break
            if listed and (yield from self._consume("]")):
                listed = False
            elif fenced and (yield from self._consume(_FENCE)):
                fenced = False
            elif not listed and (yield from self._read_fence()):
                fenced, listed = True, (yield from self._consume("["))
                break
            else:
                for mark in self._marks:
                    if (yield from self._consume(mark)):
                        break
                else:
                    raise Unreadable
        return fenced, listed

    def _consume(self, text: str) -> Generator[None, None, bool]:
        while True:
            self._unread = self._unread.lstrip()
            if self._unread.startswith(text):
                self._unread = self._unread[len(text) :]
                return True
            if self._unread and not text.startswith(self._unread):
                return False
            yield

    def _expect(self, text: str) -> _Steps:
        if not (yield from self._consume(text)):
            raise Unreadable

    def _read_quoted_name(self) -> Generator[None, None, str]:
        yield from self._expect('"')
        word = yield from self._read_by(NameReader())
        yield from self._expect('"')
        return word

    def _read_by(self, reader: Reader) -> Generator[None, None, str]:
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
    """Return the grammar of a reply that begins with an unmarked call: an expression, the rules
    that it refers to, and a regular expression of the texts with which no free text may begin.

    At most ``several`` calls more may follow. ``known`` are rules for arguments, by function, that
    the grammar has already. ``None`` if the schemas of the others are too long to write them:
    then only the reader holds the arguments to them.
    """
    scope = GrammarText(control_tokens, prefix="unmarked_")
    try:
        arguments = {
            name: known.get(name) or _arguments_grammar(name, tools[name], scope)
            for name in sorted(tools)
        }
        expression = _calls_rule(arguments, marks, scope, several)
    except SchemaRefused:
        return None
    if len(scope.rules) > MOST_RULES:
        return None
    return expression, scope.rules, _call_opening(_FIRST, _any_of(tools))


def _calls_rule(
    arguments: Mapping[str, str], marks: Iterable[str], scope: GrammarText, several: int
) -> str:
    end = scope.terminal(_END)

    def calls(before: str) -> str:
        each = []
        for name, written in arguments.items():
            opening = scope.terminal(f"/{_call_opening(before, spelled(name))}{_LAST_WS}/")
            each.append(f"{opening} {written} {end}")
        return scope.rule(" | ".join(each))

    again = f"{calls(_NEXT)}{{0,{several}}}" if several else ""
    shut = _call_opening(_NEXT, _any_of(arguments)) if several else rf"{_WS}(,|\{{|{_REOPENED})"
    text = scope.terminal(f"{SOME} & ~/{shut}(.|\\n)*/")
    held = [scope.literal(mark) for mark in marks if mark in scope.control_tokens]
    tail = f"({text}? ({' | '.join(held)}))* {text}?" if held else f"{text}?"
    return scope.rule(f"{calls(_FIRST)} {again} {tail}")


_FIRST = rf"{_WS}(```({'|'.join(_LANGUAGES)}){_WS})?(\[{_WS})?"
_REOPENED = f"{_FENCE}{_WS}{_FENCE}"
_NEXT = rf"{_WS}(,{_WS}|(\]{_WS})?{_REOPENED}({'|'.join(_LANGUAGES)}){_WS}(\[{_WS})?)?"
_LAST_WS = r"( |\n[ \t]{0,32})?"


def _call_opening(before: str, name: str) -> str:
    kind = rf'("type"{_WS}:{_WS}"function"{_WS},{_WS})?'
    key = rf'"(arguments|parameters)"{_WS}:'
    return rf'{before}\{{{_WS}{kind}"name"{_WS}:{_WS}"{name}"{_WS},{_WS}{key}'


def _any_of(names: Iterable[str]) -> str:
    return f"({'|'.join(map(spelled, sorted(names)))})"


def _arguments_grammar(name: str, schema: Schema, scope: GrammarText) -> str:
    scope.function = name
    try:
        return pretty_grammar(schema, scope)
    except (SchemaRefused, RecursionError):
        return scope.json(schema)
