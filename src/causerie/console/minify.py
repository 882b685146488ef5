"""Styles and scripts without what only their readers need: comments, indentation, blank lines.

Nothing is renamed and no statement is moved. Strings of styles stay as they are. No string of a
script goes over several lines, which a test asserts, so each of its lines can be cut alone.
"""

from __future__ import annotations

import re

_STRING = r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_STYLE_PARTS = re.compile(rf"(?s)/\*.*?\*/|{_STRING}|\s*([{{}};])\s*|([:,])\s+|\s+")
_LAST_SEMICOLON = re.compile(rf"(?s){_STRING}|;}}")
_BLOCK_COMMENT = re.compile(r"(?ms)^[ \t]*/\*.*?\*/[ \t]*$")


def minify_styles(text: str) -> str:
    """Return a style sheet with the same rules."""

    def short(found: re.Match[str]) -> str:
        string, mark, separator = found.groups()
        if found[0].startswith("/*"):
            return ""
        return string or mark or separator or " "

    return _LAST_SEMICOLON.sub(lambda found: found[1] or "}", _STYLE_PARTS.sub(short, text)).strip()


def minify_script(text: str) -> str:
    """Return a script with the same statements, each on the line that it begins."""
    lines = (line.strip() for line in _BLOCK_COMMENT.sub("", text).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//")) + "\n"
