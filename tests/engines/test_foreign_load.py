"""Noticing other programs on the engine's cores, and spinning less then."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest
from waiting import eventually

from causerie.engines.llamacpp.foreign_load import ForeignLoad, ShortSpins, thread_times

MS = 1_000_000


def seen(*steps: tuple[int, int]) -> list[bool]:
    """Whether a load is found after each step: milliseconds that threads ran and waited more."""
    load = ForeignLoad()
    ran = waited = 0
    found = []
    for more_ran, more_waited in steps:
        ran, waited = ran + more_ran * MS, waited + more_waited * MS
        load.observe(ran, waited)
        found.append(load.found)
    return found


def test_it_is_found_when_threads_wait_for_a_core_and_gone_when_they_do_not() -> None:
    assert seen((1000, 5), (500, 500), (900, 100), (990, 10)) == [False, True, True, False]


def test_waits_that_come_with_any_work_are_none() -> None:
    assert seen((1000, 100), (1000, 100)) == [False, False]


def test_little_work_tells_nothing_until_it_adds_up() -> None:
    assert seen((5, 40), (5, 40), (5, 40)) == [False, False, True]


def test_threads_that_end_tell_nothing() -> None:
    assert seen((500, 500), (-800, -300), (500, 0)) == [True, True, False]


@pytest.mark.skipif(sys.platform != "linux", reason="GNU OpenMP on Linux")
async def test_a_team_that_sleeps_is_there_while_it_is_switched_on() -> None:
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        pytest.skip("needs libgomp")
    cores = os.cpu_count() or 1
    spins = ShortSpins("libgomp.so.1", cores)
    tasks = Path("/proc/self/task")
    before = set(tasks.iterdir())

    async def team(count: int) -> bool:
        return len(set(tasks.iterdir()) - before) == count

    async def there() -> bool:
        return await team(2)

    async def gone() -> bool:
        return await team(0)

    for _ in range(2):
        spins.switch(on=True)
        spins.switch(on=True)
        await eventually(there)
        spins.switch(on=False)
        spins.switch(on=False)
        await eventually(gone)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not count")
def test_times_of_threads_are_read() -> None:
    ran, waited = thread_times()
    assert ran > 0
    assert waited >= 0
