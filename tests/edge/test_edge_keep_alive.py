"""Periods, told by one timer to those who listen."""

from __future__ import annotations

import asyncio

from causerie.http.answers import KeepAlive


class Listening:
    def __init__(self) -> None:
        self.periods = 0
        self.told = asyncio.Event()

    def period_over(self) -> None:
        self.periods += 1
        self.told.set()


async def test_all_who_listen_are_told_until_they_leave() -> None:
    pings, first, second = KeepAlive(0.001), Listening(), Listening()
    pings.enter(first)
    pings.enter(second)
    await first.told.wait()
    await second.told.wait()
    pings.leave(first)
    had = first.periods
    second.told.clear()
    await second.told.wait()
    assert first.periods == had
    pings.leave(second)


async def test_periods_begin_anew_when_somebody_comes_after_all_had_left() -> None:
    pings, first, second, watch = KeepAlive(0.001), Listening(), Listening(), KeepAlive(0.005)
    pings.enter(first)
    pings.leave(first)
    watch.enter(first)  # by then the period of nobody is over
    await first.told.wait()
    watch.leave(first)
    assert first.periods == 1
    pings.enter(second)
    await second.told.wait()
    pings.leave(second)


async def test_leaving_without_having_entered_changes_nothing() -> None:
    pings, listener, stranger = KeepAlive(0.001), Listening(), Listening()
    pings.enter(listener)
    pings.leave(stranger)
    await listener.told.wait()
    pings.leave(listener)
    assert (listener.periods, stranger.periods) == (1, 0)
