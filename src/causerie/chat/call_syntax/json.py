"""Arguments as one JSON object."""

from __future__ import annotations

import json
import re

from causerie.chat.call_syntax.base import Read, Unreadable

_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING_END = re.compile(r'["\\]')


class JsonReader:
    """Follows the text to the brace that closes the object; braces in strings do not count.

    Reads a string with the text of an object as that object.
    """

    def __init__(self) -> None:
        self._pieces: list[str] | None = None  # of the string; ``None`` where it is an object
        self._begun = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> Read:
        if not self._begun:
            text = text.lstrip()
            if not text:
                return Read()
            if text[0] not in '"{':
                raise Unreadable
            self._begun = True
            self._pieces = [] if text[0] == '"' else None
        end = self._end(text)
        if self._pieces is not None:
            return self._unquoted(self._pieces, text, end)
        if end is None:
            return Read(arguments=text)
        return Read(arguments=text[:end], rest=text[end:])

    def _end(self, text: str) -> int | None:
        """Return the position after the closing brace or quote, if the text contains it."""
        at = 0
        if self._escaped and text:
            self._escaped = False
            at = 1
        while at < len(text):
            found = (_STRING_END if self._in_string else _STRUCTURE).search(text, at)
            if found is None:
                return None
            character, at = found.group(), found.end()
            if character == "\\":
                if at == len(text):
                    self._escaped = True
                at += 1
                continue
            if character == '"':
                self._in_string = not self._in_string
            else:
                self._depth += 1 if character in "{[" else -1
            if self._depth == 0 and not self._in_string:
                return at
        return None

    def _unquoted(self, pieces: list[str], text: str, end: int | None) -> Read:
        pieces.append(text[:end])
        if end is None:
            return Read()
        try:
            inside = json.loads("".join(pieces), strict=False).strip()
            if not isinstance(json.loads(inside), dict):
                raise Unreadable
        except (ValueError, RecursionError):
            raise Unreadable from None
        return Read(arguments=inside, rest=text[end:])
