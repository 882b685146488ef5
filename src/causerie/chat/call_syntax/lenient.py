"""Calls that deviate from their declared form.

A text between the markers of calls is a call if it names an offered function and its arguments
are an object: JSON where tags are declared, the reverse, or another key for the arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from causerie.chat.call_syntax.base import Schema, Tools, Unreadable, json_value, offered_name
from causerie.chat.call_syntax.parameters import ParameterReader
from causerie.chat.call_syntax.python import PythonReader
from causerie.chat.call_syntax.relaxed import relaxed_json
from causerie.chat.formats.format import ParameterList
from causerie.protocol.sse import Brackets

_MOST_CHARACTERS = 32_000
_NAMES = ("name", "tool_name", "function", "tool", "function_name")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "arguments_json")
_HEAD = re.compile(
    r"""(?:\S{0,24}?(?=<))?<(?:[^\s<>=]{1,16}[:｜][ ]?)?(?:function|invoke|tool|call)"""
    r"""\s*(?:=|\s+name\s*=)\s*"""
    r"""["']?(?P<name>[\w.\-]+)["']?\s*(?P<ended>/?)>\s*""",
    re.VERBOSE,
)
_PREFIX = r"(?:[^\s<>=]{1,16}[:｜] ?)?"  # of a tag: the name that a family gives its own
_OPENING = re.compile(
    rf"""<{_PREFIX}param(?:eter)?(?:=|\s{{1,9}}name\s?=\s?)["']?(?P<key>[^"'<>\s]+)["']?[^<>]*>"""
    r"""|<arg_key>(?P<before>[^<]*)</arg_key>\s*<arg_value>"""
)
_CLOSE = re.compile(rf"</{_PREFIX}param(?:eter)?>|</arg_value>")
_CLOSING = re.compile(r"(?:(?:[^\s<]{0,24}|\]<\]\w{1,16}\[>\[)</[^<>]*>|\s)*")
_CALLED = re.compile(r"(?:functions\.)?(?P<name>[\w.\-]+?)(?::\d+)?\s*(?=[({<]|$)")
_PLAIN = ParameterList(before="\x00k", between="\x00v", after="\x00e", constants="python")


LenientCall = tuple[str, str]  # name and arguments (JSON) of a call that was read


class LenientReader:
    """Reads a call, or a list of calls, between markers.

    ``marks`` are the texts that it may begin with, ``ends`` markers that end it, and ``name`` is
    its function, if that came already. Raises :class:`Unreadable` as soon as the text cannot be a
    call.
    """

    def __init__(
        self, marks: Iterable[str], ends: Iterable[str], tools: Tools, name: str = ""
    ) -> None:
        self._marks = sorted({mark for mark in marks if mark}, key=len, reverse=True)
        self._first_words = ("", *self._marks)
        self._ends = tuple(ends)
        self._tools = tools
        self._name = name
        self._unread = ""
        self._started = False
        self._brackets, self._scanned = Brackets(), 0
        self._looked = 0

    def feed(self, text: str) -> tuple[list[LenientCall], str] | None:
        """Return the calls and the text behind them, or ``None`` while more may come."""
        self._unread += text
        if len(self._unread) > _MOST_CHARACTERS:
            raise Unreadable
        if not self._started and not self._strip_markers():
            return None
        if self._unread[0] in "{[":
            start, self._scanned = self._scanned, len(self._unread)
            end = start + self._brackets.read(self._unread[start:])
            if not self._brackets.closed:
                return None
            return self._calls_in(self._unread[:end]), self._unread[end:]
        if not self._may_start():
            raise Unreadable
        return self._marked_calls()

    def _strip_markers(self) -> bool:
        self._unread = self._unread.lstrip()
        while found := next((mark for mark in self._marks if self._unread.startswith(mark)), None):
            self._unread = self._unread[len(found) :].lstrip()
            self._marks.remove(found)
        self._started = not any(mark.startswith(self._unread) for mark in self._first_words)
        return self._started

    def _may_start(self) -> bool:
        if self._unread[0] in ('<]"' if self._name else "<]"):
            return True
        text, names = self._unread.removeprefix("functions."), (*self._tools, "functions.")
        whole = any(text.startswith(name) and not text[len(name) :][:1].isalnum() for name in names)
        return not self._name and (whole or any(name.startswith(text) for name in names))

    def _marked_calls(self) -> tuple[list[LenientCall], str] | None:
        head = _HEAD.match(self._unread)
        if head is not None and head["ended"]:
            return self._calls_in(head.group()), self._unread[head.end() :]
        places = [at for end in self._ends if (at := self._unread.find(end, self._looked)) >= 0]
        if not places:
            longest = max(map(len, self._ends), default=0)
            if not longest:
                raise Unreadable
            self._looked = max(len(self._unread) - longest, 0)
            return None
        return self._calls_in(self._unread[: min(places)]), self._unread[min(places) :]

    def _calls_in(self, text: str) -> list[LenientCall]:
        text = text.strip()
        if text[:1] not in ("{", "["):
            return [_from_tags(text, self._tools, self._name)]
        value = _lenient_json(text)
        values = value if isinstance(value, list) else [value]
        if not values:
            raise Unreadable
        keys = value.keys() if isinstance(value, Mapping) else ()
        named = not (set(_NAMES).isdisjoint(keys) or set(_ARGUMENTS).isdisjoint(keys))
        if self._name and not named:
            return [_offered_call(self._name, value, self._tools)]
        return [_from_json(one, self._tools) for one in values]


def _lenient_json(text: str) -> object:
    try:
        return json_value(text)
    except (ValueError, RecursionError):
        written = relaxed_json(text)
        if written is None:
            raise Unreadable from None
        return json_value(written)


def _from_json(value: object, tools: Tools) -> LenientCall:
    if not isinstance(value, Mapping):
        raise Unreadable
    inner = value.get("function")
    if isinstance(inner, Mapping):
        value = inner
    name = next((of for key in _NAMES if isinstance(of := value.get(key), str)), None)
    if name is None and len(value) == 1:  # {NAME: ARGUMENTS}
        [(name, arguments)] = value.items()
        return _offered_call(str(name), arguments, tools)
    found = [value[key] for key in _ARGUMENTS if key in value]
    return _offered_call(name or "", found[0] if found else None, tools)


def _offered_call(name: str, arguments: object, tools: Tools) -> LenientCall:
    name = offered_name(name, tools)
    if name not in tools:
        raise Unreadable
    if isinstance(arguments, str) and arguments.strip():
        arguments = _lenient_json(arguments.strip())
    if not arguments:
        arguments = {}
    if not isinstance(arguments, Mapping) or (not arguments and tools[name].get("required")):
        raise Unreadable
    return name, json.dumps(arguments, ensure_ascii=False)


def _from_tags(text: str, tools: Tools, name: str) -> LenientCall:
    if not name:
        head = _HEAD.match(text) or _CALLED.match(text)
        name = offered_name(head["name"], tools) if head else ""
        text = text[head.end() :] if head else text
    if name not in tools:
        raise Unreadable
    if text.startswith("("):
        read = PythonReader(tools[name]).feed(text[1:])
        if read.rest is None or not _CLOSING.fullmatch(read.rest[1:]):
            raise Unreadable
        return name, read.arguments
    if text[:1] != "{" and _OPENING.search(text):
        return name, _arguments_in_tags(text, tools[name])
    value = Brackets(strings=True)
    end = value.read(text) if text[:1] in ("{", '"') else 0
    end = end if value.closed else 0
    if not _CLOSING.fullmatch(text, end):
        raise Unreadable
    return _offered_call(name, _lenient_json(text[:end]) if end else None, tools)


def _arguments_in_tags(text: str, schema: Schema) -> str:
    found = list(_OPENING.finditer(text))
    pairs = ""
    for at, opening in enumerate(found):
        stop = found[at + 1].start() if at + 1 < len(found) else len(text)
        close = _CLOSE.search(text, opening.end(), stop)
        if close is None or not _CLOSING.fullmatch(text, close.end(), stop):
            raise Unreadable
        value = text[opening.end() : close.start()].removeprefix("\n").removesuffix("\n")
        pairs += f"\x00k{(opening['key'] or opening['before']).strip()}\x00v{value}\x00e"
    return ParameterReader(_PLAIN, schema).feed(f"{pairs}\n.").arguments
