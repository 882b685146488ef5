"""Leave out of a request what its client changes at every turn, without changing what it means.

The prompt would differ near its beginning, and the engine would compute all of it again.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import structs

from causerie.protocol.billing_line import without_billing_line
from causerie.protocol.request import ChatRequest

BILLING_LINE = "billing_line"
TOOL_ORDER = "tool_order"


def without_changing_parts(
    request: ChatRequest, omit: Collection[str]
) -> tuple[ChatRequest, list[str]]:
    """Return the request without what is named in ``omit``, and a report of the changes."""
    changes: list[str] = []
    if BILLING_LINE in omit:
        messages = without_billing_line(request.messages)
        if messages is not request.messages:
            request = structs.replace(request, messages=messages, characters=None)
            changes.append("billing line of the system prompt left out")
    if TOOL_ORDER in omit:
        tools = tuple(sorted(request.tools, key=lambda tool: tool.name))
        if tools != request.tools:
            request = structs.replace(request, tools=tools)
            changes.append("tools sorted by name")
    return request, changes
