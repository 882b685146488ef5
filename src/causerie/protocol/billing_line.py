"""The line in which Claude Code tells its billing, with a checksum of the request.

It stands at the head of a system message and changes at every turn of a conversation.
"""

from __future__ import annotations

from itertools import takewhile

from msgspec import structs

from causerie.protocol.request import Message, TextPart

_BILLING = "x-anthropic-billing-header:"


def without_billing_line(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages without the line at the head of one of the first system messages."""
    for at, message in enumerate(takewhile(lambda one: one.role == "system", messages)):
        if message.text.startswith(_BILLING):
            kept = _without_first_line(message)
            # A request has at least one message.
            rest = (kept,) if kept.text or len(messages) == 1 else ()
            return (*messages[:at], *rest, *messages[at + 1 :])
    return messages


def _without_first_line(message: Message) -> Message:
    if not isinstance(message.content, tuple):
        return structs.replace(message, content=_behind_line(message.content or ""))
    first, *others = message.content
    left = _behind_line(first.text) if isinstance(first, TextPart) else ""
    parts = [TextPart(left)] if left else []
    return structs.replace(message, content=(*parts, *others))


def _behind_line(text: str) -> str:
    return text.partition("\n")[2].lstrip("\n")
