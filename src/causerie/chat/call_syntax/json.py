"""Arguments as one JSON object."""

from __future__ import annotations

import json
import re

from causerie.chat.call_syntax.base import Read, Unreadable

_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING_END = re.compile(r'["\\]')


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


class JsonReader:
    """Follows the text to the brace that closes the object; braces in strings do not count.

    Reads a string with the text of an object as that object.
    """

    def __init__(self) -> None:
        self._quoted = ""
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> Read:
        if self._depth == 0:
            text = text if self._quoted else text.lstrip()
            if not text:
                return Read()
            if self._quoted or text[0] == '"':
                return self._unquoted(text)
            if text[0] != "{":
                raise Unreadable
        end = self._end(text)
        if end is None:
            return Read(arguments=text)
        return Read(arguments=text[:end], rest=text[end:])

    def _end(self, text: str) -> int | None:
        """Return the position after the closing brace, if the text contains it."""
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
            elif character == '"':
                self._in_string = not self._in_string
            elif character in "{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    return at
        return None

    def _unquoted(self, text: str) -> Read:
        self._quoted += text
        found = _STRING.match(self._quoted)
        if found is None:
            return Read()
        try:
            inside = json.loads(found.group(), strict=False).strip()
            if not isinstance(json.loads(inside), dict):
                raise Unreadable
        except (ValueError, RecursionError):
            raise Unreadable from None
        return Read(arguments=inside, rest=self._quoted[found.end() :])
