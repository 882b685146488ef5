"""Tasks answer one exchange after the other, and none is lost on a task that was ended."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

from causerie.http.exchange import Exchange
from causerie.http.head import RequestHead
from causerie.http.tasks import Workers


def an_exchange() -> Exchange:
    return Exchange(Mock(), RequestHead("GET", "/"))


class Answered:
    """Answers by noting which task did, each as soon as it may."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None] | None] = []
        self.may = asyncio.Event()
        self.came = asyncio.Condition()

    async def __call__(self, exchange: Exchange) -> None:
        await self.may.wait()
        assert exchange.task is asyncio.current_task()
        async with self.came:
            self.tasks.append(exchange.task)
            self.came.notify_all()

    async def many(self, number: int) -> list[asyncio.Task[None] | None]:
        async with self.came:
            await self.came.wait_for(lambda: len(self.tasks) == number)
        await asyncio.sleep(0)  # a task that has answered waits from its next step on
        return self.tasks


async def test_a_task_that_has_answered_answers_the_next_exchange() -> None:
    answered = Answered()
    workers = Workers(answered)
    answered.may.set()
    workers.begin(an_exchange())
    await answered.many(1)
    workers.begin(an_exchange())
    first, second = await answered.many(2)
    assert first is second
    await workers.ended()
    assert first is not None
    assert first.done()


async def test_a_task_that_never_ends_is_cut() -> None:
    answered = Answered()
    workers = Workers(answered)
    exchange = an_exchange()
    workers.begin(exchange)
    await asyncio.sleep(0)  # it begins to wait for what never comes
    await workers.end(0.01)
    assert exchange.task is not None
    assert exchange.task.cancelled()


async def test_exchanges_are_answered_beside_each_other() -> None:
    answered = Answered()
    workers = Workers(answered)
    for _ in range(3):
        workers.begin(an_exchange())
    answered.may.set()
    assert len(set(await answered.many(3))) == 3
    await workers.ended()


async def test_a_task_that_was_cancelled_while_it_waited_is_given_nothing() -> None:
    answered = Answered()
    workers = Workers(answered)
    answered.may.set()
    workers.begin(an_exchange())
    (first,) = await answered.many(1)
    assert first is not None
    first.cancel()
    workers.begin(an_exchange())
    _, second = await answered.many(2)
    assert second is not first
    await workers.ended()
    assert first.cancelled()


async def test_a_task_whose_cancellation_was_swallowed_answers_nothing_more() -> None:
    tasks: list[asyncio.Task[None] | None] = []

    async def answer(exchange: Exchange) -> None:
        tasks.append(exchange.task)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return

    workers = Workers(answer)
    workers.begin(an_exchange())
    await asyncio.sleep(0)
    (task,) = tasks
    assert task is not None
    task.cancel()
    await asyncio.wait([task])
    assert not task.cancelled()
    await workers.ended()


async def test_what_runs_is_waited_for() -> None:
    answered = Answered()
    workers = Workers(answered)
    workers.begin(an_exchange())
    ending = asyncio.ensure_future(workers.ended())
    await asyncio.sleep(0)
    assert not ending.done()
    answered.may.set()
    await ending
    assert len(answered.tasks) == 1
