"""Classes of a target's calls: of the last day, and since the start."""

from __future__ import annotations

from causerie.protocol.events import Finished, ToolCallDelta, ToolCallStarted
from causerie.protocol.targets import QUARTER_SECONDS, CallCounts
from causerie.routing.router import MANY, SentPrefix
from causerie.routing.target_state import CallStats

DAY = 86_400


def test_a_day_goes_by() -> None:
    now = [float(7 * QUARTER_SECONDS)]
    stats = CallStats(lambda: now[0])
    assert stats.day() is None
    stats.add(["fine", "fine", "invalid_json"])
    now[0] += QUARTER_SECONDS
    stats.add(["unknown_name"])
    assert stats.day() == CallCounts(fine=2, invalid_json=1, unknown_name=1)
    now[0] += DAY - QUARTER_SECONDS
    assert stats.day() == CallCounts(unknown_name=1)
    now[0] += DAY
    assert stats.day() is None
    assert stats.ever == {"fine": 2, "invalid_json": 1, "unknown_name": 1}


def test_calls_of_several_choices_are_told_apart_and_cut_ones_left_out() -> None:
    passed = SentPrefix()
    for choice, reason in enumerate(("tool_calls", "length", "stop")):
        passed.batches.append([ToolCallStarted(0, "x", f"f{choice}", choice)])
        passed.batches += [[ToolCallDelta(0, piece, choice)] for piece in ('{"a":', "1}")]
        passed.batches.append([ToolCallStarted(1, "y", "g", choice)])
        passed.batches.append([ToolCallDelta(1, "{}", choice)])
        passed.batches.append([Finished("length" if reason == "length" else "stop", choice)])
        if choice == 1:
            passed.put_together()
    assert len(passed.batches) < MANY
    expected = [("f0", '{"a":1}'), ("g", "{}"), ("f2", '{"a":1}'), ("g", "{}")]
    assert passed.calls() == expected
    assert passed.calls() == expected
