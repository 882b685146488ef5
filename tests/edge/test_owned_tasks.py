"""Tasks that somebody owns end with the block, whatever becomes of a cancellation."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest
from accountkit import World

from causerie.hosted.accounts.spending import LiveScopeBudgets
from causerie.hosted.store import database
from causerie.http import tasks


async def test_a_task_that_loses_its_cancellation_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "_CANCEL_AGAIN_SECONDS", 0.01)
    lost = 0

    async def work() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if lost:
                    raise
                lost += 1

    async with asyncio.timeout(30), tasks.owned(work()):
        await asyncio.sleep(0)
    assert lost == 1


async def test_a_driver_that_fails_in_a_cancelled_task_leaves_it_cancelled() -> None:
    async def work() -> None:
        with database._raise_translated_failures():
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                raise sqlite3.OperationalError("interrupted") from None

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_whoever_follows_budgets_ends_though_they_change_at_that_moment(
    world: World,
) -> None:
    live, changed = LiveScopeBudgets(world.accounts.scope_budgets, world.clock), asyncio.Event()
    task = asyncio.create_task(live.follow(changed))
    while changed.is_set() or not changed._waiters:  # noqa: ASYNC110 - until it waits
        await asyncio.sleep(0.01)
    changed.set()
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=30)
    assert done
    assert task.cancelled()
