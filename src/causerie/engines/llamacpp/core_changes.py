"""The cores that a loaded model may use, when they change: the log tells of it.

The engine makes its threads when it loads, and nothing changes their number afterwards. With more
threads than cores each step waits for a thread that has no core; with fewer, cores are left over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger(__name__)

_SECONDS = 60.0  # between two looks; quotas are changed by hand, or by slow controllers


async def tell_core_changes(
    model: str,
    threads: int,
    count: Callable[[], int | None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Log each change of the cores of a model that has loaded with so many ``threads``.

    ``count`` returns its cores now, or ``None`` while it has no process; it is called in a thread.
    Runs until it is cancelled.
    """
    told = threads
    while True:
        await sleep(_SECONDS)
        cores = await asyncio.to_thread(count)
        if cores is None or cores == told:
            continue
        told = cores
        if cores == threads:
            log.info("cores fit the threads again", model=model, cores=cores)
            continue
        advice = "the model keeps its threads until it is loaded again: restart the service"
        log.warning("cores have changed", model=model, threads=threads, cores=cores, advice=advice)
