"""Counting of limits and budgets: here, or in a server that replicas share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from causerie.access.limits import RateLimiter
from causerie.access.windows import MemoryCounters
from causerie.accounts.shared_budgets import SharedBudgetStore
from causerie.composition.startup import CannotStart
from causerie.settings import SharedSettings

_FIRST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Distribution:
    """Counters of limits and budgets.

    ``budgets`` is ``None`` if each process counts them for itself. ``here`` reports whether the
    shared server answers; ``None``: nothing is shared.
    """

    counters: RateLimiter
    budgets: SharedBudgetStore | None = None
    here: Callable[[], bool | None] = lambda: None


@asynccontextmanager
async def sharing(shared: SharedSettings) -> AsyncIterator[Distribution]:
    """Yield the counters, for as long as the service runs.

    If the server is away when the service starts, the start waits for a moment, and then
    reconnection goes on in the background for ever. Raises :class:`CannotStart` for a malformed
    address.
    """
    if shared.url is None:
        yield Distribution(MemoryCounters())
        return
    # Imported here: the server's client takes memory, which a single replica does not need.
    from causerie.distributed import budgets, counters, line, replica  # noqa: PLC0415 - see above

    reach = line.ConnectionOptions(shared.reply_seconds, ca_file=shared.ca_file)
    options = replica.DistributedOptions(away=shared.away, prefix=shared.prefix, line=reach)
    try:
        here = replica.Replica(shared.url, options)
    except ValueError as error:
        raise CannotStart("shared.url: the address cannot be read") from error
    async with here.running():
        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                await here.wait()
        except TimeoutError:
            pass  # said in the log; requests are counted as `away` says
        yield Distribution(
            counters.DistributedCounters(here),
            budgets.DistributedBudgets(here),
            lambda: here.here,
        )
