"""The text behind the arguments of a call, which means nothing, however a model writes it.

By then the call is known, so nothing that deviates here may cost it: members behind the arguments
(an id), brackets too many or too few, closing markers that are missing or doubled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from causerie.chat.formats.format import Literal, Segment

_BRACKETS = re.compile(r"[}\])\"]+(?=<(?!\]))")
# A blank behind a bar is part of a marker.
_CHUNK = re.compile(r"```(?=\S)|(?:｜ |\S)+?>(?=<)|(?:｜ |\S)+")
_STRING = r'"(?:[^"\\]|\\.)*"'
_MEMBER = re.compile(rf",\s*{_STRING}\s*:\s*(?:{_STRING}|[\w.+\-]+(?=[\s,}}\]]))", re.DOTALL)
_MAYBE_MEMBER = re.compile(
    rf',\s*(?:"(?:[^"\\]|\\.)*\\?|{_STRING}\s*(?::\s*(?:"(?:[^"\\]|\\.)*\\?|[\w.+\-]*))?)?',
    re.DOTALL,
)
_LONGEST_MEMBER = 512


def markers(text: str) -> list[str]:
    """Return the markers in fixed text around calls, without the brackets and quotes of JSON."""
    chunks = (_BRACKETS.sub("", chunk) for chunk in _CHUNK.findall(text))
    return [chunk for chunk in chunks if chunk.strip("{}[](),:;\"'")]


class CallTail:
    """Reads the rest of one call: the segments behind its arguments."""

    def __init__(self, segments: Sequence[Segment], *, keep: str) -> None:
        """``keep`` is the text that the section goes on with, or ends in."""
        fixed = [one for one in segments if isinstance(one, Literal)]
        text = "".join(max((one.text, *one.also), key=len) for one in fixed)
        self._members = "}" in text
        self._closers = "".join(each for each in "}])" if not keep.startswith(each))
        self._words = [] if self._members and '"' in text else markers(text)
        self._last = ""
        self._text = ""
        self._space: list[str] = []  # before the text

    def feed(self, text: str) -> str | None:
        """Return the text behind the call, or ``None`` while it may still be part of it."""
        if not self._text and text.isspace():
            self._space.append(text)
            return None
        self._text = "".join((*self._space, self._text, text))
        self._space = []
        while (moved := self._step(self._text.lstrip())) is not None:
            if moved == self._text:
                return moved
            self._text = moved
        if self._text.isspace():
            self._space, self._text = [self._text], ""
        return None

    def _step(self, text: str) -> str | None:
        """Return the text without its first part that belongs to the call, if it has one."""
        if not text:
            return None
        if self._members and text[0] == "," and (found := _MEMBER.match(text)):
            return text[found.end() :]
        if self._members and len(text) < _LONGEST_MEMBER and _MAYBE_MEMBER.fullmatch(text):
            return None
        return self._marker(text)

    def _marker(self, text: str) -> str | None:
        """Return the text behind a closing marker; each may be missing, and the last come twice."""
        for at, word in enumerate(self._words):
            if text.startswith(word):
                self._last, self._words = word, self._words[at + 1 :]
                return text[len(word) :]
        expected = [*self._words, *([self._last] if self._last else [])]
        if self._last and text.startswith(self._last):
            return text[len(self._last) :]
        if any(word.startswith(text) for word in expected):
            return None
        return text[1:] if text[0] in self._closers else self._text
