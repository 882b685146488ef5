"""Fixed text, names and ids: the segments that hold no arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence

from causerie.chat.call_syntax.base import LONGEST_WORD, Read, Unreadable

_NAME = re.compile(r"[a-zA-Z0-9_.\-]*")


class LiteralReader:
    """Fixed text, in one of several spellings of which the longest that fits is taken.

    White space matters on neither side: models write it as they like.
    """

    def __init__(self, text: str, also: Sequence[str] = ()) -> None:
        self._expected = ["".join(each.split()) for each in (text, *also)]
        self._seen = 0
        self._behind: str | None = None  # what came behind the longest that is complete
        if "" in self._expected:
            self._behind = ""

    def feed(self, text: str) -> Read:
        for position, character in enumerate(text):
            behind = self._behind or ""
            more = any(len(each) > self._seen for each in self._expected)
            if not more or len(behind) > LONGEST_WORD:
                return Read(rest=behind + text[position:])
            if self._behind is not None:
                self._behind += character
            if character.isspace():
                continue
            left = [each for each in self._expected if each[self._seen :].startswith(character)]
            if not left:
                if self._behind is None:
                    raise Unreadable
                return Read(rest=self._behind + text[position + 1 :])
            self._expected = left
            self._seen += 1
            if any(len(each) == self._seen for each in left):
                self._behind = ""
        if any(len(each) > self._seen for each in self._expected):
            return Read()
        return Read(rest=self._behind or "")


class NameReader:
    """A function's name: it ends where the first character stands that no name holds."""

    def __init__(self) -> None:
        self._name = ""

    def feed(self, text: str) -> Read:
        if not self._name:
            text = text.lstrip()
        matched = _NAME.match(text)
        end = matched.end() if matched else 0
        self._name += text[:end]
        if len(self._name) > LONGEST_WORD:
            raise Unreadable
        if end == len(text):
            return Read()
        if not self._name:
            raise Unreadable
        return Read(value=self._name, rest=text[end:])


class CallIdReader:
    """A call's id: everything up to the literal that follows it."""

    def __init__(self, following: str) -> None:
        self._until = following.strip()
        self._text = ""

    def feed(self, text: str) -> Read:
        self._text += text
        end = self._text.find(self._until)
        if "{" in self._text[: end if end >= 0 else None]:
            raise Unreadable
        if end < 0:
            if len(self._text) > 256:
                raise Unreadable
            return Read()
        return Read(value=self._text[:end].strip(), rest=self._text[end:])


def call_id_grammar(pattern: str, names: str) -> str:
    """Return the terminal of an id: ``{index}`` is a number, ``{name}`` one of ``names`` (a regex).

    Numbers have an end, so that no id is longer than :class:`CallIdReader` waits for.
    """
    regex = pattern.replace("{index}", "[0-9]{1,9}").replace("{name}", f"({names})")
    return "/" + regex.replace("/", "\\/") + "/"
