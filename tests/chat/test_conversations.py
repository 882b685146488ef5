"""Reasons why a request found less in the cache than the last one of its conversation computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from casekit import each_of
from msgspec import structs

from causerie.chat import conversations as module
from causerie.chat.conversations import Conversations, asked_before, changed_line, line_hashes
from causerie.protocol.events import CacheMiss, CacheReport
from causerie.protocol.request import ChatRequest, Message, Thinking, Tool

TOOLS = (Tool("a", {"type": "object"}), Tool("b", {"type": "object"}))
SYSTEM, ASKED = Message("system", "Be kind."), Message("user", "Hi")
ANSWER, THOUGHT = Message("assistant", "Yes."), Message("assistant", "Yes.", "Hm.")
PROMPT = tuple(range(1000))
MADE = tuple(range(2000, 2301))
COMPUTED = len(PROMPT) + len(MADE) - 1
FIRST = ChatRequest("m", (SYSTEM, ASKED), tools=TOOLS)
AGAIN = structs.replace(FIRST, messages=(SYSTEM, ASKED, ANSWER, Message("user", "And now?")))
NEXT = (*PROMPT, *MADE[:-1], *range(5000, 5100))


def miss(
    second: ChatRequest,
    prompt: Sequence[int],
    reused: int,
    *,
    first: ChatRequest = FIRST,
    reasoning: int = 0,
    cut: bool = False,
) -> CacheMiss | None:
    """What is said of ``second`` behind ``first``."""
    known = Conversations()
    known.answered("ann", asked_before(first, PROMPT), MADE, reasoning, cut=cut)
    report = known.report("ann", second, asked_before(second, prompt), reused)
    assert (report.prompt, report.reused) == (len(prompt), reused)
    return report.miss


def test_what_is_found_again_is_no_miss() -> None:
    assert miss(AGAIN, NEXT, COMPUTED) is None
    assert miss(AGAIN, NEXT, round(COMPUTED * 0.96)) is None


def test_a_conversation_that_is_new_misses_nothing() -> None:
    other = structs.replace(FIRST, messages=(SYSTEM, Message("user", "Hello")))
    assert miss(other, range(7000, 7100), 0) is None
    assert miss(structs.replace(FIRST, messages=(SYSTEM,)), range(7000, 7100), 0) is None


def test_nobody_learns_of_the_conversations_of_others() -> None:
    known, changed = Conversations(), structs.replace(AGAIN, tools=TOOLS[:1])
    known.answered("ann", asked_before(FIRST, PROMPT), MADE, 0)
    told = [known.report(who, changed, asked_before(changed, _OTHER), 0) for who in ("ann", "bob")]
    assert told[0].miss is not None
    assert told[1] == CacheReport(len(_OTHER), 0)


_OTHER = (*PROMPT[:500], *range(6000, 6900))


@each_of(
    ("changes", "expected"),
    [
        ({"tools": TOOLS[::-1]}, CacheMiss("tools reordered", COMPUTED)),
        ({"tools": TOOLS[:1]}, CacheMiss("tools changed", COMPUTED)),
        (
            {"thinking": Thinking(enabled=False)},
            CacheMiss("thinking or template settings changed", COMPUTED),
        ),
        (
            {"messages": (Message("system", "Be brief."), ASKED, ANSWER)},
            CacheMiss("system prompt changed", COMPUTED, 0, "line 1"),
        ),
        ({"messages": (ASKED, ANSWER)}, CacheMiss("system prompt changed", COMPUTED, 0)),
        ({}, CacheMiss("template wrote earlier messages differently", COMPUTED)),
    ],
)
def test_another_prompt_has_a_reason(changes: dict[str, Any], expected: CacheMiss) -> None:
    assert miss(structs.replace(AGAIN, **changes), _OTHER, 500) == expected


@each_of(
    ("before", "after", "expected"),
    [
        ("Today is 2026-11-24.", "Today is 2026-11-25.", "line 2, a date or time"),
        ("It is 9:59 now.", "It is 10:00 now.", "line 2, a date or time"),
        ("Nov 24, 2026", "Nov 25, 2026", "line 2, a date or time"),
        ("Today is Tuesday.", "Today is Wednesday.", "line 2, a date or time"),
        ("Session 0f8e1a2b-77aa", "Session 1c0d9e8f-12bb", "line 2, an id"),
        ("Use facade 12.", "Use a decade.", "line 2"),
        ("Be brief.\nEnd", "Be brief.\nend", "line 3"),
    ],
)
def test_the_line_of_the_instructions_that_changed_is_named(
    before: str, after: str, expected: str
) -> None:
    first, later = (Message("system", f"Be kind.\n{each}\nAnd more.") for each in (before, after))
    asked = structs.replace(FIRST, messages=(first, ASKED))
    found = miss(structs.replace(AGAIN, messages=(later, ASKED)), _OTHER, 500, first=asked)
    assert found == CacheMiss("system prompt changed", COMPUTED, 0, expected)
    assert str(found) == f"system prompt changed at messages[0] ({expected})"


# In squared time this line takes longer than a test may.
def test_a_long_line_of_the_instructions_is_read_in_linear_time() -> None:
    line = "abcd-" * 100_000
    assert changed_line(line_hashes("Be brief."), line) == "line 1"
    assert changed_line(line_hashes("Be brief."), f"0f8e1a2b {line}") == "line 1, an id"


def test_a_message_in_the_middle_is_named() -> None:
    edited = (SYSTEM, ASKED, Message("assistant", "No."), Message("user", "And now?"))
    later = structs.replace(AGAIN, messages=edited)
    assert miss(later, _OTHER, 500, first=AGAIN) == CacheMiss("message edited", COMPUTED, 2)
    shorter = structs.replace(AGAIN, messages=(SYSTEM, ASKED))
    assert miss(shorter, _OTHER, 500, first=AGAIN) == CacheMiss("messages removed", COMPUTED, 2)


def test_a_prompt_that_the_engine_no_longer_has_was_evicted() -> None:
    assert miss(AGAIN, NEXT, 40) == CacheMiss("evicted from the cache", COMPUTED)


def test_reasoning_that_is_missing_is_named() -> None:
    short = (*PROMPT, *range(6000, 6100))
    kept = structs.replace(AGAIN, messages=(SYSTEM, ASKED, THOUGHT, Message("user", "And now?")))
    not_sent = CacheMiss("reasoning not sent back", COMPUTED, 2)
    assert miss(AGAIN, short, 1000, reasoning=200) == not_sent
    dropped = CacheMiss("template dropped reasoning", COMPUTED, 2)
    assert miss(kept, short, 1000, reasoning=200) == dropped
    behind = (*PROMPT, *MADE[:210], *range(6000, 6100))
    changed = CacheMiss("reply not sent back as it was", COMPUTED, 2)
    assert miss(kept, behind, 1210, reasoning=200) == changed
    at_its_end = (*PROMPT, *MADE[:198], *range(6000, 6100))
    assert miss(kept, at_its_end, 1198, reasoning=200, cut=True) == changed
    assert miss(kept, short, 1000, reasoning=200, cut=True) == dropped
    earlier = structs.replace(kept, messages=(*kept.messages, ANSWER, ASKED))
    assert miss(earlier, _OTHER, 500, first=kept) == CacheMiss(
        "template dropped reasoning", COMPUTED
    )


def test_the_report_is_a_header() -> None:
    assert str(CacheReport(12, 3)) == "reused=3, prompt=12"
    found = CacheReport(12, 3, CacheMiss("message edited", 10, 2))
    assert str(found) == 'reused=3, prompt=12, reusable=10, miss="message edited at messages[2]"'


def test_a_turn_replaces_the_one_before_and_the_oldest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = Conversations()
    first = asked_before(FIRST, PROMPT)
    for asked in (first, asked_before(AGAIN, NEXT)):
        known.answered("ann", asked, MADE, 0)
    size = known._stored_byte_count
    known.answered("ann", replace(first, messages=(b"x", b"y")), MADE, 0)
    monkeypatch.setattr(module, "_MOST_BYTES", size)
    known.answered("ann", replace(first, messages=(b"x", b"z")), MADE, 0)
    assert known._stored_byte_count <= size
    assert known.report("ann", AGAIN, asked_before(AGAIN, NEXT), 0).miss is None
    known.answered("ann", replace(first, messages=(b"x", b"v")), range(size), 0)
    assert (known._stored_byte_count, known._by_first, len(known._answered)) == (0, {}, 0)
