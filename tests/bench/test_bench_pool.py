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


def test_prompts_go_where_they_were_read(pool: Any) -> None:
    load = pool.Load("few", pool.conversations(random.Random(1), 8, 10.0, 6), members=6)
    found = outcomes(pool, load)
    assert found["by prefix"].rate >= 0.95 * load.best_rate
    assert found["round robin"].rate < 0.9 * load.best_rate
    assert found["by prefix"].p90 < found["round robin"].p90


def test_beginnings_that_fit_into_all_memories_only_are_read_once(pool: Any) -> None:
    prompts = pool.beginnings(random.Random(1), 4, 16, 224, 48, 15)
    load = pool.Load("small", prompts, 2, cache=200, read=1_000.0, reply=8, events=True)
    found = outcomes(pool, load)
    assert found["by prefix"].rate >= 0.95 * load.best_rate
    assert found["round robin"].rate < 0.8 * load.best_rate


def outcomes(pool: Any, load: Any) -> dict[str, Any]:
    return {name: pool.simulated(load, choose) for name, choose in pool.POLICIES.items()}


def test_one_cache_of_both_memories_forgets_too(pool: Any) -> None:
    work = pool.Work(4, 64, 40)  # of 64 tokens and 48 more: three whole blocks of 32, one of rest
    prompts = work.prompts("seed", 10_000)
    everything = work.best_rate(prompts, 1_000, 32)
    assert everything == pytest.approx(36 * 64 / (40 * 112))  # each beginning is read once
    assert 0 < work.best_rate(prompts, 12, 32) < everything
    assert work.best_rate(prompts, 0, 32) == 0
