"""The plain input of a custom tool, out of the arguments of the function that stands for it."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from causerie.shapes.responses.tools import INPUT

_START = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
_LONGEST_START = 256  # characters; arguments that begin otherwise are read as a whole
_WHOLE_CHARACTERS = re.compile(
    r"""(?:[^"\\]
        |\\["\\/bfnrt]
        |\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
        |\\u(?![dD][89abAB])[0-9a-fA-F]{4}
        |\\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])
    )*""",
    re.VERBOSE,
)


class InputReader:
    """Reads arguments like ``{"input": TEXT}`` in pieces; returns the text as soon as it is known.

    Arguments of another form are one piece at the end: their only text, or they themselves.
    """

    __slots__ = ("_ended", "_pending", "_started", "_text")

    def __init__(self) -> None:
        self._pending = ""
        self._started = False
        self._ended = False
        self._text = False  # they have the usual form

    def feed(self, piece: str) -> str:
        if self._ended:
            return ""
        self._pending += piece
        if not self._started:
            self._start()
        return self._decoded() if self._text else ""

    def finish(self) -> str:
        if self._text:
            return ""
        return _only_text(self._pending)

    def _start(self) -> None:
        found = _START.match(self._pending)
        if found is not None:
            self._started = self._text = True
            self._pending = self._pending[found.end() :]
        elif len(self._pending) > _LONGEST_START:
            self._started = True

    def _decoded(self) -> str:
        found = _WHOLE_CHARACTERS.match(self._pending)
        end = found.end() if found is not None else 0
        raw, self._pending = self._pending[:end], self._pending[end:]
        if self._pending.startswith('"'):
            self._ended = True
            self._pending = ""
        text: str = json.loads(f'"{raw}"', strict=False)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _only_text(arguments: str) -> str:
    try:
        values: Any = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
    if not isinstance(values, dict):
        return arguments
    texts = [value for value in values.values() if isinstance(value, str)]
    given = values.get(INPUT)
    if isinstance(given, str):
        return given
    return texts[0] if len(values) == len(texts) == 1 else arguments
