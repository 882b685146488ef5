"""Headers of messages, for families whose reply is several messages on channels.

A header is read however models spell it: the recipient before or behind the channel, with or
without a type of content.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from causerie.chat.call_syntax.base import Unreadable, offered_name, text_overlap
from causerie.chat.formats.format import MessageHeader

_MOST_CHARACTERS = 200
_LONGEST_MARKER = 40
_MOST_WORDS = 6
_WORDS = re.compile(r"[\w.=\-\s]*")
_RECIPIENT = re.compile(r"to\s*=\s*([\w\-]+(?:\s*\.\s*[\w\-]+)*)")
_SPACED_DOT = re.compile(r"\s*\.\s*")


@dataclass(frozen=True, slots=True)
class ParsedHeader:
    """A header that was read; ``size`` counts its characters, closing marker included."""

    recipient: str
    channel: str
    size: int
    close: str
    """Marker that it ends with."""
    ended: bool = False
    """Whether the message ended within its header, so it has no text."""


def read_header(form: MessageHeader, text: str) -> ParsedHeader | None:
    """Return the header at the beginning of ``text``, or ``None`` while more of it may come.

    Raises :class:`Unreadable` where the text is no header.
    """
    marks = (*form.closes, *form.ends)
    whole, text = text, text[: _MOST_CHARACTERS + _LONGEST_MARKER]
    found = min(((at, mark) for mark in marks if (at := text.find(mark)) >= 0), default=None)
    if found is None:
        inside = (*marks, *form.opens, *form.within)
        text = text[: len(text) - max(text_overlap(text, mark) for mark in inside)]
        _header_words(form, text)
        if len(whole) > _MOST_CHARACTERS + _LONGEST_MARKER:
            raise Unreadable
        return None
    at, mark = found
    words = _header_words(form, text[:at])
    recipient = _RECIPIENT.search(text, 0, at)
    named = _SPACED_DOT.sub(".", recipient[1]) if recipient else ""
    return ParsedHeader(
        " ".join(words) if mark == form.call_close else named,
        _channel(form, text[:at]),
        at + len(mark),
        mark,
        ended=mark not in form.closes,
    )


def _header_words(form: MessageHeader, text: str) -> list[str]:
    if len(text) > _MOST_CHARACTERS:
        raise Unreadable
    for mark in (*form.opens, *form.within):
        if not _WORDS.fullmatch(mark):
            text = text.replace(mark, " ")
    words = text.split()
    if len(words) > _MOST_WORDS or not _WORDS.fullmatch(text):
        raise Unreadable
    return words


def _channel(form: MessageHeader, text: str) -> str:
    if not form.channel:
        return ""
    behind = text.rpartition(form.channel)
    words = behind[2].split() if behind[1] else []
    return words[0] if words and "=" not in words[0] else ""


def function_of(form: MessageHeader, header: ParsedHeader, tools: Container[str]) -> str | None:
    """Return the function that a message calls; empty if its text says so, ``None`` if none.

    A recipient in the functions' own namespace is always one; another only by the name of a tool.
    """
    name = offered_name(header.recipient, tools)
    if not name and header.close == form.call_close:
        return ""
    if form.functions and name.startswith(form.functions):
        return name.removeprefix(form.functions)
    return name if name in tools else None


def may_call(form: MessageHeader, text: str) -> bool:
    """Return whether the part of a header that has come names a recipient or a function."""
    return bool(_header_words(form, text)) if form.call_close else "to=" in text


def is_reasoning(form: MessageHeader, header: ParsedHeader) -> bool:
    """Return whether a message that calls no function is reasoning.

    A message to a tool that nobody offered is not for the user.
    """
    if header.recipient and header.recipient not in form.readers:
        return True
    if header.close in (form.reasoning_close, form.call_close):
        return True
    return header.channel in form.reasoning
