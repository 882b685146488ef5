"""The probes under way, one at a time for each provider. They end with the block that owns them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Self

import structlog

from causerie.errors import InvalidRequest, StoreUnavailable
from causerie.operations.examination import Clock, Examination, Examinee
from causerie.operations.result import Result
from causerie.operations.results import Results
from causerie.probe.asker import ProbeBounds

log = structlog.get_logger(__name__)
_BOUNDS = ProbeBounds()


def _now() -> datetime:
    return datetime.now(UTC)


class Examinations:
    """Use as an async context manager; leaving cancels what is under way."""

    def __init__(
        self, results: Results, clock: Clock = _now, bounds: ProbeBounds = _BOUNDS
    ) -> None:
        self.results = results
        self._clock = clock
        self._bounds = bounds
        self._last: dict[str, Examination] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def last(self, provider: str) -> Examination | None:
        """The one under way at a provider, else the last one since the service began."""
        return self._last.get(provider)

    async def ended(self, provider: str) -> Examination | None:
        """The last one at a provider, once it has ended."""
        task = self._tasks.get(provider)
        if task is not None:
            await asyncio.wait([task])
        return self.last(provider)

    def begin(self, examinee: Examinee, model: str, *, quick: bool = False) -> Examination:
        """Begin to probe; raises :class:`InvalidRequest` (409) while a probe is under way there."""
        name = examinee.provider
        if name in self._tasks:
            raise InvalidRequest(
                f"{name} is being probed already ({self._last[name].model}); wait for its end or "
                "cancel it.",
                code="probe_running",
                status=409,
            )
        made = Examination(examinee, model, self._clock, self._bounds, quick=quick)
        self._last[name] = made
        task = asyncio.get_running_loop().create_task(made.run(self._keep))
        self._tasks[name] = task
        task.add_done_callback(lambda ended: self._ended(made, ended))
        return made

    async def cancel(self, provider: str) -> None:
        """End the probe under way at a provider, if there is one."""
        task = self._tasks.get(provider)
        if task is not None:
            task.cancel()
            await self.ended(provider)

    def _ended(self, made: Examination, task: asyncio.Task[None]) -> None:
        del self._tasks[made.provider]
        if task.cancelled():
            made.end("cancelled")
        elif (failure := task.exception()) is not None:
            log.error("probe failed", provider=made.provider, exc_info=failure)
            made.end("failed", f"it broke off: {failure}")

    async def use(self, result: Result) -> None:
        await self._stored(self.results.use(result))

    async def _keep(self, result: Result) -> None:
        await self._stored(self.results.keep(result))

    async def _stored(self, kept: Awaitable[None]) -> None:
        try:
            await kept
        except StoreUnavailable as failure:
            log.warning("result of a probe is not kept", error=str(failure))
