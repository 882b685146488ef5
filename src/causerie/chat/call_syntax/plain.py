"""Fixed text, names and ids: the segments that hold no arguments."""

from __future__ import annotations

import re

from causerie.chat.call_syntax.base import Read, Unreadable

_NAME = re.compile(r"[a-zA-Z0-9_.\-]*")


class LiteralReader:
    """Fixed text. White space matters on neither side: models write it as they like."""

    def __init__(self, text: str) -> None:
        self._expected = "".join(text.split())
        self._seen = 0

    def feed(self, text: str) -> Read:
        for position, character in enumerate(text):
            if self._seen == len(self._expected):
                return Read(rest=text[position:])
            if character.isspace():
                continue
            if character != self._expected[self._seen]:
                raise Unreadable
            self._seen += 1
        return Read(rest="" if self._seen == len(self._expected) else None)


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
