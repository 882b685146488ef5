"""Shared parts of readers and grammars of calls; readers of segments that hold no arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from causerie.chat.schema.pattern import between_slashes

# Copies of these share their content, so copying takes constant time, and so does adding.

_T = TypeVar("_T")
_Link = tuple["_Link[_T]", _T] | None  # the last item, behind the link to those before it


class GrowingList(Generic[_T]):
    """A list that grows at its end, and is iterated from its last item to its first."""

    __slots__ = ("_link_from_last_item_back",)

    def __init__(self) -> None:
        self._link_from_last_item_back: _Link[_T] = None

    def append(self, item: _T) -> None:
        self._link_from_last_item_back = (self._link_from_last_item_back, item)

    def __iter__(self) -> Iterator[_T]:
        link = self._link_from_last_item_back
        while link is not None:
            link, item = link
            yield item


class GrowingText(GrowingList[str]):
    """A text that grows by pieces at its end; adding one does not copy the others."""

    __slots__ = ("size",)

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self.size = 0  # characters
        self.add(text)

    def add(self, text: str) -> None:
        if text:
            self.append(text)
            self.size += len(text)

    def between(self, start: int, end: int) -> str:
        """Return the characters from ``start`` up to ``end``; pieces behind ``start`` are read."""
        found: list[str] = []
        first = self.size
        for piece in self:
            if first <= start:
                break
            found.append(piece)
            first -= len(piece)
        return "".join(reversed(found))[start - first : end - first]

    def __str__(self) -> str:
        return self.between(0, self.size)


Schema = Mapping[str, object]
Tools = Mapping[str, Schema]
"""Schemas of the arguments by the name of the function."""


def json_value(text: str) -> object:
    """Return the value of a JSON text; raise ``ValueError`` for Python's extensions (``NaN``)."""

    def refuse(name: str) -> object:
        raise ValueError(f"{name} is no JSON value")

    return json.loads(text, parse_constant=refuse)


def offered_name(name: str, names: Container[str]) -> str:
    """Return the name of the offered function that ``name`` means, else ``name`` itself.

    Models write a namespace before it: ``functions``, or the name once more.
    """
    namespace, _, own = name.rpartition(".")
    is_known = name not in names and own in names
    return own if is_known and namespace in ("functions", own) else name


class Unreadable(Exception):
    """Raised where text is not what the format declares; the caller takes it as plain text."""


@dataclass(frozen=True, slots=True)
class Read:
    arguments: str = ""  # next part of the JSON text of the arguments
    value: str = ""  # complete name or id; set once, with ``rest``
    rest: str | None = None  # text after the segment, or ``None`` while the segment is incomplete


LONGEST_WORD = 4096
"""Most characters of a key, name, number or constant; a longer one is not read."""


class StepReader:
    """Reads by steps; each returns a part of the arguments, or ``None`` if it needs more text."""

    def __init__(self) -> None:
        self._unread = ""
        self._is_complete = False
        self._next_step: Callable[[], str | None]

    def feed(self, text: str) -> Read:
        self._unread += text
        out = ""
        while (piece := self._next_step()) is not None:
            out += piece
            if self._is_complete:
                return Read(arguments=out, rest=self._unread)
        return Read(arguments=out)


class Reader(Protocol):
    """Reads one segment; after it returns a ``Read`` with ``rest``, it is not fed again."""

    def feed(self, text: str) -> Read:
        """Take the next piece; raise :class:`Unreadable` where it cannot be this segment."""
        ...


def spelled(text: str) -> str:
    """Return ``text`` as a regular expression for use between slashes (Rust's dialect)."""
    return re.sub(r"([\\.+*?()|\[\]{}^$#&\-~/])", r"\\\1", text).replace("\n", "\\n")


def without(marker: str) -> str:
    """Return a terminal for any text that does not hold ``marker``."""
    return f"/(.|\\n)*/ & ~/(.|\\n)*{spelled(marker)}(.|\\n)*/"


def text_overlap(text: str, marker: str) -> int:
    """Return how many characters at the end of ``text`` could be the beginning of ``marker``."""
    for size in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:size]):
            return size
    return 0


_NAME = re.compile(r"[a-zA-Z0-9_.\-]*")


class LiteralReader:
    """Reads fixed text in one of several spellings, of which the longest that fits is taken.

    White space matters on neither side: models write it as they like.
    """

    def __init__(self, text: str, also: Sequence[str] = ()) -> None:
        self._candidate_texts = ["".join(each.split()) for each in (text, *also)]
        self._matched_length = 0
        self._text_after_match: str | None = None  # what came behind the longest that is complete
        if "" in self._candidate_texts:
            self._text_after_match = ""

    def feed(self, text: str) -> Read:
        for position, character in enumerate(text):
            behind = self._text_after_match or ""
            more = any(len(each) > self._matched_length for each in self._candidate_texts)
            if not more or len(behind) > LONGEST_WORD:
                return Read(rest=behind + text[position:])
            if self._text_after_match is not None:
                self._text_after_match += character
            if character.isspace():
                continue
            left = [
                each
                for each in self._candidate_texts
                if each[self._matched_length :].startswith(character)
            ]
            if not left:
                if self._text_after_match is None:
                    raise Unreadable
                return Read(rest=self._text_after_match + text[position + 1 :])
            self._candidate_texts = left
            self._matched_length += 1
            if any(len(each) == self._matched_length for each in left):
                self._text_after_match = ""
        if any(len(each) > self._matched_length for each in self._candidate_texts):
            return Read()
        return Read(rest=self._text_after_match or "")


class NameReader:
    """Reads a function's name up to the first character that no name holds."""

    def __init__(self) -> None:
        self._partial_function_name = ""

    def feed(self, text: str) -> Read:
        if not self._partial_function_name:
            text = text.lstrip()
        matched = _NAME.match(text)
        end = matched.end() if matched else 0
        self._partial_function_name += text[:end]
        if len(self._partial_function_name) > LONGEST_WORD:
            raise Unreadable
        if end == len(text):
            return Read()
        if not self._partial_function_name:
            raise Unreadable
        return Read(value=self._partial_function_name, rest=text[end:])


class CallIdReader:
    """Reads a call's id: everything up to the literal that follows it."""

    def __init__(self, following: str) -> None:
        self._literal_after_id = following.strip()
        self._unread = ""

    def feed(self, text: str) -> Read:
        self._unread += text
        end = self._unread.find(self._literal_after_id)
        if "{" in self._unread[: end if end >= 0 else None]:
            raise Unreadable
        if end < 0:
            if len(self._unread) > 256:
                raise Unreadable
            return Read()
        return Read(value=self._unread[:end].strip(), rest=self._unread[end:])


def call_id_grammar(pattern: str, names: str) -> str:
    """Return the terminal of an id: ``{index}`` is a number, ``{name}`` one of ``names`` (a regex).

    Numbers have an end, so that no id is longer than :class:`CallIdReader` waits for.
    """
    regex = pattern.replace("{index}", "[0-9]{1,9}").replace("{name}", f"({names})")
    return between_slashes(regex)
