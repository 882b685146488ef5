"""What clients change at every turn is left out of the prompt, and nothing else is."""

from __future__ import annotations

import pytest
from casekit import each_of

from causerie.chat.chat import BILLING_LINE, TOOL_ORDER, without_changing_parts
from causerie.protocol.request import ChatRequest, Message, TextPart, Tool

BILLING = "x-anthropic-billing-header: cc_version=2.1.63.a1b; cc_entrypoint=cli; cch=0f3e1;"
USER = Message("user", "Hello")
LEFT_OUT = ["billing line of the system prompt left out"]


def system(*texts: str) -> Message:
    return Message("system", tuple(TextPart(text) for text in texts))


@each_of(
    ("sent", "read"),
    [
        ([Message("system", f"{BILLING}\n\nBe kind.")], [Message("system", "Be kind.")]),
        ([system(BILLING, "Be kind.", "Always.")], [system("Be kind.", "Always.")]),
        ([system(f"{BILLING}\nBe kind.", "Always.")], [system("Be kind.", "Always.")]),
        ([Message("system", BILLING)], []),
        ([Message("system", BILLING), system("Be kind.")], [system("Be kind.")]),
        ([system("Be kind."), Message("system", BILLING)], [system("Be kind.")]),
    ],
)
def test_the_billing_line_is_left_out(sent: list[Message], read: list[Message]) -> None:
    request = ChatRequest("m", (*sent, USER), characters=7)
    changed, changes = without_changing_parts(request, (BILLING_LINE,))
    assert changed == ChatRequest("m", (*read, USER))
    assert changes == LEFT_OUT
    assert without_changing_parts(request, ()) == (request, [])


@pytest.mark.parametrize(
    "messages",
    [
        (Message("system", "Be kind."), USER),
        (Message("system", f"Never say\n{BILLING}"), USER),
        (Message("user", BILLING),),
        (USER, Message("system", BILLING)),
    ],
)
def test_other_texts_stay(messages: tuple[Message, ...]) -> None:
    request = ChatRequest("m", messages)
    changed, changes = without_changing_parts(request, (BILLING_LINE, TOOL_ORDER))
    assert changed is request
    assert changes == []


def test_a_request_keeps_a_message() -> None:
    request = ChatRequest("m", (Message("system", BILLING),))
    changed, changes = without_changing_parts(request, (BILLING_LINE,))
    assert changed.messages == (Message("system", ""),)
    assert changes == LEFT_OUT


def test_tools_are_sorted_where_that_is_wanted() -> None:
    tools = tuple(Tool(name, {"type": "object"}) for name in ("now", "add"))
    request = ChatRequest("m", (USER,), tools=tools)
    assert without_changing_parts(request, (BILLING_LINE,)) == (request, [])
    changed, changes = without_changing_parts(request, (TOOL_ORDER,))
    assert changed.tools == tools[::-1]
    assert changes == ["tools sorted by name"]
