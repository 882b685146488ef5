"""The verdict over infrastructure faults names each promise that is broken, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ledgerkit import record

BENCH = Path(__file__).parents[2] / "bench"
WORD = 1_000_000_000


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    from outages import clients, verdict  # noqa: PLC0415 - found by the line before

    return clients, verdict


def row(name: str, words: int, **fields: object) -> Any:
    return record(request_id=name, completion=words, cost=words * WORD, **fields)


def judge(bench: Any, rows: list[Any], **changed: object) -> Any:
    """One reply of three words that is whole, and one that broke off after two of four."""
    clients, verdict = bench
    seen = [clients.Seen("f-many-0", 200, 3, whole=True), clients.Seen("f-paid-0", 200, 2)]
    cost = sum(one.cost for one in rows)
    counted = {
        "asked": {"f-many-0": 1, "f-paid-0": 1},
        "sent": {"f-many-0": 3, "f-paid-0": 4},
        "most": {"": 2, "many": 1},
        "in_a_minute": {"rated": 5},
        "database": cost,
        "shared": cost,
        "cost": cost,
        **changed,
    }
    bounds = verdict.Bounds({"": 2, "many": 1}, {"rated": 5}, {"paid": 4}, failures=1)
    return verdict.judged(seen, rows, verdict.Counted(**counted), bounds)


WHOLE, BROKEN = ("f-many-0", 3), ("f-paid-0", 4)


def test_what_is_kept_breaks_nothing(bench: Any) -> None:
    found = judge(bench, [row(*WHOLE), row(*BROKEN)])
    assert (found.broken, found.words, found.failed) == ([], (3, 3, 3), 1)
    assert found.highest == [(2, 2), (5, 5), (4, 4)]


@pytest.mark.parametrize(
    ("rows", "changed", "said"),
    [
        ([row(*BROKEN)], {}, "missing in the ledger: f-many-0"),
        ([row(*WHOLE)], {}, "missing in the ledger: f-paid-0"),
        ([row(*WHOLE, status=503), row(*BROKEN)], {}, "missing in the ledger: f-many-0"),
        ([row(*WHOLE), row(*WHOLE), row(*BROKEN)], {}, "twice in the ledger: f-many-0"),
        ([row("f-many-0", 2), row(*BROKEN)], {}, "3 received, 2 in the ledger, 3 sent"),
        ([row(*WHOLE), row("f-paid-0", 5)], {}, "5 in the ledger, 4 sent"),
        ([row(*WHOLE), row(*BROKEN)], {"database": 1}, "spent in the database: 1"),
        ([row(*WHOLE), row(*BROKEN)], {"shared": 1}, "spent in the shared server: 1"),
        ([row(*WHOLE), row(*BROKEN)], {"most": {"": 3}}, "at once of all: 3, allowed are 2"),
        ([row(*WHOLE), row(*BROKEN)], {"in_a_minute": {"rated": 6}}, "allowed are 5"),
        (
            [row(*WHOLE), record(request_id="f-paid-0", completion=1, cost=1)],
            {},
            "f-paid-0 costs 1",
        ),
    ],
)
def test_each_broken_promise_is_named(
    bench: Any, rows: list[Any], changed: dict[str, object], said: str
) -> None:
    assert any(said in one for one in judge(bench, rows, **changed).broken)
