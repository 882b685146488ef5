"""A target that fails in passing is asked again, within bounds, before the first content."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pytest
from casekit import each_of
from routingkit import REPLY, Answer, Scripted, router, told

from causerie.errors import (
    ErrorClass,
    InvalidRequest,
    Overloaded,
    RateLimited,
    ServiceError,
    UnusableOutput,
    UpstreamFailed,
)
from causerie.protocol.events import Event, Partial
from causerie.protocol.request import ChatRequest

FAILED = UpstreamFailed("It failed.").caused_by(ErrorClass.SERVER_ERROR)


@dataclass
class Recovering(Scripted):
    """Fails with each of ``failures`` in turn, then answers."""

    script: Sequence[Event | ServiceError] = REPLY
    retries: int = 2
    failures: Sequence[ServiceError] = ()

    def generate(
        self, request: ChatRequest, partial: Partial | None = None
    ) -> AbstractAsyncContextManager[Answer]:
        times = len(self.asked)
        self.script = [self.failures[times]] if times < len(self.failures) else REPLY
        return super().generate(request, partial)


def failing(*failures: ServiceError, retries: int = 2) -> Recovering:
    return Recovering(failures=failures, retries=retries)


async def reply(*targets: Recovering, **more: object) -> list[Event]:
    async def no_pause(_: float) -> None:
        pass

    return await told(router(*targets, **{"pause": no_pause, **more}), len(targets))


@each_of("failures", [0, 1, 2])
async def test_a_lone_target_is_asked_again(failures: int) -> None:
    target = failing(*[FAILED] * failures)
    assert (await reply(target))[:-1] == [*REPLY]
    assert len(target.asked) == failures + 1


async def test_retries_have_an_end() -> None:
    target = failing(*[FAILED] * 9)
    with pytest.raises(UpstreamFailed):
        await reply(target)
    assert len(target.asked) == 3


async def test_the_pauses_grow_and_are_counted() -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    target = failing(FAILED, FAILED)
    await reply(target, pause=pause)
    assert pauses == [pytest.approx(0.15), pytest.approx(0.3)]


async def test_another_target_is_asked_first() -> None:
    first, second = failing(FAILED), failing(FAILED)
    await reply(first, second)
    assert [len(one.asked) for one in (first, second)] == [2, 1]


@each_of(
    "failure",
    [
        InvalidRequest("It is wrong."),
        Overloaded("It is full."),
        RateLimited("It is limited."),
        UnusableOutput("It called nothing."),
        UpstreamFailed("It took too long.").caused_by(ErrorClass.TIMEOUT),
        UpstreamFailed("It knows no such key.").caused_by(ErrorClass.REJECTED_KEY),
    ],
)
async def test_what_would_fail_again_is_not_repeated(failure: ServiceError) -> None:
    target = failing(failure)
    with pytest.raises(ServiceError):
        await reply(target)
    assert len(target.asked) == 1


async def test_without_retries_one_failure_is_one() -> None:
    target = failing(FAILED, retries=0)
    with pytest.raises(UpstreamFailed):
        await reply(target)
    assert len(target.asked) == 1
