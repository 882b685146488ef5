"""Where limits and budgets are counted: here, or in a server that replicas share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from causerie.access.limits import Counters
from causerie.access.windows import MemoryCounters
from causerie.accounts.together import Together
from causerie.settings import Shared
from causerie.startup import CannotStart

_FIRST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Sharing:
    """What counts.

    ``budgets`` is ``None`` where each process counts them for itself. ``here``
    says whether the shared server answers; ``None``: nothing is shared.
    """

    counters: Counters
    budgets: Together | None = None
    here: Callable[[], bool | None] = lambda: None


@asynccontextmanager
async def sharing(shared: Shared) -> AsyncIterator[Sharing]:
    """What counts, for as long as the service runs.

    A server that is away when the service starts is waited for a moment, and
    then for ever in the background. Raises :class:`CannotStart` for an address
    that is none.
    """
    if shared.url is None:
        yield Sharing(MemoryCounters())
        return
    from causerie.shared.budgets import SharedBudgets  # noqa: PLC0415 - memory, for who shares
    from causerie.shared.counters import SharedCounters  # noqa: PLC0415 - the same
    from causerie.shared.line import LineOptions  # noqa: PLC0415 - the same
    from causerie.shared.replica import Replica, SharedOptions  # noqa: PLC0415 - the same

    line = LineOptions(ca_file=shared.ca_file)
    options = SharedOptions(away=shared.away, prefix=shared.prefix, line=line)
    try:
        replica = Replica(shared.url, options)
    except ValueError as error:
        raise CannotStart("shared.url: the address cannot be read") from error
    async with replica.running():
        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                await replica.wait()
        except TimeoutError:
            pass  # said in the log; requests are counted as `away` says
        counters, budgets = SharedCounters(replica), SharedBudgets(replica)
        yield Sharing(counters, budgets, lambda: replica.here)
