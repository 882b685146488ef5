"""Leave out of a request what its client changes at every turn, without changing what it means.

The prompt would differ near its beginning, and the engine would compute all of it again.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import takewhile

from msgspec import structs

from causerie.protocol.request import ChatRequest, Message, TextPart

BILLING_LINE = "billing_line"
TOOL_ORDER = "tool_order"

_BILLING = "x-anthropic-billing-header:"  # Claude Code's, with a checksum of the request


def without_changing_parts(
    request: ChatRequest, omit: Collection[str]
) -> tuple[ChatRequest, list[str]]:
    """Return the request without what is named in ``omit``, and a report of the changes."""
    changes: list[str] = []
    if BILLING_LINE in omit:
        messages = _without_billing_line(request.messages)
        if messages is not request.messages:
            request = structs.replace(request, messages=messages, characters=None)
            changes.append("billing line of the system prompt left out")
    if TOOL_ORDER in omit:
        tools = tuple(sorted(request.tools, key=lambda tool: tool.name))
        if tools != request.tools:
            request = structs.replace(request, tools=tools)
            changes.append("tools sorted by name")
    return request, changes


def _without_billing_line(messages: tuple[Message, ...]) -> tuple[Message, ...]:
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
