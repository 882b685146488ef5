"""The simulated pool: its caches forget as servers do, and its bars can be missed."""

from __future__ import annotations

import random
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    sys.modules.pop("pool", None)
    return import_module("pool")


def test_a_cache_keeps_what_was_used_last_and_ends_first(pool: Any) -> None:
    cache = pool.Cache(4)
    assert cache.read([1, 2, 3]) == 0
    assert cache.read([1, 2, 4]) == 2
    assert cache.read([1, 2, 3]) == 3
    assert cache.read([5, 6]) == 0
    assert cache.read([1, 2, 3]) == 2  # the end went first


def test_prompts_go_where_they_were_read(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MEMBERS", 6)
    prompts = pool.conversations(random.Random(1), 8, 10.0, 6)
    best = pool.best_rate(prompts)
    found = {name: pool.simulated(prompts, choose) for name, choose in pool.POLICIES.items()}
    assert found["by prefix"].rate >= 0.9 * best
    assert found["round robin"].rate < 0.9 * best
    assert found["by prefix"].p90 < found["round robin"].p90
