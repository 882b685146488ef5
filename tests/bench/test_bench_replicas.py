"""The judgement of the rolling restarts: each kind of loss is one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from replicakit import Seen

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def replicas(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module("replicas")


class Ledger:
    """One that holds requests of these names."""

    def __init__(self, *names: str) -> None:
        self._names = names

    async def every_record(self) -> AsyncIterator[SimpleNamespace]:
        for name in self._names:
            yield SimpleNamespace(request_id=name)


@pytest.mark.parametrize(
    ("ledger", "seen", "good"),
    [
        (Ledger("a", "b"), Seen(ended=["a", "b"]), True),
        (Ledger("a"), Seen(ended=["a", "b"]), False),
        (Ledger("a", "a"), Seen(ended=["a"]), False),
        (Ledger("a"), Seen(ended=["a"], lost=["stream 1: 3 of 4 words"]), False),
        (Ledger("a"), Seen(ended=["a"], refused=["stream 1: 503"]), False),
    ],
)
async def test_whatever_is_lost_fails_the_run(
    replicas: Any, ledger: Ledger, seen: Seen, good: bool
) -> None:
    curves = replicas.Curves(gaps=[(1.0, 0.5)])
    assert await replicas.judged(ledger, seen, curves) is good
