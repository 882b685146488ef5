"""Reasoning in tags told apart from the answer, for text that did not come from our own prompt.

The model's family is not known, so the tags are those that most families use;
calls are not looked for. A mention of a tag within the answer stays text.
"""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.generic import GENERIC
from causerie.chat.parser import Parser

_TAGS = replace(GENERIC, calls=None)


class Separation:
    """Makes a parser for each choice whose content may begin with a tag."""

    def may_begin(self, text: str) -> bool:
        """Return whether ``text`` is the beginning of content that may begin with reasoning."""
        resumed = text.lstrip()
        return not resumed or resumed[0] == "<"

    def separator(self) -> Parser:
        return Parser(_TAGS, tools=None, reasoning_open=False, call_id=lambda _, given: given)
